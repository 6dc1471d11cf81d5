"""Write simulated scans as a scanner would have recorded them: ISMRMRD HDF5 files.

The truth of the simulation lies in the same file, in the group ``truth``, which ISMRMRD readers do not look
at.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from ismrmrd import hdf5
from numpy.typing import NDArray

from gadget.errors import FileError, SettingsError
from gadget.scan.header import DEFAULT_NOISE_BANDWIDTH
from gadget.scan_writer_header import ScanFileSettings, header_xml
from gadget.whole_file import refuse_existing, write_whole_file
from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.headers import AcquisitionFlag as Flag
from reconlib.simulation.scan import SimulatedScan, draw_noise

TRUTH_GROUP = "truth"
TICKS_PER_READOUT = 4
"""Of 2.5 ms each, in time stamps."""

Readout = tuple[Any, NDArray[np.complex64]]
"""Header record and samples (coil, sample)."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What a simulated scan is a scan of, as stored beside it."""

    image: NDArray[np.complex64]
    """(slice, y, x), in the units of k-space."""
    coils: NDArray[np.complex64]
    """(slice, coil, y, x), divided by their root-sum-of-squares."""
    noise_std: float
    """Per real component of the imaging samples, mean over the coils."""

    @property
    def magnitude(self) -> NDArray[np.float32]:
        """The image that a reconstruction should give, (slice, y, x)."""
        return np.abs(self.image)


def write_scan(
    path: Path,
    scan: SimulatedScan | Sequence[SimulatedScan],
    settings: ScanFileSettings = ScanFileSettings(),
    *,
    overwrite: bool = False,
) -> None:
    """Write a scan, or several as repetitions of one, into an ISMRMRD file that appears whole or not at all.

    The oversampled readouts hold the image with noise of the scan's covariance at both sides, as a receiver
    has it in its whole bandwidth; removing the oversampling gives the samples back exactly (apart from
    float32 rounding). Noise readouts come first; their noise has the scan's covariance, multiplied by the
    ratio of dwell times and by the receiver's noise bandwidth, which is what prewhitening divides by. Both
    go by ``settings.noise_seed``.
    """
    refuse_existing(path, overwrite=overwrite)
    scans = (scan,) if isinstance(scan, SimulatedScan) else tuple(scan)
    _check_repetitions(scans)
    readouts = list(_noise_readouts(scans[0], settings))
    generator = torch.Generator().manual_seed(settings.noise_seed + 4_000_037)
    for repetition, repeated in enumerate(scans):
        readouts += _repetition(repeated, repetition, settings, generator)
    _number(readouts)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        group = file.create_group(settings.group)
        xml = group.create_dataset("xml", shape=(1,), dtype=h5py.special_dtype(vlen=bytes))
        xml[0] = header_xml(scans[0], settings, n_repetitions=len(scans))
        group.create_dataset(
            "data", data=_as_stored(readouts), maxshape=(None,), dtype=hdf5.acquisition_dtype
        )
        if settings.store_truth:
            _store_truth(file, scans[0])
    write_whole_file(path, buffer.getbuffer(), overwrite=overwrite)


def read_truth(path: Path) -> Truth | None:
    """Read the truth that :func:`write_scan` stored; None where the file has none."""
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            if TRUTH_GROUP not in file:
                return None
            group = file[TRUTH_GROUP]
            return Truth(group["image"][()], group["coils"][()], float(group.attrs["noise_std"]))
    except (OSError, KeyError) as error:
        raise FileError(f"Cannot read the truth of {path}: {error}.") from error


def oversample_readout(
    samples: NDArray[np.complexfloating], factor: int, beside: NDArray[np.complexfloating] | None = None
) -> NDArray[np.complex64]:
    """Sample readouts (..., kx) more densely, by columns beside the image: unitary, centre to centre.

    ``beside`` (..., (factor - 1) kx) is what these hold, from left to right; None: zeros.
    """
    n_kx = samples.shape[-1]
    image = _shifted(np.fft.ifft, samples.astype(np.complex128))
    wide = np.zeros((*samples.shape[:-1], factor * n_kx), dtype=np.complex128)
    start = (factor * n_kx) // 2 - n_kx // 2
    wide[..., start : start + n_kx] = image
    if beside is not None:
        wide[..., :start] = beside[..., :start]
        wide[..., start + n_kx :] = beside[..., start:]
    return _shifted(np.fft.fft, wide).astype(np.complex64)


def _shifted(transform: Any, values: NDArray[np.complex128]) -> NDArray[np.complex128]:
    centred: NDArray[np.complex128] = np.fft.fftshift(
        transform(np.fft.ifftshift(values, axes=-1), axis=-1, norm="ortho"), axes=-1
    )
    return centred


def _check_repetitions(scans: tuple[SimulatedScan, ...]) -> None:
    if not scans:
        raise SettingsError("There is no scan to write; give at least one repetition.")
    shapes = {tuple(scan.kspace.samples.shape) for scan in scans}
    if len(shapes) > 1:
        raise SettingsError(f"Repetitions of one scan need one shape, but they have {sorted(shapes)}.")
    for scan in scans:
        mask = scan.kspace.mask
        if not bool((mask == mask[..., :1]).all()):
            raise SettingsError(
                "A scan file holds complete lines, but the mask has lines that are sampled in part."
            )
        if not bool(mask.any(dim=-1).any(dim=-1).all()):
            raise SettingsError("A slice has no measured line; a scan file cannot show that it exists.")


def _noise_readouts(scan: SimulatedScan, settings: ScanFileSettings) -> Iterator[Readout]:
    """Readouts without signal, as measured before the scan."""
    n_samples = scan.kspace.samples.shape[-1] * settings.readout_oversampling
    bandwidth = settings.relative_receiver_noise_bandwidth
    narrower = (
        settings.sample_time_us
        / settings.noise_dwell_us
        * (DEFAULT_NOISE_BANDWIDTH if bandwidth is None else bandwidth)
    )
    generator = torch.Generator().manual_seed(settings.noise_seed + 3_000_017)
    shape = (settings.n_noise_readouts, n_samples)
    noise = draw_noise(scan.noise_covariance * narrower, shape, generator).to(torch.complex64).numpy()
    for samples in noise.swapaxes(0, 1):
        header = _header(samples, scan, settings, 0)
        header["flags"] = Flag.IS_NOISE_MEASUREMENT.bit
        header["sample_time_us"] = settings.noise_dwell_us
        yield header, samples


def _repetition(
    scan: SimulatedScan, repetition: int, settings: ScanFileSettings, generator: torch.Generator
) -> list[Readout]:
    """Imaging readouts of one repetition, in the order in which they are measured."""
    n_slices, _, n_ky, n_kx = scan.kspace.samples.shape
    factor = settings.readout_oversampling
    beside = draw_noise(scan.noise_covariance, (n_slices, n_ky, (factor - 1) * n_kx), generator)
    samples = oversample_readout(scan.kspace.samples.numpy(), factor, beside.movedim(0, 1).numpy())
    lines_of = [np.flatnonzero(mask) for mask in scan.kspace.mask[:, 0, :, 0].numpy()]
    order = [(slice_, int(line)) for slice_, lines in enumerate(lines_of) for line in lines]
    if settings.interleave_slices:
        order.sort(key=lambda place: (place[1], place[0]))
    first_line = settings.first_line(scan)
    readouts: list[Readout] = []
    for slice_, line in order:
        header = _header(samples[slice_, :, line], scan, settings, slice_)
        header["idx"]["kspace_encode_step_1"] = line - first_line
        header["idx"]["slice"] = slice_
        header["idx"]["repetition"] = repetition
        if scan.calibration_lines[line]:
            header["flags"] |= Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING.bit
        if line == lines_of[slice_][0]:
            header["flags"] |= Flag.FIRST_IN_SLICE.bit | Flag.FIRST_IN_ENCODE_STEP1.bit
        if line == lines_of[slice_][-1]:
            header["flags"] |= Flag.LAST_IN_SLICE.bit | Flag.LAST_IN_ENCODE_STEP1.bit
        readouts.append((header, np.ascontiguousarray(samples[slice_, :, line])))
    readouts[0][0]["flags"] |= Flag.FIRST_IN_REPETITION.bit
    readouts[-1][0]["flags"] |= Flag.LAST_IN_REPETITION.bit
    return readouts


def _header(
    samples: NDArray[np.complex64], scan: SimulatedScan, settings: ScanFileSettings, slice_: int
) -> Any:
    """Header of one readout, without its counters; a zero-dimensional record."""
    n_coils, n_samples = samples.shape
    header = np.zeros((), dtype=ACQUISITION_HEADER)
    header["version"] = 1
    header["measurement_uid"] = settings.measurement_uid
    header["number_of_samples"] = n_samples
    header["available_channels"] = header["active_channels"] = n_coils
    for channel in range(n_coils):
        header["channel_mask"][channel // 64] |= np.uint64(1 << (channel % 64))
    header["center_sample"] = n_samples // 2
    header["sample_time_us"] = settings.sample_time_us
    header["position"] = (0.0, 0.0, scan.slice_positions_mm[slice_])
    # Patient coordinates (left, posterior, superior): the front is at the top, the patient's right at the
    # left.
    header["read_dir"] = (1.0, 0.0, 0.0)
    header["phase_dir"] = (0.0, 1.0, 0.0)
    header["slice_dir"] = (0.0, 0.0, 1.0)
    return header


def _number(readouts: list[Readout]) -> None:
    """Count the readouts, in number and time."""
    for number, (header, _) in enumerate(readouts):
        header["scan_counter"] = number
        header["acquisition_time_stamp"] = 16_000_000 + TICKS_PER_READOUT * number
    readouts[-1][0]["flags"] |= Flag.LAST_IN_MEASUREMENT.bit


def _as_stored(readouts: list[Readout]) -> NDArray[Any]:
    stored = np.empty(len(readouts), dtype=hdf5.acquisition_dtype)
    for place, (header, samples) in enumerate(readouts):
        stored["head"][place] = header[()]
        stored["traj"][place] = np.zeros(0, dtype=np.float32)
        stored["data"][place] = samples.reshape(-1).view(np.float32)
    return stored


def _store_truth(file: h5py.File, scan: SimulatedScan) -> None:
    group = file.create_group(TRUTH_GROUP)
    group.attrs["noise_std"] = scan.kspace.noise_std
    group.create_dataset("image", data=scan.truth[:, 0].numpy())
    group.create_dataset("coils", data=scan.coils.numpy())
