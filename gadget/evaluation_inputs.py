"""Fully sampled scans to evaluate on: ISMRMRD files, fastMRI files, k-space arrays."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from gadget.errors import FileError, GadgetError, ScanError
from gadget.evaluation_assembly import (
    FROM_OUTERMOST,
    NO_TRUTH,
    assembled_slices,
    kind_of_file,
    middle,
    noise_words,
    truth_of_slice,
)
from gadget.scan.header import parse_scan_header
from gadget.scan.noise import noise_std_from_edges
from gadget.scan_file import open_scan
from gadget.settings import Settings
from reconlib.evaluation.noise_floor import root_sum_of_squares_without_floor
from reconlib.evaluation.off_grid import finer
from reconlib.evaluation.study import FullScan
from reconlib.kspace import NonuniformKSpace
from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.operators.sense import root_sum_of_squares
from reconlib.simulation.scan import corner_noise_std

FROM_CORNERS = "from the corners of the image"
LARGEST_DISAGREEMENT = 1.5
"""Of a noise level from the corners with one from the outermost samples, which is never too small by much."""
SMALLEST_SHARE_KEPT = 0.9
"""Of the measured lines; where less would be left by cutting symmetrically, k-space is not fully sampled."""


def read_full_scans(
    path: Path, settings: Settings, *, n_slices: int | None = None, use_truth: bool = False
) -> list[FullScan]:
    """Read every slice of a fully sampled scan, or the ``n_slices`` in the middle.

    * ``.npy``: k-space complex (coil, ky, kx) or (slice, coil, ky, kx), centred; noise level from the corners
      of the image.
    * fastMRI ``.h5`` (a data set ``kspace``, (slice, coil, kx, ky)): turned to (slice, coil, ky, kx), readout
      oversampling removed by cropping to the height of ``reconstruction_rss`` or, without it, of the ISMRMRD
      header's recon matrix; noise level from the corners of the image.
    * ISMRMRD ``.h5``: assembled and prewhitened by the program's own pipeline; noise level from the noise
      readouts, where there are some.

    Outer lines that were never measured (k-space filled up with zeros) are cut off, so that the matrix is
    what was measured. ``use_truth`` takes the noise-free truth that ``simulate`` stores as the reference.

    Raises
    ------
    GadgetError
        The file cannot be read, its k-space is not fully sampled, or there is no truth in it.
    """
    kind = kind_of_file(path)
    if kind == "ISMRMRD":
        return _from_ismrmrd(path, settings, n_slices, use_truth=use_truth)
    if use_truth:
        raise ScanError(NO_TRUTH.format(path))
    return _from_array(path, n_slices) if kind == "array" else _from_fastmri(path, n_slices)


def complex_array(path: Path, what: str) -> NDArray[np.complexfloating[Any, Any]]:
    """Read a complex .npy of 3 or 4 dimensions as 4; ``what`` says in an error what is needed."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(f"{path} is no .npy array: {error}") from error
    if not isinstance(array, np.ndarray):
        raise FileError(f"{path} is an archive of arrays; give one array in the .npy format.")
    if not np.iscomplexobj(array) or array.ndim not in (3, 4) or array.size == 0:
        raise FileError(f"{path} is {array.dtype} of shape {array.shape}; {what}.")
    return array.reshape(-1, *array.shape[-3:])


def _from_array(path: Path, n_slices: int | None) -> list[FullScan]:
    kspace = complex_array(
        path, "k-space is complex with the axes (coil, ky, kx) or (slice, coil, ky, kx)"
    ).astype(np.complex64)
    return [
        _full_scan(path, index, len(kspace), torch.from_numpy(kspace[index].copy())[None])
        for index in middle(len(kspace), n_slices)
    ]


def _from_fastmri(path: Path, n_slices: int | None) -> list[FullScan]:
    scans = []
    with open_scan(path) as file:
        kspace = file["kspace"]
        if kspace.ndim != 4 or kspace.dtype.kind != "c" or 0 in kspace.shape:
            raise FileError(
                f"{path}: kspace is {kspace.dtype} of shape {kspace.shape}; multi-coil fastMRI data are "
                "complex (slice, coil, kx, ky)."
            )
        n_read = kspace.shape[-2]
        wanted = min(_readout_size(path, file) or n_read, n_read)
        first = n_read // 2 - wanted // 2
        for index in middle(len(kspace), n_slices):
            samples = torch.from_numpy(kspace[index].astype(np.complex64))[None]
            measured = (samples != 0).flatten(0, 2).any(dim=0)
            if wanted < n_read:
                # the FFT is unitary, so white noise stays as strong as it was
                samples = fft2c(ifft2c(samples)[..., first : first + wanted, :]) * measured
            scans.append(_full_scan(path, index, len(kspace), samples.transpose(-1, -2).contiguous()))
    return scans


def _readout_size(path: Path, file: h5py.File) -> int | None:
    """Return the size of the image along the readout, where the file says it."""
    if "reconstruction_rss" in file:
        return int(file["reconstruction_rss"].shape[-2])
    if "ismrmrd_header" not in file:
        return None
    content = file["ismrmrd_header"][()]
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
    try:
        return parse_scan_header(text).encodings[0].recon.matrix[0]
    except GadgetError as error:
        raise ScanError(f"{path}: its ismrmrd_header cannot be used: {error}") from error


def _from_ismrmrd(path: Path, settings: Settings, n_slices: int | None, *, use_truth: bool) -> list[FullScan]:
    assembled = assembled_slices(path, settings)
    scans = []
    for index in middle(len(assembled), n_slices):
        one, kspace = assembled[index], assembled[index].kspace
        if isinstance(kspace, NonuniformKSpace):
            raise ScanError(f"{path} is not Cartesian; only full Cartesian scans will do here.")
        scans.append(
            _full_scan(
                path,
                index,
                len(assembled),
                kspace.samples,
                kspace.mask[0, 0],
                noise=(kspace.noise_std, noise_words(one)),
                reference=truth_of_slice(path, one) if use_truth else None,
            )
        )
    if not scans:
        raise ScanError(f"{path} holds no slice.")
    return scans


def _full_scan(
    path: Path,
    index: int,
    n_slices: int,
    samples: torch.Tensor,
    measured: torch.Tensor | None = None,
    *,
    noise: tuple[float, str] | None = None,
    reference: torch.Tensor | None = None,
) -> FullScan:
    """Check one slice, complex (1, coil, ky, kx), and cut off the outer lines that were never measured."""
    if not bool(torch.isfinite(torch.view_as_real(samples)).all()):
        raise ScanError(f"{path}, slice {index}: the k-space holds infinities or NaNs.")
    if measured is None:
        measured = (samples != 0).any(dim=1)[0]
    rows = _measured_block(measured.any(dim=1).numpy())
    columns = _measured_block(measured.any(dim=0).numpy())
    share = float(measured[rows, columns].float().mean()) if rows and columns else 0.0
    if not rows or not columns or share < 1:
        raise ScanError(
            f"{path}, slice {index}: only {100 * float(measured.float().mean()):.1f} % of k-space was "
            "measured. An evaluation leaves samples out and compares with the whole: give a fully sampled "
            "scan."
        )
    samples = samples[..., rows, columns].contiguous()
    if reference is not None and reference.shape[-2:] != samples.shape[-2:]:
        raise ScanError(
            f"{path}: the truth has {tuple(reference.shape[-2:])} pixels, the measured k-space "
            f"{tuple(samples.shape[-2:])}."
        )
    if noise is None:
        try:
            noise = corner_noise_std(samples[0].numpy()), FROM_CORNERS
        except ValueError as error:
            raise ScanError(f"{path}, slice {index}: {error}") from error
    return FullScan(
        name=path.stem if n_slices == 1 else f"{path.stem} slice {index}",
        samples=samples,
        noise_std=noise[0],
        noise_source=noise[1],
        reference=reference,
        reference_noise_std=noise[0] if reference is None else 0.0,
    )


def _measured_block(lines: NDArray[np.bool_]) -> slice | None:
    """Return the largest block round the centre line without the unmeasured lines at the ends.

    None where it would leave out a tenth of what was measured (as with partial Fourier) or nothing is there.
    """
    numbers = np.flatnonzero(lines)
    if not len(numbers):
        return None
    centre = len(lines) // 2
    below, above = centre - int(numbers[0]), int(numbers[-1]) - centre
    half = min(below, above + 1)
    n = max(2 * half, 2 * min(below, above) + 1)
    if n < SMALLEST_SHARE_KEPT * (above + below + 1):
        return None
    return slice(centre - n // 2, centre - n // 2 + n)


def with_corrected_reference(scan: FullScan) -> FullScan:
    """Return the scan with the root sum of squares of its samples less their noise floor as the reference.

    By the noise level that the scan states, so before noise is added (:func:`with_added_noise`); a level that
    is too large takes signal away. The reference's own noise stays that of the samples.

    Raises
    ------
    ScanError
        Not one pixel lies above the floor.
    """
    reference = root_sum_of_squares_without_floor(scan.coil_images(), scan.noise_std)
    if not float(reference.max()) > 0:
        raise ScanError(
            f"{scan.name}: no pixel lies above the floor of its noise level {scan.noise_std:.4g}, "
            f"{scan.noise_source}; the reference 'corrected' needs a level that fits the samples. Use the "
            "reference 'rss'."
        )
    return replace(scan, reference=reference, caution=_caution(scan))


def _caution(scan: FullScan) -> str:
    """Say why a scan's noise level may be no good one to take a floor off by."""
    if scan.noise_source == FROM_OUTERMOST:
        return (
            "the noise floor that was taken off the reference is an estimate: there are no noise readouts, "
            "and the outermost samples hold signal, too; compare with --reference rss"
        )
    outermost = _level_of_outermost(scan.samples)
    if scan.noise_source == FROM_CORNERS and scan.noise_std > LARGEST_DISAGREEMENT * outermost > 0:
        return (
            f"the noise floor that was taken off the reference is too high: in the corners of the image the "
            f"level is {scan.noise_std:.4g}, in the outermost samples {outermost:.4g}, so the corners hold "
            "signal; use --reference rss"
        )
    return ""


def _level_of_outermost(samples: torch.Tensor) -> float:
    """Estimate the noise level of complete k-space, complex (1, coil, ky, kx), from its outermost tenth."""
    n_kx = samples.shape[-1]
    n = max(1, n_kx // 20)
    edges = samples[0, ..., [*range(n), *range(n_kx - n, n_kx)]]
    return noise_std_from_edges(edges.transpose(0, 1).contiguous().numpy().astype(np.complex64))


def with_added_noise(scan: FullScan, share: float) -> FullScan:
    """Return the scan with noise added to its samples, up to ``share`` times the maximum of its image.

    The image is the root sum of squares of the samples, whatever the reference is, whose units may be others.
    That is the standard deviation per real component, the scan's own noise included; the reference stays as
    it was, with its own noise. White noise of a generator that is seeded by the samples is added.
    """
    combined = root_sum_of_squares(scan.coil_images())
    wanted, own = share * float(combined.max()), scan.noise_std
    if not wanted > own:
        raise ScanError(
            f"{scan.name} has noise of {own / float(combined.max()):.4f} of its maximum already, so none "
            f"can be added up to {share:g}; name a larger share."
        )
    seed = int.from_bytes(hashlib.sha256(scan.samples.numpy().tobytes()).digest()[:7], "little")
    generator = torch.Generator().manual_seed(seed)
    noise = torch.complex(*torch.randn(2, *scan.samples.shape, generator=generator))
    added = math.sqrt(wanted**2 - own**2)
    return replace(
        scan,
        samples=scan.samples + added * noise,
        fine_images=partial(finer, scan.samples),
        added_noise_std=added,
        noise_std=wanted,
        noise_source=f"added up to {share:g} of the maximum (before: {own:.4g}, {scan.noise_source})",
        reference=combined if scan.reference is None else scan.reference,
    )


def with_coil_maps(scan: FullScan, path: Path) -> FullScan:
    """Return the scan with given maps, complex .npy (coil, y, x), that stay fixed."""
    needed = tuple(scan.samples.shape[1:])
    maps = complex_array(path, f"coil maps are complex (coil, y, x), for {scan.name} {needed}")
    if maps.shape[0] != 1 or maps.shape[1:] != needed:
        raise FileError(
            f"{path} has the shape {maps.shape[1:] if maps.shape[0] == 1 else maps.shape}; the maps of "
            f"{scan.name} need (coil, y, x) = {needed}."
        )
    if not np.isfinite(maps).all() or not maps.any():
        raise FileError(f"{path} holds infinities or NaNs, or only zeros; coil maps are finite.")
    return replace(scan, coils=torch.from_numpy(maps.astype(np.complex64)))


def with_coil_of_one(scan: FullScan) -> FullScan:
    """Return a scan of a single coil with its map fixed at 1."""
    if scan.samples.shape[1] != 1:
        raise ScanError(
            f"coils: 'fixed' is for scans of a single coil, whose map is 1; {scan.name} has "
            f"{scan.samples.shape[1]} coils. Set coils to joint, or give --coil-maps."
        )
    return replace(scan, coils=torch.ones_like(scan.samples))


def with_names_of_their_own(scans: Sequence[FullScan]) -> list[FullScan]:
    """Number scans that have the same name: ``knee``, ``knee (2)``."""
    seen: dict[str, int] = {}
    named = []
    for scan in scans:
        seen[scan.name] = seen.get(scan.name, 0) + 1
        number = seen[scan.name]
        named.append(scan if number == 1 else replace(scan, name=f"{scan.name} ({number})"))
    return named
