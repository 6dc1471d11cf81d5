"""Fully sampled scans to evaluate on: ISMRMRD files, fastMRI files, k-space arrays."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch

from gadget.errors import FileError, ScanError
from gadget.pipeline import assembly_settings
from gadget.scan.assemble import AssembledSlice, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.scan_file import open_scan, read_scan
from gadget.scan_writer import read_truth
from gadget.settings import Settings
from gadget.wire.messages import Acquisition, ScanHeader
from reconlib.evaluation.study import FullScan
from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.simulation.scan import corner_noise_std


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

    ``use_truth`` takes the noise-free truth that ``simulate`` stores as the reference.

    Raises
    ------
    GadgetError
        The file cannot be read, or its k-space is not fully sampled.
    """
    if path.suffix == ".npy":
        scans = list(_from_arrays(path, _array(path)))
    else:
        with open_scan(path) as file:
            is_fastmri = "kspace" in file and isinstance(file["kspace"], h5py.Dataset)
        scans = _from_fastmri(path) if is_fastmri else _from_ismrmrd(path, settings, use_truth=use_truth)
    if not scans:
        raise ScanError(f"{path} holds no slice.")
    if n_slices is not None and n_slices < len(scans):
        first = (len(scans) - n_slices) // 2
        scans = scans[first : first + n_slices]
    return scans


def _array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} is no .npy array: {error}") from error
    if not isinstance(array, np.ndarray) or not np.iscomplexobj(array) or array.ndim not in (3, 4):
        raise FileError(
            f"{path} is {array.dtype} of shape {array.shape}; k-space is complex with the axes "
            "(coil, ky, kx) or (slice, coil, ky, kx)."
        )
    return array.reshape(-1, *array.shape[-3:])


def _from_arrays(path: Path, kspace: np.ndarray) -> Iterator[FullScan]:
    for index, samples in enumerate(kspace.astype(np.complex64)):
        name = path.stem if len(kspace) == 1 else f"{path.stem} slice {index}"
        if not np.isfinite(samples).all():
            raise ScanError(f"{path}, slice {index}: the k-space holds infinities or NaNs.")
        _refuse_gaps(path, index, (samples != 0).any(axis=0))
        try:
            noise_std = corner_noise_std(samples)
        except ValueError as error:
            raise ScanError(f"{path}, slice {index}: {error}") from error
        yield FullScan(
            name=name,
            samples=torch.from_numpy(samples)[None],
            noise_std=noise_std,
            noise_source="from the corners of the image",
        )


def _from_fastmri(path: Path) -> list[FullScan]:
    with open_scan(path) as file:
        kspace = file["kspace"]
        if kspace.ndim != 4 or kspace.dtype.kind != "c":
            raise FileError(
                f"{path}: kspace is {kspace.dtype} of shape {kspace.shape}; multi-coil fastMRI data are "
                "complex (slice, coil, kx, ky)."
            )
        samples = torch.from_numpy(kspace[()].astype(np.complex64))
        n_read = samples.shape[-2]
        wanted = file["reconstruction_rss"].shape[-2] if "reconstruction_rss" in file else n_read
    if wanted < n_read:
        first = n_read // 2 - wanted // 2
        samples = fft2c(ifft2c(samples)[..., first : first + wanted, :])
    return list(_from_arrays(path, np.ascontiguousarray(samples.numpy().swapaxes(-1, -2))))


def _from_ismrmrd(path: Path, settings: Settings, *, use_truth: bool) -> list[FullScan]:
    assembler: SliceAssembler | None = None
    assembled: list[AssembledSlice] = []
    for message in read_scan(path):
        if isinstance(message, ScanHeader):
            assembler = SliceAssembler(parse_scan_header(message.text), assembly_settings(settings))
        elif isinstance(message, Acquisition) and assembler is not None:
            assembled += assembler.add(message)
    if assembler is not None:
        assembled += assembler.finish()
    truth = read_truth(path) if use_truth else None
    if use_truth and truth is None:
        raise ScanError(f"{path} has no truth beside it; only scans by `simulate` have.")
    scans = []
    for index, one in enumerate(assembled):
        _refuse_gaps(path, index, one.kspace.mask[0, 0].numpy())
        reference = None
        if truth is not None:
            reference = torch.from_numpy(truth.magnitude[one.context.slice].astype(np.float32))[None, None]
            if reference.shape[-2:] != one.kspace.samples.shape[-2:]:
                raise ScanError(
                    f"{path}: the truth has {tuple(reference.shape[-2:])} pixels, the assembled k-space "
                    f"{tuple(one.kspace.samples.shape[-2:])}."
                )
        whitened = any("prewhitened with" in note for note in one.context.notes)
        scans.append(
            FullScan(
                name=path.stem if len(assembled) == 1 else f"{path.stem} slice {index}",
                samples=one.kspace.samples,
                noise_std=one.kspace.noise_std,
                noise_source="from the noise readouts" if whitened else "from the outermost samples",
                reference=reference,
            )
        )
    return scans


def _refuse_gaps(path: Path, index: int, measured: np.ndarray) -> None:
    share = float(measured.mean())
    if share < 1:
        raise ScanError(
            f"{path}, slice {index}: only {100 * share:.1f} % of k-space was measured. An evaluation leaves "
            "samples out and compares with the whole: give a fully sampled scan."
        )


def with_coil_maps(scan: FullScan, path: Path) -> FullScan:
    """Return the scan with given maps, complex .npy (coil, y, x), that stay fixed."""
    maps = _array(path)
    if maps.shape[0] != 1 or maps.shape[1:] != tuple(scan.samples.shape[1:]):
        raise FileError(
            f"{path} has the shape {maps.shape[1:] if maps.shape[0] == 1 else maps.shape}; the maps of "
            f"{scan.name} need (coil, y, x) = {tuple(scan.samples.shape[1:])}."
        )
    return replace(scan, coils=torch.from_numpy(maps.astype(np.complex64)))
