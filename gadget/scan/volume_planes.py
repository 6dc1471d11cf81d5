"""The planes of a volume that is under-sampled in its partitions: (z, y) for each x, or (z, x) for each y."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gadget.scan.calibration import CalibrationLines
from gadget.scan.calibration_maps import split_calibration
from gadget.scan.coil_start import maps_of
from gadget.scan.volume import AssembledVolume
from gadget.scan.volume_partitions import CompleteAxis, complete_axis, transformed
from reconlib.kspace import KSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePlanes:
    """A volume after the transform of its complete axis, kx or ky: a stack of two-dimensional problems."""

    hybrid: NDArray[np.complex64]
    """complex64 (plane, coil, kz, across); the memory is that of the volume's samples."""
    mask: torch.Tensor
    """bool (1, 1, kz, across), the same for all planes."""
    noise_std: float
    fov_mm: tuple[float, float]
    """Of a plane: across, and along z."""
    axis: CompleteAxis
    calibrations: tuple[CalibrationLines, ...] | None
    """Of each plane."""

    @staticmethod
    def of(volume: AssembledVolume) -> "VolumePlanes":
        """Transform a volume in place: its samples are overwritten."""
        axis, context = complete_axis(volume), volume.context
        if axis is CompleteAxis.KZ:
            raise ValueError("a volume that is complete along kz has slices; use slices_of.")
        for coil in volume.samples:
            for partition in coil:
                partition[...] = transformed(partition, axis.value - 1)
        hybrid = np.moveaxis(volume.samples, axis.value + 1, 0)
        along = 0 if axis is CompleteAxis.KX else 1
        return VolumePlanes(
            hybrid=hybrid,
            mask=torch.from_numpy(volume.mask.any(axis=axis.value))[None, None],
            noise_std=volume.noise_std,
            fov_mm=(context.grid_fov_mm[1 - along], context.slab_fov_mm),
            axis=axis,
            calibrations=None
            if volume.calibration is None
            else split_calibration(volume.calibration, along, hybrid.shape[0], context.grid_fov_mm[along]),
        )

    def __len__(self) -> int:
        """Number of planes."""
        return len(self.hybrid)

    @property
    def words(self) -> str:
        """How partitions come about, for their notes."""
        axis, planes = ("kx", "z, y") if self.axis is CompleteAxis.KX else ("ky", "z, x")
        return f"transformed along {axis}, which is complete, and reconstructed in planes ({planes})"

    def kspace(self, plane: int) -> KSpace:
        """Return the k-space of one plane, a batch of one, rows kz."""
        samples = torch.from_numpy(np.ascontiguousarray(self.hybrid[plane]))[None]
        return KSpace(samples=samples, mask=self.mask, noise_std=self.noise_std)

    def initial_coils(self, planes: Sequence[int]) -> NDArray[np.complex64] | None:
        """Return rough coil maps of planes from a separate calibration; None where there is none."""
        if self.calibrations is None:
            return None
        _, n_coils, n_z, n_across = self.hybrid.shape
        return maps_of(
            [self.calibrations[plane] for plane in planes],
            (n_coils, n_z, n_across),
            self.fov_mm,
        )

    def restack(self, partitions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Turn partitions (partition, across, plane) into images (partition, y, x)."""
        return partitions if self.axis is CompleteAxis.KX else partitions.transpose(0, 2, 1)
