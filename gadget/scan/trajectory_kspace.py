"""From the readouts of a non-Cartesian slice, stack or frame to k-space that can be reconstructed.

The rules, beyond those on trajectories (:mod:`gadget.scan.trajectory`) and coils
(:mod:`gadget.scan.receiver`):

* **Once per scan**: the units of the trajectories, found from the first image of an encoding; the shift of
  radial spokes by gradient delays, found from the first image of an encoding in each orientation, from
  whitened samples (of a stack those of its central partition).
* **Phases of radial spokes** that eddy currents and drift leave are found and corrected in each image (of a
  stack from its central partition), where delays are corrected.
* **Units of the samples**: those of a Cartesian scan of the encoded field of view, so that one that is
  recorded with trajectories gives the image that it gives without. As A has the scale of the unitary
  transform on its own grid, samples (and their noise) are multiplied by the root of the ratio of the areas,
  encoded field of view over that of the grid.
* **Margin**: the grid is a little wider than the field of view (:mod:`gadget.scan.trajectory_margin`).
* **Stacks** (limits of ``kspace_encoding_step_2``): all partitions have one trajectory; k-space is
  transformed along the stack, as that of a Cartesian slab (:mod:`gadget.scan.volume_partitions`), and each
  partition is a slice.
* **Noise**, where it has to be estimated: from the eighth of k-space that is farthest from its centre, and
  for full spokes beside the object in its projections (:mod:`gadget.scan.noise_estimate`).
"""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gadget.errors import ScanError
from gadget.scan.assembled import AssembledSlice
from gadget.scan.context import ScanContext
from gadget.scan.describe import as_notes, scan_context
from gadget.scan.fit_axis import fit_axis
from gadget.scan.header import Encoding, ScanDescription
from gadget.scan.noise import NoiseSource, noise_std_from_edges
from gadget.scan.noise_estimate import noise_std_from_data
from gadget.scan.noise_level import noise_level
from gadget.scan.open_slice import SliceKey
from gadget.scan.open_trajectory import by_partition, common_dwell, in_order, middle_header
from gadget.scan.receiver import Receiver
from gadget.scan.trajectory import SliceTrajectory, delays_of, phases_of, shifted, slice_trajectory
from gadget.scan.trajectory_choice import TrajectoryChoice
from gadget.scan.trajectory_grid import TrajectoryGrid
from gadget.scan.trajectory_margin import with_margin
from gadget.scan.trajectory_units import TrajectoryUnits
from gadget.scan.volume_partitions import partition_contexts, partition_grid, transformed
from gadget.wire.messages import Acquisition, Header
from reconlib.kspace import NonuniformKSpace
from reconlib.trajectories.coordinates import transform_points
from reconlib.trajectories.density import density_weights
from reconlib.trajectories.radial import SpokeShift

FAR_PART = 0.875
"""Samples beyond this part of the way to the farthest one tell the noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadoutGroup:
    """The readouts of one image or stack, and what is known of them."""

    key: SliceKey
    encoding: Encoding
    readouts: list[Acquisition]
    n_announced: int = 0
    """Readouts that the header announces; 0 where it does not say."""
    n_averages: int = 1
    is_complete: bool = True
    notes: tuple[str, ...] = ()
    series: Hashable | None = None
    """That of :class:`~gadget.scan.assembled.AssembledSlice`."""

    @property
    def label(self) -> str:
        """A short name for messages."""
        return f"slice {self.key.slice}" + (
            f", repetition {self.key.repetition}" if self.key.repetition else ""
        )


class TrajectoryKSpace:
    """Makes k-space from readouts; keeps what is found once per scan."""

    def __init__(
        self,
        description: ScanDescription,
        receiver: Receiver,
        source: NoiseSource,
        choice: TrajectoryChoice,
    ) -> None:
        self._description = description
        self._receiver = receiver
        self._source = source
        self._choice = choice
        self._units: dict[int, TrajectoryUnits] = {}
        self._shifts: dict[Hashable, tuple[SpokeShift | None, str | None]] = {}
        self._weighed: tuple[SliceTrajectory, NDArray[np.float64]] | None = None

    def slices(self, group: ReadoutGroup) -> tuple[AssembledSlice, ...]:
        """Assemble an image, or the partitions of a stack.

        Raises
        ------
        TooFewReadouts
        ScanError
            The readouts are faulty or of a kind that is not supported.
        """
        encoding, label = group.encoding, group.label
        partitions = by_partition(in_order(group.readouts), encoding, label)
        trajectory = self._trajectory(partitions, encoding, label)
        coil_map = self._receiver.coil_map(group.key, common_dwell(group.readouts, label))
        samples = np.stack([np.stack([one.data for one in readouts], 1) for readouts in partitions], 1)
        if coil_map.matrix is not None:
            mixed = coil_map.matrix.astype(np.complex64) @ samples.reshape(samples.shape[0], -1)
            samples = mixed.reshape(-1, *samples.shape[1:])
        noise_std, noise_notes = noise_level(
            self._source,
            coil_map,
            self._receiver.why_no_noise,
            known=1.0,
            estimate=lambda: _noise_std(samples[:, samples.shape[1] // 2], trajectory),
            samples=samples,
        )
        header = middle_header(partitions[len(partitions) // 2])
        trajectory, delay_notes = self._corrected(trajectory, samples, encoding, header)
        samples, phase_notes = self._in_phase(trajectory, samples)
        grid = with_margin(trajectory.grid, trajectory.points[trajectory.kept])
        samples, coil_map = self._receiver.compressed((encoding.index, group.key.slice), samples, coil_map)
        context = self._context(
            group,
            header,
            trajectory,
            grid,
            n_partitions=len(partitions),
            n_coils=samples.shape[0],
            is_prewhitened=coil_map.is_white,
            notes=(*delay_notes, *phase_notes, *coil_map.notes, *noise_notes),
        )
        return tuple(self._made(group, context, trajectory, grid, samples, noise_std))

    def _trajectory(
        self, partitions: list[list[Acquisition]], encoding: Encoding, label: str
    ) -> SliceTrajectory:
        """Read the trajectory that all partitions have."""
        units = self._units.get(encoding.index, self._choice.units)
        description = encoding.trajectory_description
        first = slice_trajectory(partitions[0], encoding, units=units, description=description)
        if not first.is_built:
            self._units[encoding.index] = units = first.units
        for number, readouts in enumerate(partitions[1:], start=1):
            other = slice_trajectory(readouts, encoding, units=units, description=description)
            is_same = other.points.shape == first.points.shape and np.array_equal(other.kept, first.kept)
            if not is_same or np.abs(other.points - first.points).max() > 0.01:
                raise ScanError(
                    f"{label}: partition {number} of the stack has another trajectory than partition 0, "
                    "which is not supported: the stack is transformed along its direction first, which needs "
                    "one trajectory for all partitions (spokes aligned, not rotated from one to the next)."
                )
        return first

    def _corrected(
        self,
        trajectory: SliceTrajectory,
        samples: NDArray[np.complex64],
        encoding: Encoding,
        header: Header,
    ) -> tuple[SliceTrajectory, tuple[str, ...]]:
        """Shift spokes by the delays of the scan in this orientation, found from its first image."""
        if not self._choice.delay_correction or trajectory.geometry() is None:
            return trajectory, ()
        axes = (header[name].astype(np.float64) for name in ("read_dir", "phase_dir"))
        place = encoding.index, *(np.round(axis, 2).tobytes() for axis in axes)
        if place not in self._shifts:
            self._shifts[place] = delays_of(trajectory, samples[:, samples.shape[1] // 2])
        shift, note = self._shifts[place]
        if shift is not None:
            trajectory = shifted(trajectory, shift)
        return trajectory, (note,) if note else ()

    def _in_phase(
        self, trajectory: SliceTrajectory, samples: NDArray[np.complex64]
    ) -> tuple[NDArray[np.complex64], tuple[str, ...]]:
        """Turn samples (coil, partition, readout, sample) by the phases that spokes have of their own."""
        if not self._choice.delay_correction:
            return samples, ()
        phases, note = phases_of(trajectory, samples[:, samples.shape[1] // 2])
        if phases is None or note is None:
            return samples, ()
        turn = np.exp(-1j * phases).astype(np.complex64)
        return samples * turn[:, None], (note,)

    def _context(
        self,
        group: ReadoutGroup,
        header: Header,
        trajectory: SliceTrajectory,
        wide: TrajectoryGrid,
        *,
        n_partitions: int,
        n_coils: int,
        is_prewhitened: bool,
        notes: tuple[str, ...],
    ) -> ScanContext:
        n_readouts, n_samples = trajectory.kept.shape
        stack = f"{n_partitions} x " if n_partitions > 1 else ""
        plural = "" if n_partitions * n_readouts == 1 else "s"
        measured = [
            f"{stack}{n_readouts} non-Cartesian readout{plural} of {n_samples} samples, in "
            f"{100 * trajectory.coverage:.0f} % of the cells of k-space",
            *group.notes,
        ]
        if not group.is_complete:
            measured.append(
                f"incomplete: {len(group.readouts)} readouts where the header announces {group.n_announced}"
            )
        n_left_out = trajectory.kept.size - int(trajectory.kept.sum())
        if wide.matrix != trajectory.grid.matrix:
            n_x, n_y = wide.matrix
            measured.append(f"reconstructed on {n_x} x {n_y} pixels, with a margin round the field of view")
        if n_left_out:
            measured.append(f"{n_left_out} of {trajectory.kept.size} samples left out")
        read = tuple(note for note in trajectory.notes if note not in trajectory.warnings)
        return scan_context(
            group.key,
            header,
            group.encoding,
            self._description,
            is_3d=group.encoding.announces_partitions,
            grid_matrix=wide.matrix,
            grid_fov_mm=wide.fov_mm,
            n_partitions=n_partitions,
            n_coils=n_coils,
            n_lines=len(group.readouts),
            n_calibration_lines=0,
            n_lines_announced=group.n_announced,
            n_averages=group.n_averages,
            coverage=trajectory.coverage,
            is_complete=group.is_complete,
            is_prewhitened=is_prewhitened,
            notes=(*measured, *read, *as_notes(trajectory.warnings), *notes),
            warnings=trajectory.warnings,
        )

    def _made(
        self,
        group: ReadoutGroup,
        context: ScanContext,
        trajectory: SliceTrajectory,
        wide: TrajectoryGrid,
        samples: NDArray[np.complex64],
        noise_std: float,
    ) -> Iterator[AssembledSlice]:
        """Yield the slices of samples (coil, partition, readout, sample)."""
        kept = trajectory.kept.reshape(-1)
        # In cycles per pixel, which the margin does not change.
        points = transform_points(trajectory.points[trajectory.kept], trajectory.grid.matrix[::-1])
        # Weights are areas in cycles per field of view; one that is larger has smaller cells.
        larger = math.prod(wide.matrix) / math.prod(trajectory.grid.matrix)
        weights = torch.from_numpy((self._weights(trajectory)[kept] * larger).astype(np.float32))[None]
        scale = unit_scale(wide, group.encoding)
        samples = samples.reshape(*samples.shape[:2], -1)[:, :, kept] * np.float32(scale)
        contexts: tuple[ScanContext, ...] = (context,)
        if group.encoding.announces_partitions:
            grid = partition_grid(context)
            along = torch.from_numpy(transformed(samples, 1))
            samples = fit_axis(along, 1, grid.n_filled, grid.n_sent).numpy()
            scale *= math.sqrt(min(1.0, grid.n_filled / grid.n_encoded))
            contexts = partition_contexts(context, "of a stack, transformed along it")
        for partition, one in enumerate(contexts):
            kspace = NonuniformKSpace(
                samples=torch.from_numpy(np.ascontiguousarray(samples[:, partition]))[None],
                trajectory=points,
                weights=weights,
                shape=wide.matrix[::-1],
                noise_std=noise_std * scale,
            )
            yield AssembledSlice(one, kspace, series=group.series)

    def _weights(self, trajectory: SliceTrajectory) -> NDArray[np.float64]:
        """Density weights (readout * sample,); those of the image before where the trajectory is the same."""
        if self._weighed is not None and _same(self._weighed[0], trajectory):
            return self._weighed[1]
        kept, matrix = trajectory.kept, trajectory.grid.matrix[::-1]
        given, geometry = trajectory.weights, trajectory.geometry()
        if given is None and geometry is None:
            weights = np.zeros(kept.size)
            weights[kept.reshape(-1)] = density_weights(trajectory.points[kept][None], matrix).numpy()
        else:
            given = None if given is None else np.where(kept, given, 0.0)
            weights = density_weights(trajectory.points, matrix, given=given, geometry=geometry).numpy()
        self._weighed = trajectory, weights
        return weights


def unit_scale(grid: TrajectoryGrid, encoding: Encoding) -> float:
    """Return what samples are multiplied with to have the units of a Cartesian scan's."""
    return math.sqrt(math.prod(encoding.encoded.fov_mm[:2]) / math.prod(grid.fov_mm))


def _same(one: SliceTrajectory, other: SliceTrajectory) -> bool:
    if one.grid != other.grid or (one.weights is None) != (other.weights is None):
        return False
    is_same = np.array_equal(one.points, other.points) and np.array_equal(one.kept, other.kept)
    return is_same and (
        one.weights is None or other.weights is None or np.array_equal(one.weights, other.weights)
    )


def _noise_std(samples: NDArray[np.complex64], trajectory: SliceTrajectory) -> float:
    """Estimate the noise per real component of samples (coil, readout, sample)."""
    radius = np.linalg.norm(trajectory.points / np.array(trajectory.grid.matrix), axis=-1)
    kept = trajectory.kept
    far = kept & (radius >= FAR_PART * radius[kept].max())
    edges = noise_std_from_edges(np.ascontiguousarray(samples[:, far][None]))
    if trajectory.geometry() is None or not kept.all():
        return edges
    return noise_std_from_data(edges, samples, kept)
