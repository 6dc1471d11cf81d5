"""Non-Cartesian readouts in, complete slices out: the part of the assembly for radial, spiral and others.

When is a slice (or stack) complete? As in Cartesian scans (:mod:`gadget.scan.assemble`), but for what
readouts are counted by (:class:`gadget.scan.open_trajectory.OpenTrajectory`):

1. A **LAST flag** closes its slice (its repetition's, all) if every announced average and 60 % of the
   announced readouts came, for other slices than the readout's own all of them; where nothing is announced,
   always. Once one came with fewer, later ones close the slice with all of them only.
2. **All announced readouts** of all announced averages came, and no noise readouts can follow.
3. The first readout of a **later repetition**, likewise as 1.
4. **The end of the stream** closes what is still open; too few readouts for an image are then left out and
   reported, where the scan gave images before.

**Real-time series**: with a window of N readouts images are not told apart by repetitions and averages.
Each N readouts of a series (encoding, slice, contrast, phase, set) are a frame, as soon as they came; frames
start every ``window_step`` readouts. The frame's number, from 0, is its image's repetition. Flags and limits
close nothing then.
"""

import logging
from collections import Counter
from collections.abc import Iterable

from gadget.errors import ScanError
from gadget.scan.assembled import AssembledSlice
from gadget.scan.header import Encoding, ScanDescription
from gadget.scan.kept_readout import kept_copy
from gadget.scan.noise import NoiseSource
from gadget.scan.open_slice import TRUSTED_PART, SliceKey
from gadget.scan.open_trajectory import OpenTrajectory, n_bytes_of
from gadget.scan.readout_labels import ReadoutLabels, labels_of
from gadget.scan.receiver import Receiver
from gadget.scan.trajectory import TooFewReadouts
from gadget.scan.trajectory_choice import TrajectoryChoice
from gadget.scan.trajectory_kspace import ReadoutGroup, TrajectoryKSpace
from gadget.wire.messages import Acquisition
from reconlib.trajectories.sliding_window import SlidingWindow

logger = logging.getLogger(__name__)

Named = tuple[Acquisition, str]
"""A readout, and its name for messages."""


class TrajectorySlices:
    """Sorts non-Cartesian readouts into slices, stacks or frames.

    Parameters
    ----------
    receiver
        That of the scan.
    averages_kept
        Whether every average makes an image of its own.
    """

    def __init__(
        self,
        description: ScanDescription,
        receiver: Receiver,
        source: NoiseSource,
        choice: TrajectoryChoice,
        *,
        averages_kept: bool = False,
    ) -> None:
        self._receiver = receiver
        self._choice = choice
        self._averages_kept = averages_kept
        self._kspace = TrajectoryKSpace(description, receiver, source, choice)
        self._open: dict[SliceKey, OpenTrajectory] = {}
        self._closed: set[SliceKey] = set()
        self._series: dict[SliceKey, tuple[Encoding, SlidingWindow[Named]]] = {}
        self._readout_bytes = 0
        self._n_images = 0
        self.unused: Counter[str] = Counter()
        """Readouts that are in no image, by what they are."""

    @property
    def bytes_held(self) -> int:
        """Memory of readouts that are kept."""
        frames = sum(min(window.n_readouts, window.length) for _, window in self._series.values())
        return sum(slice_.bytes_held for slice_ in self._open.values()) + frames * self._readout_bytes

    def add(
        self,
        acquisition: Acquisition,
        labels: ReadoutLabels,
        key: SliceKey,
        name: str,
        encoding: Encoding,
        *,
        bytes_left: int,
        can_be_last: bool,
    ) -> tuple[AssembledSlice, ...]:
        """Take an imaging readout; return what is complete with it.

        Parameters
        ----------
        bytes_left
            What more may be held.
        can_be_last
            Whether no noise readouts are awaited.
        """
        if self._choice.window is not None:
            return self._add_to_series(acquisition, labels, key, name, encoding, bytes_left)
        acquisition = self._receiver.check(acquisition, labels, key, name)
        done = []
        slice_ = self._open.get(key)
        if slice_ is None:
            done = [
                other
                for other in sorted(self._open)
                if other.repetition < key.repetition
                and other.same_but_repetition(key)
                and self._is_complete(other, TRUSTED_PART)
            ]
            slice_ = self._open[key] = OpenTrajectory(encoding=encoding, is_late=key in self._closed)
        slice_.add(acquisition, labels, name, slice_.bytes_held + bytes_left)
        if can_be_last and not slice_.was_flagged and slice_.all_came(averages_kept=self._averages_kept):
            done.append(key)
        return self._emitted(done)

    def closed_by(self, flags: int, own: SliceKey) -> tuple[AssembledSlice, ...]:
        """Return what the LAST flags of a readout close."""
        done = []
        for key in sorted(self._open):
            if not key.is_meant_by(flags, own):
                continue
            slice_ = self._open[key]
            is_trusted = key == own and not slice_.was_flagged_early
            if self._is_complete(key, TRUSTED_PART if is_trusted else 1.0):
                done.append(key)
            if key == own:
                slice_.was_flagged = True
                slice_.was_flagged_early |= not slice_.has_most()
        return self._emitted(done)

    def finish(self) -> tuple[AssembledSlice, ...]:
        """Return what is still open, at the end of the stream."""
        slices: list[AssembledSlice] = []
        for key in sorted(self._open):
            slice_ = self._open[key]
            part = TRUSTED_PART if slice_.was_flagged else 1.0
            slices += self._rest(key, slice_, is_complete=self._is_complete(key, part))
        for key, (encoding, window) in sorted(self._series.items(), key=lambda item: item[0]):
            if window.n_frames:
                self.unused["readouts after the last whole frame of a series"] += window.n_unused
                continue
            rest = self._checked(window.rest(), key)
            slice_ = OpenTrajectory(encoding=encoding, readouts=[(readout, "") for readout in rest])
            slice_.n_announced = window.length
            slices += self._rest(key, slice_, is_complete=False)
        self._open.clear()
        self._series.clear()
        return tuple(slices)

    def _is_complete(self, key: SliceKey, part: float) -> bool:
        return self._open[key].has_all_announced(averages_kept=self._averages_kept, part=part)

    def _emitted(self, keys: Iterable[SliceKey]) -> tuple[AssembledSlice, ...]:
        slices: list[AssembledSlice] = []
        for key in dict.fromkeys(keys):
            slices += self._emit(key, self._open.pop(key), is_complete=True)
        return tuple(slices)

    def _emit(
        self, key: SliceKey, slice_: OpenTrajectory, *, is_complete: bool
    ) -> tuple[AssembledSlice, ...]:
        self._closed.add(key)
        notes = ("these readouts came after their slice had been closed; they make an image of their own",)
        group = ReadoutGroup(
            key=key,
            encoding=slice_.encoding,
            readouts=[readout for readout, _ in slice_.readouts],
            n_announced=slice_.n_announced,
            n_averages=slice_.n_averages,
            is_complete=is_complete,
            notes=notes if slice_.is_late else (),
        )
        slices = self._kspace.slices(group)
        self._n_images += len(slices)
        return slices

    def _rest(
        self, key: SliceKey, slice_: OpenTrajectory, *, is_complete: bool
    ) -> tuple[AssembledSlice, ...]:
        """Make an image of a stream's last readouts; after others it may be missing, if there are few."""
        try:
            return self._emit(key, slice_, is_complete=is_complete)
        except TooFewReadouts as error:
            if not self._n_images:
                raise
            logger.warning("The last readouts of slice %d make no image: %s", key.slice, error)
            self.unused["readouts at the end, too few for an image"] += len(slice_.readouts)
            return ()

    # Real-time series

    def _add_to_series(
        self,
        acquisition: Acquisition,
        labels: ReadoutLabels,
        key: SliceKey,
        name: str,
        encoding: Encoding,
        bytes_left: int,
    ) -> tuple[AssembledSlice, ...]:
        length = self._choice.window or 1
        if encoding.announces_partitions:
            raise ScanError(
                "trajectory.window is set, but the scan is a stack (3-D): a sliding window is for "
                "two-dimensional trajectories only. Set trajectory.window to null."
            )
        # Faults are told at once; which coils hold data is told frame by frame.
        self._receiver.check(acquisition, labels, "series", name)
        series = key._replace(repetition=0, average=0)
        own = kept_copy(acquisition)
        if series not in self._series:
            if bytes_left < length * n_bytes_of(own):
                raise ScanError(
                    f"{name}: a window of {length} readouts does not fit in the memory that is left for "
                    "slices that are being received. Raise the limit, or make trajectory.window smaller."
                )
            self._series[series] = encoding, SlidingWindow(length, self._choice.window_step or length)
            self._readout_bytes = max(self._readout_bytes, n_bytes_of(own))
        frame = self._series[series][1].add((own, name))
        if frame is None:
            return ()
        of_frame = series._replace(repetition=frame.index)
        group = ReadoutGroup(
            key=of_frame,
            encoding=encoding,
            readouts=self._checked(frame.readouts, of_frame),
            n_announced=length,
            notes=(
                f"frame {frame.index} of a real-time series: readouts {frame.first} to "
                f"{frame.first + length - 1}",
            ),
            series=series,
        )
        try:
            slices = self._kspace.slices(group)
        except TooFewReadouts as error:
            raise TooFewReadouts(f"{error} A frame has {length} readouts: trajectory.window.") from None
        self._n_images += len(slices)
        return slices

    def _checked(self, readouts: Iterable[Named], key: SliceKey) -> list[Acquisition]:
        return [
            self._receiver.check(readout, labels_of(readout.header), key, name) for readout, name in readouts
        ]
