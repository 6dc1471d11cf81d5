"""Which row of k-space a line is, along both phase-encoding directions, and which lines a header announces.

The rules, the same for ``kspace_encode_step_1`` (n = encoded matrix y) and, in 3-D scans,
``kspace_encode_step_2`` (n = encoded matrix z); rows from 0, the zero frequency at row n // 2:

* A line goes to row ``line - centre + n // 2``, centre from the header's limits of that counter.
* **No limits** (not there, or maximum and centre 0): lines count the rows of the matrix, centre n // 2.
* **A centre that cannot be**: n announced lines (minimum to maximum) fill the matrix, so that minimum + n //
  2 is the centre; a centre that puts more than n / 32 of fewer lines outside the matrix is replaced by n // 2
  where the lines, taken as rows of the matrix, fit in it, else by the middle of the lines. Warned about.
* **Lines outside the matrix** are counted, left out and warned about; too many of them are refused (see
  :class:`gadget.scan.open_slice.OpenSlice`).
* **Announced lines**: from minimum to maximum, without limits all rows; every R-th of them where the scan is
  accelerated R-fold.
"""

from dataclasses import dataclass

from gadget.scan.header import Encoding, Limit

OUTSIDE_PART = 32
"""A centre may put up to this part of the matrix's lines outside of it."""


@dataclass(frozen=True, slots=True)
class PhaseRows:
    """The rows of k-space along one phase-encoding direction and which line is their centre."""

    n_rows: int
    center: int
    note: str | None = None
    """Where the header has no limits."""
    warning: str | None = None
    """Where it contradicts itself: how, and what was taken."""
    announced: range = range(0)
    """The rows (not lines) of the announced lines, without those outside the matrix."""
    counter: str = "kspace_encode_step_1"

    def row(self, line: int) -> int | None:
        """Return the row of a line; None outside the matrix."""
        row = line - self.center + self.n_rows // 2
        return row if 0 <= row < self.n_rows else None

    def describe(self) -> str:
        """Say which lines the rows hold."""
        first = self.center - self.n_rows // 2
        return (
            f"{self.n_rows} rows with line {self.center} at row {self.n_rows // 2} hold the lines {first} to "
            f"{first + self.n_rows - 1} of {self.counter}"
        )


def phase_rows(encoding: Encoding) -> PhaseRows:
    """Return the rows that the header lays out for ``kspace_encode_step_1``."""
    limit = encoding.limits.get("kspace_encoding_step_1")
    return _rows(encoding.encoded.matrix[1], limit, "kspace_encoding_step_1")


def partition_rows(encoding: Encoding) -> PhaseRows:
    """Return the rows that the header lays out for ``kspace_encode_step_2``: the partitions.

    Limits that end at 0 in a header with several partitions are taken as none.
    """
    limit = encoding.limits.get("kspace_encoding_step_2")
    is_silent = encoding.encoded.matrix[2] > 1 and not encoding.announces_partitions
    return _rows(encoding.encoded.matrix[2], None if is_silent else limit, "kspace_encoding_step_2")


def expected_lines(encoding: Encoding, *, is_3d: bool | None = None) -> int:
    """Return how many imaging lines the header announces for a slice or slab, as far as it can be known.

    A 3-D scan (None: by the header) multiplies those of both directions.
    """
    n_lines = -(-len(phase_rows(encoding).announced) // encoding.acceleration[0])
    if not (encoding.announces_partitions if is_3d is None else is_3d):
        return n_lines
    return n_lines * -(-len(partition_rows(encoding).announced) // encoding.acceleration[1])


def _rows(n_rows: int, limit: Limit | None, name: str) -> PhaseRows:
    middle, counter = n_rows // 2, name.replace("encoding", "encode")
    if limit is None or limit.maximum == limit.center == 0:
        note = f"no limits of {name} in the header: line {middle} taken as the centre"
        return PhaseRows(n_rows, middle, note if n_rows > 1 else None, None, range(n_rows), counter)
    center = _possible_center(limit, n_rows)
    first = limit.minimum - center + middle
    announced = range(min(n_rows, max(0, first)), max(0, min(n_rows, first + limit.size)))
    warning = None
    if center != limit.center:
        warning = (
            f"the header's centre {limit.center} of {name} cannot be, as its lines {limit.minimum} to "
            f"{limit.maximum} would leave the matrix of {n_rows} rows: line {center} taken as the centre"
        )
    return PhaseRows(n_rows, center, None, warning, announced, counter)


def _possible_center(limit: Limit, n_rows: int) -> int:
    middle = n_rows // 2
    if limit.size == n_rows:
        return limit.minimum + middle
    first = limit.minimum - limit.center + middle
    n_outside = max(0, -first) + max(0, first + limit.size - n_rows)
    if n_outside <= max(n_rows // OUTSIDE_PART, limit.size - n_rows):
        return limit.center
    return middle if limit.maximum < n_rows else (limit.minimum + limit.maximum + 1) // 2
