"""How a slab is taken apart into two-dimensional problems, and where its partitions lie.

**Which way.** The transform of an axis is taken out of the problem (an inverse FFT, which is unitary, so
noise stays as it is) where k-space is complete along it: for all positions in the other two axes that were
measured at all, all samples of it were measured. The first that is, of

1. *kz*: partitions are ordinary slices (y, x), each reconstructed by itself;
2. *kx* (readouts): planes (z, y), one for each x;
3. *ky*: planes (z, x), one for each y.

Where none is, two-dimensional problems do not exist, and the slab is refused.

**Where.** ISMRMRD's ``position`` of a readout of a slab is the centre of the excited volume. As along x and
y, that is the point where a Fourier transform has its origin: the partition with index n // 2 of the n
encoded ones has its centre there, for even and odd n. (For even n, n / 2 partitions lie before it and n / 2 -
1 after it, so the middle of the stack is half a partition before the slab's position.) Partition p of the N
that are sent has its centre at

    position + (p - N // 2) * thickness * slice_dir,    thickness = recon field of view z / recon matrix z.

**How many.** As along x and y: k-space is zero-filled (or cut) to as many partitions of that thickness as the
encoded slab holds (slice interpolation), and the middle N of them are sent (slice oversampling). N is the
recon matrix's z; no partition is sent that lies outside of the encoded slab.

The ``slice`` counter of a partition is slab * N + p.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gadget.errors import ScanError
from gadget.scan.assembled import AssembledSlice
from gadget.scan.calibration_maps import split_calibration
from gadget.scan.context import ScanContext, Vector
from gadget.scan.fit_axis import fit_axis
from gadget.scan.volume import AssembledVolume
from reconlib.kspace import KSpace


class CompleteAxis(Enum):
    """The axis of k-space that is transformed; the values are its place in (kz, ky, kx)."""

    KZ = 0
    KY = 1
    KX = 2


def complete_axis(volume: AssembledVolume) -> CompleteAxis:
    """Say along which axis a slab is transformed.

    Raises
    ------
    ScanError
        K-space is complete along none.
    """
    mask = volume.mask
    for axis in (CompleteAxis.KZ, CompleteAxis.KX, CompleteAxis.KY):
        if np.array_equal(mask.any(axis=axis.value), mask.all(axis=axis.value)):
            return axis
    n_z, n_y, n_x = mask.shape
    n_lines, n_columns = int(mask.any(axis=2).sum()), int(mask.any(axis=(0, 1)).sum())
    raise ScanError(
        f"{volume.context.label()}: a 3-D scan with {n_lines} of {n_z} x {n_y} lines and {n_columns} of "
        f"{n_x} samples per readout, complete along none of the three directions, which is not supported: "
        "such a volume does not part into 2-D problems. Measure whole echoes, or all lines of one "
        "direction (no partial Fourier and no acceleration along it)."
    )


@dataclass(frozen=True, slots=True)
class PartitionGrid:
    """The partitions of a slab along z; see the module's text."""

    n_encoded: int
    n_filled: int
    n_sent: int
    thickness_mm: float

    def fit(self, image: Tensor, axis: int) -> Tensor:
        """Bring an axis of an image from the encoded partitions to those that are sent."""
        return fit_axis(image, axis, self.n_filled, self.n_sent)


def partition_grid(context: ScanContext) -> PartitionGrid:
    """Lay out the partitions of a slab."""
    n_encoded, n_recon, fov_mm = context.n_partitions, context.recon_matrix[2], context.recon_fov_mm[2]
    if fov_mm <= 0 or context.slab_fov_mm <= 0:
        return PartitionGrid(n_encoded, n_encoded, min(n_recon, n_encoded), 0.0)
    n_filled = max(1, round(n_recon * context.slab_fov_mm / fov_mm))
    return PartitionGrid(n_encoded, n_filled, min(n_recon, n_filled), fov_mm / n_recon)


def partition_contexts(context: ScanContext, how: str) -> tuple[ScanContext, ...]:
    """Describe the partitions of a slab that are sent; ``how`` says how they are made."""
    grid = partition_grid(context)
    notes = [f"3-D: {grid.n_sent} of {grid.n_filled} partitions, {how}"]
    if grid.n_filled != grid.n_encoded:
        notes.append(f"partitions interpolated from {grid.n_encoded} to {grid.n_filled} by zero-filling")
    if grid.n_sent < context.recon_matrix[2]:
        notes.append(f"{context.recon_matrix[2]} partitions in the header, more than the encoded slab holds")
    if grid.thickness_mm == 0 or not any(context.slice_dir):
        notes.append("no slab thickness or slice direction in the header: all partitions have its position")
    x, y, _ = context.recon_matrix
    return tuple(
        replace(
            context,
            slice=context.slice * grid.n_sent + partition,
            recon_matrix=(x, y, 1),
            recon_fov_mm=(*context.recon_fov_mm[:2], grid.thickness_mm),
            position=_moved(context, (partition - grid.n_sent // 2) * grid.thickness_mm),
            notes=(*context.notes, *notes),
        )
        for partition in range(grid.n_sent)
    )


def _moved(context: ScanContext, by_mm: float) -> Vector:
    x, y, z = (a + by_mm * b for a, b in zip(context.position, context.slice_dir, strict=True))
    return x, y, z


def slices_of(volume: AssembledVolume) -> Iterator[AssembledSlice]:
    """Yield the partitions of a slab that is complete along kz, as ordinary slices.

    The volume is used up: where no more partitions are sent than were encoded, its samples are overwritten
    with theirs, and beside it only one slice at a time is held.
    """
    grid, context = partition_grid(volume.context), volume.context
    hybrid = _partitions_in_place(volume.samples, grid)
    mask = torch.from_numpy(volume.mask.any(axis=0))[None, None]
    noise_std = volume.noise_std * float(np.sqrt(min(1.0, grid.n_filled / grid.n_encoded)))
    calibrations = (
        None
        if volume.calibration is None
        else split_calibration(volume.calibration, 2, grid.n_sent, grid.n_sent * grid.thickness_mm)
    )
    for partition, one in enumerate(partition_contexts(context, "transformed along kz, which is complete")):
        samples = torch.from_numpy(hybrid[:, partition].copy())[None]
        yield AssembledSlice(
            one,
            KSpace(samples=samples, mask=mask, noise_std=noise_std),
            None if calibrations is None else calibrations[partition],
        )


def _partitions_in_place(samples: NDArray[np.complex64], grid: PartitionGrid) -> NDArray[np.complex64]:
    """Transform kz of (coil, kz, ky, kx) to the partitions that are sent."""
    n_coils, n_kz, n_ky, n_kx = samples.shape
    target = samples if grid.n_sent <= n_kz else np.empty((n_coils, grid.n_sent, n_ky, n_kx), np.complex64)
    for coil in range(n_coils):
        for row in range(n_ky):
            image = torch.from_numpy(transformed(samples[coil, :, row], 0))
            target[coil, : grid.n_sent, row] = grid.fit(image, 0).numpy()
    return target[:, : grid.n_sent]


def transformed(samples: NDArray[np.complex64], axis: int) -> NDArray[np.complex64]:
    """Centred unitary inverse FFT along one axis."""
    shifted = np.fft.ifftshift(samples, axes=axis)
    image: NDArray[np.complex64] = np.fft.fftshift(np.fft.ifft(shifted, axis=axis, norm="ortho"), axes=axis)
    return image.astype(np.complex64, copy=False)
