"""The units of a trajectory, which the ISMRMRD standard leaves open, and points beyond the edge of k-space.

The edge is at half a cycle per pixel of the grid (:mod:`gadget.scan.trajectory_grid`). The *reach* of a
trajectory in some units is how far it goes along x or y, whichever is more, in parts of the way to the edge.
The rules, where the configuration does not say the units (``trajectory.units``):

* Those units are taken in which the reach is from 0.6 to 1.05: the readouts cover the band that the header
  announces. Of several, those count less in which the reach along one axis is more than 1.5 times that along
  the other (an encoded field of view that is oversampled along x). Of several still, the one with a reach of
  at least 0.9 is taken, with a warning, if it is the only one.
* If there are none, those with a reach from 0.2 to 0.6 are taken, with a warning, if they are the only ones
  below 2: a scan of lower resolution than announced.
* Else the scan is refused: the units must be said.

Points up to half a cycle per field of view beyond the edge (rounding, or a shift by a fraction of a sample)
are moved to it. Samples further out, up to a reach of 1.05, are cut off: pixels cannot show what they
measure. A reach above 1.05 is refused.
"""

import math
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError
from gadget.scan.header import Encoding
from gadget.scan.trajectory_grid import TrajectoryGrid

LARGEST_REACH = 1.05
FULL_REACH = 0.6
SMALLEST_REACH = 0.2
SURE_REACH = 0.9
MOST_UNLIKE = 1.5
MOVED_CYCLES = 0.5
"""How far beyond the edge points are moved back, in cycles per field of view."""


class TrajectoryUnits(Enum):
    """What the numbers of a trajectory are; the values are those of the configuration."""

    AUTO = "auto"
    """Recognised by the rules above."""
    PER_PIXEL = "cycles_per_pixel"
    """From -0.5 to 0.5, as Gadgetron and most writers have it."""
    PER_FOV = "cycles_per_fov"
    """Of the reconstructed field of view; from -n / 2 to n / 2."""
    PER_ENCODED_FOV = "cycles_per_encoded_fov"
    """Of the encoded field of view, which readout oversampling makes larger."""
    PER_METRE = "cycles_per_m"
    """1/m"""
    RAD_PER_METRE = "rad_per_m"
    """rad/m"""

    @property
    def words(self) -> str:
        """The name for a message."""
        return _WORDS[self]


_WORDS = {
    TrajectoryUnits.AUTO: "units to be recognised",
    TrajectoryUnits.PER_PIXEL: "cycles per pixel",
    TrajectoryUnits.PER_FOV: "cycles per field of view",
    TrajectoryUnits.PER_ENCODED_FOV: "cycles per encoded field of view",
    TrajectoryUnits.PER_METRE: "1/m",
    TrajectoryUnits.RAD_PER_METRE: "rad/m",
}


def cycles_per_fov(units: TrajectoryUnits, grid: TrajectoryGrid, encoding: Encoding) -> NDArray[np.float64]:
    """Return what points (kx, ky) in these units are multiplied by, (2,)."""
    fov_m = np.array(grid.fov_mm, np.float64) / 1000
    if units is TrajectoryUnits.PER_PIXEL:
        return np.array(grid.matrix, np.float64)
    if units is TrajectoryUnits.PER_FOV:
        return np.ones(2)
    if units is TrajectoryUnits.PER_ENCODED_FOV:
        encoded_m = np.array(encoding.encoded.fov_mm[:2], np.float64) / 1000
        ratio: NDArray[np.float64] = fov_m / encoded_m
        return ratio
    if units is TrajectoryUnits.PER_METRE:
        return fov_m
    if units is TrajectoryUnits.RAD_PER_METRE:
        return np.asarray(fov_m / (2 * math.pi), np.float64)
    raise ValueError(f"Points in {units.words} have no scale; recognise the units first.")


def recognised_units(
    points: NDArray[np.float64], grid: TrajectoryGrid, encoding: Encoding
) -> tuple[TrajectoryUnits, str | None]:
    """Recognise the units of the points (..., 2) of a scan's readouts; the more readouts, the surer.

    Returns
    -------
    units, warning
        The warning is None where the rules leave no doubt.

    Raises
    ------
    ScanError
        No units fit, or several do.
    """
    along = _reaches(points, grid, encoding)
    reaches = {units: max(reach) for units, reach in along.items()}
    fitting = [units for units, reach in reaches.items() if FULL_REACH <= reach <= LARGEST_REACH]
    alike = [units for units in fitting if max(along[units]) <= MOST_UNLIKE * min(along[units])]
    fitting = alike or fitting
    if len(fitting) == 1:
        return fitting[0], None
    sure = [units for units in fitting if reaches[units] >= SURE_REACH]
    if len(sure) == 1:
        others = " or ".join(units.words for units in fitting if units is not sure[0])
        return sure[0], (
            f"trajectory taken as {sure[0].words}, with which it reaches the edge of k-space; it could be "
            f"{others}, too. If so, set trajectory.units"
        )
    low = [units for units, reach in reaches.items() if SMALLEST_REACH <= reach <= 2]
    if not fitting and len(low) == 1 and reaches[low[0]] < FULL_REACH:
        return low[0], (
            f"trajectory taken as {low[0].words}, in which it reaches only {100 * reaches[low[0]]:.0f} % of "
            "the way to the edge of k-space that the header announces. If it is anything else, set "
            "trajectory.units"
        )
    said = ", ".join(f"{units.words}: {reach:.3g}" for units, reach in reaches.items())
    problem = "fits several units" if fitting else "fits no units"
    raise ScanError(
        f"{_range_of(points)} {problem}. Its reach, in parts of the way to the edge of k-space of "
        f"{grid.matrix[0]} x {grid.matrix[1]} pixels over {grid.fov_mm[0]:g} x {grid.fov_mm[1]:g} mm, would "
        f"be {said}; needed is one of {FULL_REACH} to {LARGEST_REACH}. Check matrix and field of view of "
        "encodedSpace and reconSpace, or set trajectory.units to one of "
        f"{', '.join(units.value for units in reaches)}."
    )


def refuse_overshoot(points: NDArray[np.float64], grid: TrajectoryGrid, units: TrajectoryUnits) -> None:
    """Refuse points (..., 2) in cycles per field of view that reach beyond the edge by more than is cut off.

    Raises
    ------
    ScanError
        They do; with their minimum and maximum.
    """
    edge = np.array(grid.matrix, np.float64) / 2
    if (np.abs(points) / edge).max(initial=0.0) > LARGEST_REACH + 1e-9:
        raise ScanError(
            f"{_range_of(points)} in cycles per field of view (read as {units.words}) goes beyond the edge "
            f"of k-space, which is at {edge[0]:g} and {edge[1]:g} for {grid.matrix[0]} x {grid.matrix[1]} "
            f"pixels. Up to {100 * (LARGEST_REACH - 1):.0f} % too far is cut off, not more. Check the matrix "
            "and the field of view in the header, or set trajectory.units."
        )


def within_the_edge(
    points: NDArray[np.float64], grid: TrajectoryGrid
) -> tuple[NDArray[np.float64], NDArray[np.bool_], str | None]:
    """Return points (..., 2), in cycles per field of view, within the edge, which stay, and a warning."""
    edge = np.array(grid.matrix, np.float64) / 2
    beyond = np.abs(points) - edge
    kept = np.asarray((beyond <= MOVED_CYCLES).all(axis=-1), np.bool_)
    clipped: NDArray[np.float64] = np.clip(points, -edge, edge)
    n_cut = int(kept.size - kept.sum())
    warning = None
    if n_cut:
        warning = (
            f"{n_cut} of {kept.size} samples lie up to {beyond.max():.3g} cycles per field of view beyond "
            "the edge of k-space that the header announces: cut off"
        )
    return clipped, kept, warning


def _reaches(
    points: NDArray[np.float64], grid: TrajectoryGrid, encoding: Encoding
) -> dict[TrajectoryUnits, tuple[float, float]]:
    """Reach along x and y by units; of units that are the same here, only the first."""
    farthest = np.abs(points.reshape(-1, 2)).max(axis=0) / (np.array(grid.matrix) / 2)
    reaches: dict[TrajectoryUnits, tuple[float, float]] = {}
    for units in TrajectoryUnits:
        if units is TrajectoryUnits.AUTO:
            continue
        x, y = (farthest * cycles_per_fov(units, grid, encoding)).tolist()
        if not any(np.allclose((x, y), other, rtol=0.01, atol=0) for other in reaches.values()):
            reaches[units] = x, y
    return reaches


def _range_of(points: NDArray[np.float64]) -> str:
    flat = points.reshape(-1, 2)
    low, high = flat.min(axis=0), flat.max(axis=0)
    return f"The trajectory (kx from {low[0]:.6g} to {high[0]:.6g}, ky from {low[1]:.6g} to {high[1]:.6g})"
