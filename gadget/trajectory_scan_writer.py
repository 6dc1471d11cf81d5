"""Write radial and spiral scans as a scanner would have recorded them: ISMRMRD HDF5 with trajectories.

The truth of a simulated scan lies in the same file, in the group ``truth``, as :mod:`gadget.scan_writer` has
it.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from ismrmrd import hdf5, xsd
from numpy.typing import NDArray

from gadget.errors import SettingsError
from gadget.scan.trajectory_units import TrajectoryUnits
from gadget.scan_writer import TICKS_PER_READOUT, TRUTH_GROUP
from gadget.scan_writer_header import counter_limit, space_of
from gadget.whole_file import refuse_existing, write_whole_file
from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition
from reconlib.simulation.nonuniform_scan import NonuniformScan
from reconlib.simulation.scan import draw_noise


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryFileSettings:
    """How a non-Cartesian scan is recorded."""

    group: str = "dataset"
    units: TrajectoryUnits = TrajectoryUnits.PER_PIXEL
    with_trajectory: bool = True
    """False: readouts without points, as for radial scans whose angles follow from the header."""
    n_noise_readouts: int = 32
    noise_seed: int = 1
    sample_time_us: float = 5.0
    protocol_name: str = "simulated"
    store_truth: bool = True

    def __post_init__(self) -> None:
        if self.units is TrajectoryUnits.AUTO:
            raise SettingsError("A trajectory is written in units; 'auto' is none, choose one of the others.")
        if self.n_noise_readouts < 0 or not self.sample_time_us > 0:
            raise SettingsError(
                f"A scan cannot have {self.n_noise_readouts} noise readouts and samples "
                f"{self.sample_time_us} us apart; needed are at least 0, and a positive time."
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NonCartesianReadouts:
    """What the readouts of a non-Cartesian scan hold, measured or simulated."""

    samples: NDArray[np.complex64]
    """(slice, coil, readout, sample)"""
    points: NDArray[np.float64]
    """(readout, sample, 2): (kx, ky) in cycles per field of view."""
    matrix: tuple[int, int]
    """(y, x)"""
    fov_mm: tuple[float, float]
    """(y, x)"""
    kind: str
    """The header's trajectory: 'radial', 'goldenangle', 'spiral' or 'other'."""
    oversampling: float = 1.0
    """Of the readouts: how many times larger the encoded field of view along x is."""
    centre: int = 0
    """``center_sample``"""
    description: str | None = None
    """Identifier of the ``trajectoryDescription``."""
    weights: NDArray[np.float64] | None = None
    """(readout, sample), written as a third column."""
    slice_positions_mm: tuple[float, ...] = (0.0,)
    slice_thickness_mm: float = 5.0
    noise_covariance: torch.Tensor | None = None
    """complex128 (coil, coil); None: no noise readouts are written."""


def readouts_of(scan: NonuniformScan) -> NonCartesianReadouts:
    """Return what the readouts of a simulated scan hold."""
    trajectory = scan.trajectory
    is_radial = trajectory.shape == "radial"
    kind = {(True, "golden"): "goldenangle", (True, "uniform"): "radial"}.get(
        (is_radial, trajectory.order), "spiral"
    )
    tiny = kind == "goldenangle" and trajectory.golden_number > 1
    return NonCartesianReadouts(
        samples=scan.samples.numpy(),
        points=scan.points,
        matrix=scan.matrix,
        fov_mm=scan.fov_mm,
        kind=kind,
        oversampling=trajectory.oversampling if is_radial else 1.0,
        centre=scan.points.shape[1] // 2 if is_radial else 0,
        description=f"TinyGoldenAngle{trajectory.golden_number}" if tiny else None,
        slice_positions_mm=scan.slice_positions_mm,
        slice_thickness_mm=scan.slice_thickness_mm,
        noise_covariance=scan.noise_covariance,
    )


def trajectory_acquisitions(
    readouts: NonCartesianReadouts, settings: TrajectoryFileSettings = TrajectoryFileSettings()
) -> Iterator[Acquisition]:
    """Yield the scan's readouts in the order in which they are measured: noise, then slice by slice."""
    n_slices, n_coils, n_readouts, n_samples = readouts.samples.shape
    columns = np.zeros((n_readouts, n_samples, 0))
    if settings.with_trajectory:
        columns = _columns(readouts, settings.units)
    number = 0
    for samples in _noise(readouts, settings):
        header = _header(readouts, settings, n_coils, n_samples, number)
        header["flags"] = Flag.IS_NOISE_MEASUREMENT.bit
        header["center_sample"] = 0
        yield Acquisition(header[()], np.zeros((n_samples, 0), np.float32), samples)
        number += 1
    for slice_ in range(n_slices):
        for row in range(n_readouts):
            header = _header(readouts, settings, n_coils, n_samples, number)
            header["position"] = (0.0, 0.0, readouts.slice_positions_mm[slice_])
            header["trajectory_dimensions"] = columns.shape[2]
            header["idx"]["kspace_encode_step_1"] = row
            header["idx"]["slice"] = slice_
            header["flags"] = (
                (Flag.FIRST_IN_SLICE.bit | Flag.FIRST_IN_ENCODE_STEP1.bit) * (row == 0)
                | (Flag.LAST_IN_SLICE.bit | Flag.LAST_IN_ENCODE_STEP1.bit) * (row == n_readouts - 1)
                | Flag.LAST_IN_MEASUREMENT.bit * (row == n_readouts - 1 and slice_ == n_slices - 1)
            )
            yield Acquisition(
                header[()],
                columns[row].astype(np.float32),
                np.ascontiguousarray(readouts.samples[slice_, :, row]),
            )
            number += 1


def trajectory_header_xml(
    readouts: NonCartesianReadouts, settings: TrajectoryFileSettings = TrajectoryFileSettings()
) -> str:
    """Return the ISMRMRD XML header of the scan; it names no person, place or date."""
    n_slices, n_coils, n_readouts, n_samples = readouts.samples.shape
    (n_y, n_x), (fov_y, fov_x) = readouts.matrix, readouts.fov_mm
    wide = round(readouts.oversampling * n_x)
    limits = {
        "kspace_encoding_step_0": counter_limit(n_samples, readouts.centre),
        "kspace_encoding_step_1": counter_limit(n_readouts),
        "slice": counter_limit(n_slices),
    }
    others = ("kspace_encoding_step_2", "average", "contrast", "phase", "repetition", "set", "segment")
    description = (
        None
        if readouts.description is None
        else xsd.trajectoryDescriptionType(identifier=readouts.description)
    )
    encoding = xsd.encodingType(
        encodedSpace=space_of(wide, n_y, fov_x * wide / n_x, fov_y, readouts.slice_thickness_mm),
        reconSpace=space_of(n_x, n_y, fov_x, fov_y, readouts.slice_thickness_mm),
        encodingLimits=xsd.encodingLimitsType(**limits, **{name: counter_limit(1) for name in others}),
        trajectory=xsd.trajectoryType(readouts.kind),
        trajectoryDescription=description,
    )
    header = xsd.ismrmrdHeader(
        version=1,
        measurementInformation=xsd.measurementInformationType(
            measurementID="1",
            patientPosition=xsd.patientPositionType.HFS,
            protocolName=settings.protocol_name,
        ),
        acquisitionSystemInformation=xsd.acquisitionSystemInformationType(
            systemVendor="gadgetron-ebm",
            systemModel="simulation",
            systemFieldStrength_T=3.0,
            relativeReceiverNoiseBandwidth=1.0,
            receiverChannels=n_coils,
            coilLabel=[xsd.coilLabelType(coilNumber=i, coilName=f"loop {i + 1}") for i in range(n_coils)],
        ),
        experimentalConditions=xsd.experimentalConditionsType(H1resonanceFrequency_Hz=127_728_000),
        encoding=[encoding],
        sequenceParameters=xsd.sequenceParametersType(TR=[10.0], TE=[4.0], flipAngle_deg=[12.0]),
    )
    xml: str = xsd.ToXML(header)
    return xml


def write_trajectory_scan(
    path: Path,
    scan: NonuniformScan | NonCartesianReadouts,
    settings: TrajectoryFileSettings = TrajectoryFileSettings(),
    *,
    overwrite: bool = False,
) -> None:
    """Write a scan, a simulated one with its truth, into an ISMRMRD file that appears whole or not at all."""
    refuse_existing(path, overwrite=overwrite)
    readouts = readouts_of(scan) if isinstance(scan, NonuniformScan) else scan
    acquisitions = list(trajectory_acquisitions(readouts, settings))
    stored = np.empty(len(acquisitions), dtype=hdf5.acquisition_dtype)
    for place, acquisition in enumerate(acquisitions):
        stored["head"][place] = acquisition.header
        stored["traj"][place] = acquisition.trajectory.reshape(-1)
        stored["data"][place] = acquisition.data.reshape(-1).view(np.float32)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        group = file.create_group(settings.group)
        xml = group.create_dataset("xml", shape=(1,), dtype=h5py.special_dtype(vlen=bytes))
        xml[0] = trajectory_header_xml(readouts, settings)
        group.create_dataset("data", data=stored, maxshape=(None,), dtype=hdf5.acquisition_dtype)
        if settings.store_truth and isinstance(scan, NonuniformScan):
            truth = file.create_group(TRUTH_GROUP)
            truth.attrs["noise_std"] = scan.noise_std
            truth.create_dataset("image", data=scan.truth[:, 0].numpy())
            truth.create_dataset("coils", data=scan.coils.numpy())
    write_whole_file(path, buffer.getbuffer(), overwrite=overwrite)


def _columns(readouts: NonCartesianReadouts, units: TrajectoryUnits) -> NDArray[np.float64]:
    """The trajectory as it is written, (readout, sample, column)."""
    (n_y, n_x), (fov_y, fov_x) = readouts.matrix, readouts.fov_mm
    per_fov = {
        TrajectoryUnits.PER_PIXEL: (1 / n_x, 1 / n_y),
        TrajectoryUnits.PER_FOV: (1.0, 1.0),
        TrajectoryUnits.PER_ENCODED_FOV: (round(readouts.oversampling * n_x) / n_x, 1.0),
        TrajectoryUnits.PER_METRE: (1000 / fov_x, 1000 / fov_y),
        TrajectoryUnits.RAD_PER_METRE: (2000 * np.pi / fov_x, 2000 * np.pi / fov_y),
    }
    points: NDArray[np.float64] = readouts.points * np.array(per_fov[units])
    if readouts.weights is None:
        return points
    return np.concatenate([points, readouts.weights[..., None]], axis=-1)


def _noise(
    readouts: NonCartesianReadouts, settings: TrajectoryFileSettings
) -> Iterator[NDArray[np.complex64]]:
    if readouts.noise_covariance is None or settings.n_noise_readouts == 0:
        return
    generator = torch.Generator().manual_seed(settings.noise_seed + 3_000_017)
    shape = (settings.n_noise_readouts, readouts.samples.shape[-1])
    noise = draw_noise(readouts.noise_covariance, shape, generator).to(torch.complex64).numpy()
    for samples in noise.swapaxes(0, 1):
        yield np.ascontiguousarray(samples)


def _header(
    readouts: NonCartesianReadouts,
    settings: TrajectoryFileSettings,
    n_coils: int,
    n_samples: int,
    number: int,
) -> Any:
    """Header of one readout, without its counters; a zero-dimensional record."""
    header = np.zeros((), dtype=ACQUISITION_HEADER)
    header["version"] = 1
    header["measurement_uid"] = 1
    header["scan_counter"] = number
    header["acquisition_time_stamp"] = 16_000_000 + TICKS_PER_READOUT * number
    header["number_of_samples"] = n_samples
    header["available_channels"] = header["active_channels"] = n_coils
    for channel in range(n_coils):
        header["channel_mask"][channel // 64] |= np.uint64(1 << (channel % 64))
    header["center_sample"] = readouts.centre
    header["sample_time_us"] = settings.sample_time_us
    # Patient coordinates (left, posterior, superior), as those of simulated Cartesian scans.
    header["read_dir"], header["phase_dir"], header["slice_dir"] = (1, 0, 0), (0, 1, 0), (0, 0, 1)
    return header
