"""One slice while its readouts arrive, and the rule for when it has all of them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from gadget.errors import ScanError
from gadget.scan.header import Encoding
from gadget.scan.placement import (
    PhaseRows,
    ReadoutGrid,
    ReadoutSpan,
    expected_lines,
    phase_rows,
    readout_grid,
    readout_span,
)
from gadget.scan.slice_buffer import SliceBuffer
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

TRUSTED_PART = 0.6
"""A LAST flag closes a slice that has at least this part of the announced imaging lines."""


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


@dataclass(slots=True, kw_only=True)
class OpenSlice:
    """The readouts of one slice so far.

    Calibration-only readouts wait until the first imaging readout has fixed the grid: those that are like it
    (number of samples, dwell time) belong to the same k-space, others only to coil estimation.
    """

    encoding: Encoding
    max_bytes: int
    is_late: bool = False
    """Whether this key was closed before: these readouts came after it."""
    was_flagged: bool = False
    """Whether a LAST flag has come."""
    dwell_us: float = 0.0
    dwells_differ: bool = False
    averages: set[int] = field(default_factory=set)
    n_calibration_unlike: int = 0
    n_calibration_covered: int = 0
    rows: PhaseRows = field(init=False)
    buffer: SliceBuffer | None = field(init=False, default=None)
    bytes_held: int = field(init=False, default=0)
    _waiting: list[tuple[Acquisition, str]] = field(init=False, default_factory=list)
    _n_samples: int = field(init=False, default=0)
    _spans: dict[tuple[int, ...], ReadoutSpan] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rows = phase_rows(self.encoding)

    @property
    def n_waiting(self) -> int:
        """Calibration-only readouts that wait for an imaging readout."""
        return len(self._waiting)

    def add_image(self, acquisition: Acquisition, name: str) -> None:
        """Add an imaging readout."""
        header = acquisition.header
        dwell_us = float(header["sample_time_us"])
        if self.buffer is None:
            n_samples = int(header["number_of_samples"])
            self._open(n_samples, int(header["center_sample"]), acquisition.data.shape[0], name)
            self._n_samples, self.dwell_us = n_samples, dwell_us
        elif not _alike(dwell_us, self.dwell_us):
            self.dwells_differ = True
        self.averages.add(int(header["idx"]["average"]))
        self._store(acquisition, name, is_calibration=False)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for calibration, its_name in waiting:
                self.add_calibration(calibration, its_name)

    def add_calibration(self, acquisition: Acquisition, name: str) -> None:
        """Add a calibration-only readout."""
        if self.buffer is None:
            self._waiting.append((acquisition, name))
            self.bytes_held += acquisition.data.nbytes
            return
        header = acquisition.header
        is_like = int(header["number_of_samples"]) == self._n_samples
        if not is_like or not _alike(float(header["sample_time_us"]), self.dwell_us):
            self.n_calibration_unlike += 1
        elif not self._store(acquisition, name, is_calibration=True):
            self.n_calibration_covered += 1

    def _open(self, n_samples: int, center_sample: int, n_coils: int, name: str) -> None:
        grid = readout_grid(self.encoding, n_samples, center_sample)
        n_bytes = SliceBuffer.bytes_needed(n_rows=self.rows.n_rows, n_coils=n_coils, grid=grid)
        if n_bytes > self.max_bytes:
            raise ScanError(
                f"{name} opens a slice of {n_coils} coils x {self.rows.n_rows} x {grid.n_columns} samples "
                f"({n_bytes / 2**30:.1f} GiB), but only {max(self.max_bytes, 0) / 2**30:.1f} GiB are left "
                "for slices that are being received. Raise the limit, or check the scan's matrix and "
                "LAST_IN_SLICE flags."
            )
        self.bytes_held = n_bytes
        self.buffer = SliceBuffer(n_rows=self.rows.n_rows, n_coils=n_coils, grid=grid)

    def _store(self, acquisition: Acquisition, name: str, *, is_calibration: bool) -> bool:
        header, data, buffer = acquisition.header, acquisition.data, self.buffer
        if buffer is None:
            raise RuntimeError("a readout is stored before its slice has a buffer")
        row = self.rows.row(int(header["idx"]["kspace_encode_step_1"]), name)
        is_reversed = bool(int(header["flags"]) & Flag.IS_REVERSE.bit)
        span = self._span(
            buffer.grid,
            int(header["number_of_samples"]),
            int(header["center_sample"]),
            int(header["discard_pre"]),
            int(header["discard_post"]),
            is_reversed,
            name,
        )
        if is_reversed:
            data = data[:, ::-1]
        return buffer.add(row, span, data, header, is_calibration=is_calibration)

    def _span(
        self,
        grid: ReadoutGrid,
        n_samples: int,
        center: int,
        pre: int,
        post: int,
        is_reversed: bool,
        name: str,
    ) -> ReadoutSpan:
        key = (n_samples, center, pre, post, is_reversed)
        span = self._spans.get(key)
        if span is None:
            own = readout_grid(self.encoding, n_samples, center)
            if own.removed_upstream != grid.removed_upstream:
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

    def has_all_announced(self, *, averages_kept: bool, part: float = 1.0) -> bool:
        """Whether the slice has what the header announces, so that a LAST flag can be believed.

        * Imaging lines: at least ``part`` of the announced ones (:func:`expected_lines`). After a LAST flag
          ``TRUSTED_PART`` is enough, as partial Fourier and random sampling measure fewer than the header's
          limits and acceleration say; a flag set after every segment or shot, or read in reverse order, comes
          with fewer.
        * Averages: every one that the header announces (where averages are combined).
        """
        if self.buffer is None or self.buffer.n_image_lines < part * expected_lines(self.encoding):
            return False
        announced = self.encoding.limits.get("average")
        return averages_kept or announced is None or len(self.averages) >= announced.size

    def awaits_calibration(self) -> bool:
        """Whether embedded calibration lines are announced, but no two adjacent centre rows are there."""
        if self.encoding.acceleration[0] == 1 or self.encoding.calibration_mode != "embedded":
            return False
        if self.buffer is None:
            return True
        center = self.rows.n_rows // 2
        pairs = ((center - 1, center), (center, center + 1))
        return not any(self.buffer.is_filled(a) and self.buffer.is_filled(b) for a, b in pairs)


def _alike(dwell_us: float, other_us: float) -> bool:
    return dwell_us == other_us or dwell_us == 0 or other_us == 0 or abs(dwell_us / other_us - 1) < 0.01
