"""Non-Cartesian scans of an object whose k-space is known in closed form: Gaussian spots."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from synthetic_scan import OBJECT, Spot

from gadget.scan.assemble import AssembledSlice, AssemblySettings, NoiseSource, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.scan.trajectory_choice import TrajectoryChoice
from gadget.trajectory_scan_writer import (
    NonCartesianReadouts,
    TrajectoryFileSettings,
    trajectory_acquisitions,
    trajectory_header_xml,
)
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition
from reconlib.simulation.nonuniform_settings import NonuniformSettings

MATRIX, FOV_MM = (40, 36), (200.0, 180.0)
"""Along (y, x)."""
WIDE = (48, 40)
"""With a margin of an eighth, even, with small prime factors."""
LARGER = 48 * 40 / (40 * 36)
UNWHITENED = AssemblySettings(
    noise=NoiseSource.PREWHITENED, trajectory=TrajectoryChoice(delay_correction=False)
)
CORRECTED = AssemblySettings(noise=NoiseSource.PREWHITENED)
"""With the correction of delays, which spots as few as two do not tell well."""
RADIAL = NonuniformSettings(n_readouts=64)
SPIRAL = NonuniformSettings(shape="spiral", n_readouts=12, n_full=12)
LAST_FLAGS = (
    Flag.LAST_IN_SLICE,
    Flag.LAST_IN_REPETITION,
    Flag.LAST_IN_MEASUREMENT,
    Flag.LAST_IN_ENCODE_STEP1,
)


def many_spots(n_coils: int = 6) -> tuple[Spot, ...]:
    """Return an object of many spots that each coil sees differently."""
    generator = np.random.default_rng(8)
    places = generator.uniform(-60, 60, (12, 2))
    amplitudes = generator.normal(size=(12, n_coils, 2)) @ np.array([1, 1j])
    return tuple(
        Spot(x=x, y=y, width=generator.uniform(5, 12), amplitudes=tuple(of_spot))
        for (x, y), of_spot in zip(places, amplitudes, strict=True)
    )


def transform_of(spots: Iterable[Spot], points: np.ndarray, fov_mm: tuple[float, float]) -> np.ndarray:
    """Return the Fourier transform (coil, readout, sample) at points in cycles per field of view, in mm^2."""
    kx, ky = points[..., 0] / fov_mm[1], points[..., 1] / fov_mm[0]
    total = 0
    for spot in spots:
        values = 2 * np.pi * spot.width**2 * np.exp(-2 * (np.pi * spot.width) ** 2 * (kx**2 + ky**2))
        values = values * np.exp(-2j * np.pi * (kx * spot.x + ky * spot.y))
        total = total + np.array(spot.amplitudes)[:, None, None] * values
    return total


def without_margin(image: np.ndarray) -> np.ndarray:
    """Return the middle (y, x) of an image on the wide grid."""
    (n_y, n_x), (wide_y, wide_x) = MATRIX, WIDE
    assert image.shape[-2:] == WIDE
    y, x = wide_y // 2 - n_y // 2, wide_x // 2 - n_x // 2
    return image[..., y : y + n_y, x : x + n_x]


def recorded(
    trajectory: NonuniformSettings | np.ndarray = RADIAL,
    spots: Iterable[Spot] = OBJECT,
    *,
    matrix: tuple[int, int] = MATRIX,
    fov_mm: tuple[float, float] = FOV_MM,
    really: np.ndarray | None = None,
    **fields: Any,
) -> NonCartesianReadouts:
    """Return a scan of spots whose samples have the scale of a unitary transform of the encoded grid.

    ``really`` are the points at which it is measured, where the scan's own are not these.
    """
    is_radial = isinstance(trajectory, NonuniformSettings) and trajectory.shape == "radial"
    points = trajectory.points(matrix, fov_mm) if isinstance(trajectory, NonuniformSettings) else trajectory
    oversampling = trajectory.oversampling if is_radial else 1.0
    pixel = fov_mm[0] / matrix[0] * fov_mm[1] / matrix[1]
    n_pixels = oversampling * matrix[0] * matrix[1]
    values = transform_of(spots, points if really is None else really, fov_mm)
    values = values / (pixel * np.sqrt(n_pixels))
    return NonCartesianReadouts(
        samples=values[None].astype(np.complex64),
        points=points,
        matrix=matrix,
        fov_mm=fov_mm,
        kind="radial" if is_radial else "spiral",
        oversampling=oversampling,
        centre=points.shape[1] // 2 if is_radial else 0,
        **fields,
    )


def sorter_of(
    scan: NonCartesianReadouts,
    settings: AssemblySettings = UNWHITENED,
    change: Callable[[str], str] = lambda xml: xml,
) -> SliceAssembler:
    """Return an assembler for a scan; ``change`` its header."""
    return SliceAssembler(parse_scan_header(change(trajectory_header_xml(scan))), settings)


def readouts(scan: NonCartesianReadouts, **settings: Any) -> list[Acquisition]:
    """Return the readouts of a scan as they are measured."""
    return list(trajectory_acquisitions(scan, TrajectoryFileSettings(**settings)))


def changed(readout: Acquisition, *flags: Flag, without: Iterable[Flag] = (), **fields: Any) -> Acquisition:
    """Return a readout with flags added and taken away, and header fields or counters changed."""
    header = np.array(readout.header.copy())
    header["flags"] |= np.uint64(sum(flag.bit for flag in flags))
    header["flags"] &= np.uint64(~sum(flag.bit for flag in without) & (2**64 - 1))
    for name, value in fields.items():
        target = header if name in (header.dtype.names or ()) else header["idx"]
        target[name] = value
    return replace(readout, header=header[()])


def unflagged(scan: NonCartesianReadouts, **fields: Any) -> list[Acquisition]:
    """Return the readouts without LAST flags."""
    return [changed(one, without=LAST_FLAGS, **fields) for one in readouts(scan)]


def assembled(
    scan: NonCartesianReadouts,
    acquisitions: Iterable[Acquisition] | None = None,
    settings: AssemblySettings = UNWHITENED,
    change: Callable[[str], str] = lambda xml: xml,
) -> list[AssembledSlice]:
    """Return all slices of a scan."""
    sorter = sorter_of(scan, settings, change)
    found = [
        one
        for readout in (readouts(scan) if acquisitions is None else acquisitions)
        for one in sorter.add(readout)
    ]
    found += sorter.finish()
    assert all(isinstance(one, AssembledSlice) for one in found)
    return found  # type: ignore[return-value]  # as just checked


def measured_phantom(data_folder: Path, name: str, kind: str) -> NonCartesianReadouts:
    """Return a measured phantom of the data folder; its field of view is not known, 300 mm is written."""
    file = np.load(data_folder / "kspace" / f"{name}.npz")
    n = int(file["shape"][0])
    return NonCartesianReadouts(
        samples=file["ksp"][None],
        points=file["coord"].astype(np.float64),
        matrix=(n, n),
        fov_mm=(300.0, 300.0),
        kind=kind,
        weights=file["dcf"].astype(np.float64) if "dcf" in file else None,
    )
