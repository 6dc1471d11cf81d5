"""One slice, or slab, while its readouts arrive, and the rules for when it has all of them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from gadget.errors import ScanError
from gadget.scan.header import Encoding
from gadget.scan.kept_readout import kept_copy
from gadget.scan.lines_came import LinesCame
from gadget.scan.phase_rows import PhaseRows, partition_rows, phase_rows
from gadget.scan.placement import ReadoutGrid, ReadoutSpan, readout_grid, readout_span
from gadget.scan.readout_kinds import known_dwell
from gadget.scan.readout_labels import ReadoutLabels
from gadget.scan.slice_buffer import SliceBuffer
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

TRUSTED_PART = 0.6
"""A LAST flag closes a slice that has at least this part of the announced imaging lines."""

ELLIPSE_PART = 0.75
"""Of a slab's announced lines this part is all: elliptical scans measure pi / 4 of them, less its grain."""

OUTSIDE_PART = 16
"""More distinct lines than this part of the rows (and than 2) outside the matrix are refused."""

_REVERSE_BIT = Flag.IS_REVERSE.bit
_CALIBRATION_BITS = Flag.IS_PARALLEL_CALIBRATION.bit | Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING.bit


class SliceKey(NamedTuple):
    """What makes one image; sorts in the order in which images are sent at the end of a stream."""

    encoding: int
    repetition: int
    set: int
    phase: int
    contrast: int
    average: int
    slice: int

    def same_but_repetition(self, other: "SliceKey") -> bool:
        """Whether two keys differ in nothing but the repetition."""
        return self._replace(repetition=0) == other._replace(repetition=0)

    def is_meant_by(self, flags: int, own: "SliceKey") -> bool:
        """Whether the LAST flags of a readout of the slice ``own`` are about this slice.

        Any of them is about its own slice, LAST_IN_REPETITION about all of its encoding and repetition, and
        LAST_IN_MEASUREMENT about all.
        """
        of_repetition = bool(flags & Flag.LAST_IN_REPETITION.bit) and self[:2] == own[:2]
        return self == own or of_repetition or bool(flags & Flag.LAST_IN_MEASUREMENT.bit)


@dataclass(slots=True, kw_only=True)
class OpenSlice:
    """The readouts of one slice or slab so far.

    * It is a slab (3-D) where the header announces a second phase-encoding direction, or a readout has a
      ``kspace_encode_step_2`` above 0 within the partitions of the matrix (then with a warning).
    * Calibration-only readouts wait until the first imaging readout has fixed the grid: those that are like
      it (number of samples, dwell time) belong to the same k-space, others only to coil estimation.
    * Lines outside the matrix are left out and counted; more than 2, or than a sixteenth of the rows, are
      refused: then matrix or limits are wrong.
    * Imaging readouts of different dwell times t are weighted by t, the inverse variance of their noise.
    """

    encoding: Encoding
    max_bytes: int
    keeps_oversampling: bool = False
    """Whether readouts that look as if their oversampling was removed upstream are just short."""
    is_late: bool = False
    """Whether this key was closed before: these readouts came after it."""
    was_flagged: bool = False
    """Whether a LAST flag has come."""
    was_flagged_early: bool = False
    """Whether one came before ``TRUSTED_PART`` of the lines: flags end shots then, not slices."""
    lacks_last_average: bool = False
    """Whether the header announces one average more than any readout of the scan has."""
    dwell_us: float = 0.0
    dwells_differ: bool = False
    averages: set[int] = field(default_factory=set)
    directions: set[bool] = field(default_factory=set)
    """Whether imaging readouts are reversed: False, True or both."""
    n_outside: int = 0
    """Readouts of lines outside the matrix."""
    n_calibration_covered: int = 0
    n_calibration_taken: int = 0
    """Calibration-only readouts that entered the data, or whose lines imaging readouts cover."""
    is_3d: bool = field(init=False)
    rows: PhaseRows = field(init=False)
    partitions: PhaseRows = field(init=False)
    buffer: SliceBuffer | None = field(init=False, default=None)
    bytes_held: int = field(init=False, default=0)
    _waiting: list[tuple[Acquisition, ReadoutLabels, str]] = field(init=False, default_factory=list)
    _n_samples: int = field(init=False, default=0)
    _spans: dict[tuple[int, ...], ReadoutSpan] = field(init=False, default_factory=dict)
    _outside: set[tuple[int, int]] = field(init=False, default_factory=set)
    _lines: LinesCame = field(init=False)
    _reference_rows: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.rows, self.partitions = phase_rows(self.encoding), partition_rows(self.encoding)
        self.is_3d = self.encoding.announces_partitions
        self._lines = LinesCame(self.encoding, self.rows, self.partitions, is_3d=self.is_3d)

    @property
    def n_waiting(self) -> int:
        """Calibration-only readouts that wait for an imaging readout."""
        return len(self._waiting)

    @property
    def has_calibration(self) -> bool:
        """Whether the data holds calibration lines: calibration-only ones, or such as are imaging, too."""
        return bool(self._reference_rows)

    @property
    def n_lines_announced(self) -> int:
        """Imaging lines that the header announces."""
        return self._lines.n_announced

    def warnings(self) -> tuple[str, ...]:
        """Say where header and readouts disagree, and what was taken; sorted, so in no order of arrival."""
        found = {self.rows.warning, self.partitions.warning if self.is_3d else None}
        found |= {span.warning for span in self._spans.values()}
        if self.buffer is not None:
            found.add(self.buffer.grid.warning)
        if self.is_3d and not self.encoding.announces_partitions:
            found.add(
                "readouts have kspace_encode_step_2 above 0, where the header announces no second "
                f"phase-encoding direction: taken as a 3-D scan of {self.partitions.n_rows} partitions"
            )
        if self.lacks_last_average:
            last = self.encoding.limits["average"].maximum
            found.add(
                f"the header's limits of average end at {last}, but no readout is of that one: taken as "
                "their number"
            )
        if self.n_outside:
            where = self._describe_rows()
            found.add(f"{self.n_outside} readouts of lines outside the matrix left out: {where}")
        return tuple(sorted(warning for warning in found if warning))

    def _describe_rows(self) -> str:
        is_flat = self.partitions.n_rows == 1 and all(partition == 0 for _, partition in self._outside)
        return self.rows.describe() if is_flat else f"{self.rows.describe()}, {self.partitions.describe()}"

    # Readouts in

    def add_image(self, acquisition: Acquisition, labels: ReadoutLabels, name: str) -> None:
        """Add an imaging readout."""
        row = self._row(labels, name)
        if row is None:
            return
        dwell_us = labels.dwell_us
        weight = 1.0
        if self.buffer is None:
            n_samples = labels.number_of_samples
            self._open(n_samples, labels.center_sample, acquisition.data.shape[0], name)
            self._n_samples, self.dwell_us = n_samples, dwell_us
        elif not _alike(dwell_us, self.dwell_us):
            self.dwells_differ = True
            weight = dwell_us / self.dwell_us
        elif self.dwell_us == 0:
            self.dwell_us = dwell_us
        self.averages.add(labels.average)
        self.directions.add(bool(labels.flags & _REVERSE_BIT))
        self._store(acquisition, labels, row, name, is_calibration=False, weight=weight)
        if labels.flags & _CALIBRATION_BITS:
            self._reference_rows.add(row)
        self._lines.add(row, labels.average)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for calibration in waiting:
                self.add_calibration(*calibration)

    def add_calibration(self, acquisition: Acquisition, labels: ReadoutLabels, name: str) -> None:
        """Add a calibration-only readout."""
        if self.buffer is None:
            self._waiting.append((kept_copy(acquisition), labels, name))
            self.bytes_held += acquisition.data.nbytes
            return
        is_like = labels.number_of_samples == self._n_samples
        if not is_like or not _alike(labels.dwell_us, self.dwell_us):
            return
        row = self._row(labels, name)
        if row is None:
            return
        self._reference_rows.add(row)
        self.n_calibration_taken += 1
        if not self._store(acquisition, labels, row, name, is_calibration=True):
            self.n_calibration_covered += 1

    def _row(self, labels: ReadoutLabels, name: str) -> int | None:
        line, partition = labels.kspace_encode_step_1, labels.kspace_encode_step_2
        row, page = self.rows.row(line), self.partitions.row(partition)
        if row is not None and page is not None:
            if partition > 0 and not self.is_3d and self.partitions.n_rows > 1:
                self.is_3d = True
                self._lines = LinesCame(self.encoding, self.rows, self.partitions, is_3d=True)
                if self.buffer is not None:
                    self._reserve(self.buffer.grid, self.buffer.n_coils, name)
            return page * self.rows.n_rows + row
        self.n_outside += 1
        self._outside.add((line, partition))
        n_rows = self.rows.n_rows * (self.partitions.n_rows if self.is_3d else 1)
        if len(self._outside) > max(2, n_rows // OUTSIDE_PART):
            raise ScanError(
                f"{name} has kspace_encode_step_1 {line} and kspace_encode_step_2 {partition}, which lie "
                f"outside the matrix, as those of {len(self._outside) - 1} other lines do: "
                f"{self._describe_rows()}. Check encodedSpace.matrixSize and the limits of these counters."
            )
        return None

    def _open(self, n_samples: int, center_sample: int, n_coils: int, name: str) -> None:
        grid = self._grid(n_samples, center_sample)
        self._reserve(grid, n_coils, name)
        self.buffer = SliceBuffer(
            n_rows=self.rows.n_rows, n_coils=n_coils, grid=grid, n_partitions=self.partitions.n_rows
        )

    def _grid(self, n_samples: int, center_sample: int) -> ReadoutGrid:
        if self.keeps_oversampling and n_samples < self.encoding.encoded.matrix[0]:
            n_samples = self.encoding.encoded.matrix[0]
        return readout_grid(self.encoding, n_samples, center_sample)

    def _reserve(self, grid: ReadoutGrid, n_coils: int, name: str) -> None:
        n_partitions = self.partitions.n_rows if self.is_3d else 1
        n_bytes = SliceBuffer.bytes_needed(
            n_rows=self.rows.n_rows, n_coils=n_coils, grid=grid, n_partitions=n_partitions
        )
        if n_bytes > self.max_bytes:
            size = f"{n_partitions} x " if self.is_3d else ""
            raise ScanError(
                f"{name} opens a slice of {n_coils} coils x {size}{self.rows.n_rows} x {grid.n_columns} "
                f"samples ({n_bytes / 2**30:.1f} GiB), but only {max(self.max_bytes, 0) / 2**30:.1f} GiB are "
                "left for slices that are being received. Raise the limit, or check the scan's matrix and "
                "LAST_IN_SLICE flags."
            )
        self.bytes_held = n_bytes

    def _store(
        self,
        acquisition: Acquisition,
        labels: ReadoutLabels,
        row: int,
        name: str,
        *,
        is_calibration: bool,
        weight: float = 1.0,
    ) -> bool:
        data, buffer = acquisition.data, self.buffer
        if buffer is None:
            raise RuntimeError("a readout is stored before its slice has a buffer")
        is_reversed = bool(labels.flags & _REVERSE_BIT)
        span = self._span(buffer.grid, labels, is_reversed, name)
        if is_reversed:
            data = data[:, ::-1]
        return buffer.add(
            row, span, data, acquisition.header, labels, is_calibration=is_calibration, weight=weight
        )

    def _span(self, grid: ReadoutGrid, labels: ReadoutLabels, is_reversed: bool, name: str) -> ReadoutSpan:
        n_samples, center = labels.number_of_samples, labels.center_sample
        pre, post = labels.discard_pre, labels.discard_post
        key = (n_samples, center, pre, post, is_reversed)
        span = self._spans.get(key)
        if span is None:
            own = self._grid(n_samples, center)
            if (own.removed_upstream, own.n_columns) != (grid.removed_upstream, grid.n_columns):
                raise ScanError(
                    f"{name} has {n_samples} samples where its slice has {grid.n_columns} columns: some "
                    "readouts had their oversampling removed and some not. Check the steps before this one."
                )
            span = self._spans[key] = readout_span(
                grid,
                n_samples,
                center,
                discard_pre=pre,
                discard_post=post,
                is_reversed=is_reversed,
                name=name,
            )
        return span

    def settle(self) -> None:
        """Make the dwell time that of the readout nearest to the centre of k-space, whichever came first."""
        buffer = self.buffer
        if buffer is None or not self.dwells_differ:
            return
        dwell_us = known_dwell(buffer.nearest_header)
        if dwell_us > 0 and self.dwell_us > 0:
            buffer.unit_weight = dwell_us / self.dwell_us
            self.dwell_us = dwell_us

    # Completeness

    def all_lines_came(self, *, averages_kept: bool) -> bool:
        """Whether no announced imaging line is missing (:class:`~gadget.scan.lines_came.LinesCame`)."""
        return self._lines.all_came(averages_kept=averages_kept)

    def has_reference_lines(self, lines: tuple[int | None, int | None]) -> bool:
        """Whether the announced number of embedded calibration lines came; not, where none is announced."""
        n_lines, n_partitions = lines
        if n_lines is None or (self.is_3d and n_partitions is None):
            return False
        return len(self._reference_rows) >= n_lines * (n_partitions or 1 if self.is_3d else 1)

    def has_all_announced(self, *, averages_kept: bool, part: float = 1.0) -> bool:
        """Whether the slice has what the header announces, so that a LAST flag can be believed.

        * Imaging lines: at least ``part`` of the announced ones; of a slab
          ``ELLIPSE_PART`` of that. After a LAST flag ``TRUSTED_PART`` is enough, as partial Fourier and
          random sampling measure fewer than the header's limits and acceleration say; a flag set after every
          segment or shot, or read in reverse order, comes with fewer.
        * Averages: every one that the header announces (where averages are combined).
        """
        if not self.has_most_lines(part):
            return False
        announced = self.encoding.limits.get("average")
        n_averages = 0 if announced is None else announced.size - self.lacks_last_average
        return averages_kept or len(self.averages) >= n_averages

    def has_most_lines(self, part: float = TRUSTED_PART) -> bool:
        """Whether ``part`` of the announced imaging lines came; of a slab ``ELLIPSE_PART`` of that."""
        part *= ELLIPSE_PART if self.is_3d else 1.0
        return self.buffer is not None and self.buffer.n_image_lines >= part * self.n_lines_announced

    def awaits_calibration(self) -> bool:
        """Whether embedded calibration lines are announced, but no two adjacent centre rows are there.

        Adjacent along each phase-encoding direction that is accelerated.
        """
        steps = [1] * (self.encoding.acceleration[0] > 1)
        steps += [self.rows.n_rows] * (self.is_3d and self.encoding.acceleration[1] > 1)
        if not steps or self.encoding.calibration_mode != "embedded":
            return False
        buffer = self.buffer
        if buffer is None:
            return True
        page = self.partitions.n_rows // 2 if self.is_3d else 0
        center = page * self.rows.n_rows + self.rows.n_rows // 2
        return not all(
            buffer.is_filled(center) and (buffer.is_filled(center - step) or buffer.is_filled(center + step))
            for step in steps
        )


def _alike(dwell_us: float, other_us: float) -> bool:
    return dwell_us == other_us or dwell_us == 0 or other_us == 0 or abs(dwell_us / other_us - 1) < 0.01
