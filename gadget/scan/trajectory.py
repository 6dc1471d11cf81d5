"""The trajectory of a slice's non-Cartesian readouts: checked, in one kind of units, built where missing.

The rules on what a readout's trajectory holds, beyond those on units (:mod:`gadget.scan.trajectory_units`):

* **Two columns** are kx and ky, along the readout's and the phase-encoding direction of the slice.
* **A third column** is kz, or a density weight: the standard leaves it open. Of zeros it is kz of a 2-D scan.
  Where it is constant in each readout of a 3-D scan (limits of kspace_encoding_step_2) it is kz of a stack of
  stars or spirals, whose partitions ``kspace_encode_step_2`` counts. Where it is nowhere negative it is a
  density weight, as Gadgetron's gadgets write it. Else it is kz that varies along the readouts: a 3-D
  trajectory (kooshball), which is not supported. A **fourth** column is the weight, the third then kz.
* **No columns**, or nothing but zeros: not there. Plain radial trajectories are built from the header
  (:mod:`gadget.scan.trajectory_built`).
* **Discarded samples** (``discard_pre``, ``discard_post``) are left out.
* **Too few readouts**: the samples must touch 4 % of the cells of k-space, one cycle per field of view wide,
  in the disc (or band) that the header announces.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError
from gadget.scan.header import Encoding
from gadget.scan.trajectory_built import built_points
from gadget.scan.trajectory_description import NO_DESCRIPTION, TrajectoryDescription
from gadget.scan.trajectory_grid import TrajectoryGrid, trajectory_grid
from gadget.scan.trajectory_units import (
    TrajectoryUnits,
    cycles_per_fov,
    recognised_units,
    refuse_overshoot,
    within_the_edge,
)
from gadget.wire.messages import Acquisition
from reconlib.trajectories.radial import SpokeGeometry, SpokeShift, spoke_geometry
from reconlib.trajectories.spoke_phase import spoke_phases
from reconlib.trajectories.spoke_shift import estimate_shift

SMALLEST_COVERAGE = 0.04
"""Share of the cells of k-space that samples must touch."""
SMALLEST_SHIFT = 0.02
"""Shifts of spokes below this, in samples, are left alone."""
SMALLEST_PHASE = 0.02
"""Phases of spokes whose root mean square is below this, in rad, are left alone."""


class TooFewReadouts(ScanError):
    """A slice's readouts touch too little of k-space for an image."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SliceTrajectory:
    """Where the samples of a slice's readouts lie. Samples are in the order of acquisition."""

    points: NDArray[np.float64]
    """(readout, sample, 2): (kx, ky) in cycles per field of view of the grid, within the edge of k-space."""
    stated: NDArray[np.float64]
    """The same as the readouts state them."""
    kept: NDArray[np.bool_]
    """(readout, sample): false for samples that are to be left out."""
    weights: NDArray[np.float64] | None
    """Density weights of the scan, (readout, sample), not scaled; None where it has none."""
    grid: TrajectoryGrid
    units: TrajectoryUnits
    """Those of the readouts; AUTO where the trajectory was built."""
    coverage: float
    """Share of the cells, one cycle per field of view wide, of the disc of k-space that samples reach."""
    notes: tuple[str, ...]
    """How it was read, for the log and the image's meta."""
    warnings: tuple[str, ...] = ()
    """Those of the notes that say where header and readouts disagree, or are in doubt."""

    @property
    def is_built(self) -> bool:
        """Whether the readouts had no trajectory of their own."""
        return self.units is TrajectoryUnits.AUTO

    def geometry(self) -> SpokeGeometry | None:
        """Return the geometry of spokes, in cycles per field of view along x; None where they are none."""
        return spoke_geometry(self.stated * self.to_square)

    @property
    def to_square(self) -> NDArray[np.float64]:
        """What points are multiplied by to be in cycles per the field of view along x, (2,)."""
        return np.array([1.0, self.grid.fov_mm[0] / self.grid.fov_mm[1]])


def slice_trajectory(
    readouts: Sequence[Acquisition],
    encoding: Encoding,
    *,
    units: TrajectoryUnits = TrajectoryUnits.AUTO,
    description: TrajectoryDescription = NO_DESCRIPTION,
) -> SliceTrajectory:
    """Read the trajectory of the readouts of a slice (or partition, or frame) by the rules above.

    ``units`` are those of the configuration, or those that an earlier slice of the scan was found to have.

    Raises
    ------
    TooFewReadouts
    ScanError
        The trajectory is faulty, or of a kind that is not supported.
    """
    if not readouts:
        raise ScanError("A slice has no readouts, so it has no trajectory.")
    n_samples = _checked_samples(readouts)
    columns = _columns(readouts)
    grid = trajectory_grid(encoding)
    notes = grid.notes
    weights, warning = None, ""
    if columns is None:
        points, said = built_points(
            [readout.header for readout in readouts], n_samples, encoding, grid, description
        )
        units, notes = TrajectoryUnits.AUTO, (*notes, *said)
    else:
        raw, weights, said = _kinds_of_columns(columns, encoding)
        if units is TrajectoryUnits.AUTO:
            units, doubt = recognised_units(raw, grid, encoding)
            warning = doubt or ""
        points = raw * cycles_per_fov(units, grid, encoding)
        read = f"trajectory in {units.words}"
        notes = (*notes, read, *said, *([warning] if warning else []))
    refuse_overshoot(points, grid, units)
    stated = points
    points, kept, cut = within_the_edge(stated, grid)
    notes = (*notes, *([cut] if cut else []))
    for row, readout in enumerate(readouts):
        kept[row, : int(readout.header["discard_pre"])] = False
        kept[row, n_samples - int(readout.header["discard_post"]) :] = False
    coverage = _checked_coverage(points[kept], grid, len(readouts))
    return SliceTrajectory(
        points=points,
        stated=stated,
        kept=kept,
        weights=weights,
        grid=grid,
        coverage=coverage,
        units=units,
        notes=notes,
        warnings=tuple(one for one in (*grid.notes, warning, cut) if one),
    )


def corrected_for_delays(
    trajectory: SliceTrajectory, samples: NDArray[np.complexfloating]
) -> SliceTrajectory:
    """Shift radial spokes to where the samples (coil, readout, sample) say that they lie.

    Other trajectories come back as they are; so do spokes that :func:`delays_of` finds no shift of, with a
    note.
    """
    shift, note = delays_of(trajectory, samples)
    if shift is not None:
        trajectory = shifted(trajectory, shift)
    return replace(trajectory, notes=(*trajectory.notes, note)) if note else trajectory


def delays_of(
    trajectory: SliceTrajectory, samples: NDArray[np.complexfloating]
) -> tuple[SpokeShift | None, str | None]:
    """Find the shift of radial spokes that gradient delays leave.

    See :mod:`reconlib.trajectories.spoke_shift`.

    Returns
    -------
    shift, note
        None and why where it cannot be told for sure, or is below 0.02 samples; None and None for readouts
        that are no full spokes, or of which no two cross at an angle.
    """
    geometry = trajectory.geometry()
    estimate = None if geometry is None else estimate_shift(samples, geometry)
    if estimate is None:
        return None, None
    shift = estimate.shift
    found = f"{shift.xx:.3f} (x), {shift.yy:.3f} (y) and {shift.xy:.3f} (askew) samples"
    if not estimate.is_sure:
        return None, (
            f"gradient delays not corrected: the spokes' crossings ({estimate.n_crossings}) agree on shifts "
            f"of {found} only to {estimate.misfit:.2f} samples"
        )
    if estimate.size < SMALLEST_SHIFT:
        return None, (
            f"no gradient delays to correct: spokes lie within {SMALLEST_SHIFT} samples of where they should"
        )
    return shift, f"gradient delays corrected: spokes shifted by {found}"


def shifted(trajectory: SliceTrajectory, shift: SpokeShift) -> SliceTrajectory:
    """Return radial spokes shifted, as by the delays that another slice or frame was found to have.

    Raises
    ------
    ValueError
        The readouts are no full spokes.
    """
    geometry = trajectory.geometry()
    if geometry is None:
        raise ValueError("Only full radial spokes have a shift; these readouts are none.")
    moved = geometry.spacing * (geometry.directions @ shift.matrix)[:, None] / trajectory.to_square
    stated = trajectory.stated + moved
    points, kept, _ = within_the_edge(stated, trajectory.grid)
    return replace(trajectory, points=points, stated=stated, kept=trajectory.kept & kept)


def phases_of(
    trajectory: SliceTrajectory, samples: NDArray[np.complexfloating]
) -> tuple[NDArray[np.float64] | None, str | None]:
    """Find the phases that radial spokes have of their own, from samples (coil, readout, sample).

    See :mod:`reconlib.trajectories.spoke_phase`.

    Returns
    -------
    phases, note
        In rad, (readout,), and what was found; None and None for readouts that are no full spokes, and where
        the root mean square is below 0.02 rad.
    """
    geometry = trajectory.geometry()
    if geometry is None:
        return None, None
    phases = spoke_phases(samples, geometry)
    spread = float(np.sqrt(np.square(phases).mean()))
    if spread < SMALLEST_PHASE:
        return None, None
    return phases, (
        f"phases of spokes corrected where they cross: {spread:.2f} rad (root mean square), at most "
        f"{float(np.abs(phases).max()):.2f} rad"
    )


def _checked_samples(readouts: Sequence[Acquisition]) -> int:
    """Return the number of samples, which all readouts share, each with as many points or none."""
    n_samples: int = readouts[0].data.shape[1]
    for readout in readouts:
        n_data, n_points = readout.data.shape[1], readout.trajectory.shape[0]
        if readout.trajectory.shape[1] == 0:
            n_points = n_data
        number = int(readout.header["scan_counter"])
        if n_points == 2 * n_data:
            raise ScanError(
                f"Readout {number} has {n_data} samples and {n_points} points of its trajectory: the readout "
                "oversampling was removed from the samples only, as Gadgetron's RemoveROOversamplingGadget "
                "does. Take that gadget out of the chain, or put this program before it."
            )
        if n_points != n_data:
            raise ScanError(
                f"Readout {number} has {n_data} samples, but {n_points} points of its trajectory; there must "
                "be one for each. Check the converter."
            )
        if n_data != n_samples:
            raise ScanError(
                f"Readout {number} has {n_data} samples, and others of its slice have {n_samples}; readouts "
                "of a non-Cartesian slice must have one length."
            )
    return n_samples


def _columns(readouts: Sequence[Acquisition]) -> NDArray[np.float64] | None:
    """Return the trajectories (readout, sample, column), checked; None where there are none."""
    dimensions = {readout.trajectory.shape[1] for readout in readouts}
    if len(dimensions) > 1:
        raise ScanError(
            f"Readouts of one slice have trajectories of {' and '.join(map(str, sorted(dimensions)))} "
            "dimensions; they must have one kind."
        )
    (n_columns,) = dimensions
    if n_columns == 0:
        return None
    if n_columns not in (2, 3, 4):
        raise ScanError(
            f"The trajectory has {n_columns} dimension(s); needed are 2 (kx, ky), 3 (and kz, or a density "
            "weight) or 4 (both)."
        )
    columns = np.stack([readout.trajectory for readout in readouts]).astype(np.float64)
    finite = np.isfinite(columns).all(axis=(1, 2))
    if not finite.all():
        first = int(readouts[int(np.argmin(finite))].header["scan_counter"])
        raise ScanError(
            f"The trajectory has NaN or infinite values in {int((~finite).sum())} of {len(readouts)} "
            f"readouts, first in readout {first}. Check the converter."
        )
    return columns if columns[..., :2].any() else None


def _kinds_of_columns(
    columns: NDArray[np.float64], encoding: Encoding
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, tuple[str, ...]]:
    """Tell points, weights and what is to be noted."""
    points, n_columns = columns[..., :2], columns.shape[2]
    weights = columns[..., 3] if n_columns == 4 else None
    notes: tuple[str, ...] = ()
    if n_columns >= 3 and columns[..., 2].any():
        third = columns[..., 2]
        is_constant = bool(np.ptp(third, axis=1).max() <= 1e-3 * np.abs(third).max())
        if encoding.announces_partitions and is_constant:
            notes = ("third dimension of the trajectory taken as kz of a stack",)
        elif n_columns == 3 and third.min() >= 0:
            weights, notes = third, ("third dimension of the trajectory taken as density weights",)
        else:
            raise ScanError(
                f"The third dimension of the trajectory goes from {third.min():.6g} to {third.max():.6g}, "
                "along readouts: a three-dimensional trajectory (kooshball, cones, ...), which is not "
                "supported. Supported are two-dimensional trajectories and stacks of them, with kz constant "
                "in each readout and limits of kspace_encoding_step_2; density weights must not be negative."
            )
    if weights is not None and (weights.min() < 0 or not weights.any()):
        raise ScanError(
            f"The density weights of the trajectory go from {weights.min():.6g} to {weights.max():.6g}; they "
            "must not be negative, nor all zero."
        )
    return points, weights, notes


def _checked_coverage(points: NDArray[np.float64], grid: TrajectoryGrid, n_readouts: int) -> float:
    """Return the share of the disc that the readouts reach that they touch; refuse too little of k-space."""
    n_x, n_y = grid.matrix
    cells = np.unique(np.round(points).astype(np.int64) @ np.array([1, 4 * n_x])).size
    coverage = cells / (np.pi / 4 * n_x * n_y)
    if coverage < SMALLEST_COVERAGE:
        raise TooFewReadouts(
            f"{n_readouts} readout(s) touch {100 * coverage:.1f} % of the k-space of {n_x} x {n_y} pixels; "
            f"at least {100 * SMALLEST_COVERAGE:.0f} % are needed for an image. The scan has too few "
            "readouts, or they were split over slices, repetitions or other counters that should be one "
            "image."
        )
    fov = np.array(grid.fov_mm)
    furthest = float(np.linalg.norm(points / fov, axis=-1).max())  # in cycles per mm: whatever the pixels
    reached = math.prod(np.minimum(furthest * fov, np.array(grid.matrix) / 2).tolist())
    return float(min(cells / (np.pi * reached), 1.0))
