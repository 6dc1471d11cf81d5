"""Where a readout goes in k-space: its columns, its row, and what of the readout direction is kept.

The rules, for encoded matrix (nx, ny), all indices from 0, the zero frequency at column nx // 2 and row ny //
2:

* **Column**: sample j of a readout in the order of k goes to column ``j - center_sample + nx // 2``. A
  readout flagged IS_REVERSE is flipped first; its ``center_sample`` counts in the flipped order (as other
  programs have it), ``discard_pre`` and ``discard_post`` in the order of acquisition. Discarded samples are
  not measured. A readout of nx samples fills the matrix, whatever its ``center_sample`` says: nothing else
  would fit.
* **Row**: line ``kspace_encode_step_1`` goes to row ``line - center + ny // 2``, center from the header's
  ``encodingLimits.kspace_encoding_step_1``. Without that limit, or where the limits fill the matrix
  (minimum 0, maximum ny - 1), line ny // 2 is the centre: nothing else would fit.
* **Oversampling** is removed after the Fourier transform along the readout: of nx columns the middle
  ``round(nx * recon FOV / encoded FOV)`` are kept. Readouts that hold just that many samples, with the centre
  in their middle, at nx // 2 (as before the removal) or 0 (not set), had their oversampling removed upstream
  and are taken as they are.
"""

from dataclasses import dataclass

from gadget.errors import ScanError
from gadget.scan.header import Encoding


@dataclass(frozen=True, slots=True)
class ReadoutGrid:
    """The columns of k-space that the readouts of a slice are laid on."""

    n_columns: int
    """Columns before oversampling is removed."""
    n_kept: int
    """Columns (in image space) after it is removed."""
    pixel_mm: float
    """Size of an image column."""
    removed_upstream: bool = False

    @property
    def fov_mm(self) -> float:
        """Field of view of all columns before oversampling is removed."""
        return self.pixel_mm * self.n_columns


@dataclass(frozen=True, slots=True)
class ReadoutSpan:
    """Which samples of a readout go to which columns: ``[first, last)`` to the columns from ``column`` on."""

    first: int
    last: int
    column: int

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.last - self.first


def kept_columns(encoding: Encoding) -> int:
    """Return how many image columns the reconstructed field of view covers."""
    n_columns, ratio = encoding.encoded.matrix[0], encoding.recon.fov_mm[0] / encoding.encoded.fov_mm[0]
    return max(1, min(n_columns, round(n_columns * ratio)))


def readout_grid(encoding: Encoding, n_samples: int, center_sample: int) -> ReadoutGrid:
    """Choose the columns for readouts of this length."""
    n_columns = encoding.encoded.matrix[0]
    pixel_mm = encoding.encoded.fov_mm[0] / n_columns
    n_kept = kept_columns(encoding)
    if n_samples == n_kept < n_columns and center_sample in (0, n_samples // 2, n_columns // 2):
        return ReadoutGrid(n_kept, n_kept, pixel_mm, removed_upstream=True)
    return ReadoutGrid(n_columns, n_kept, pixel_mm)


def readout_span(
    grid: ReadoutGrid,
    n_samples: int,
    center_sample: int,
    *,
    discard_pre: int = 0,
    discard_post: int = 0,
    is_reversed: bool = False,
    name: str = "A readout",
) -> ReadoutSpan:
    """Place the samples of one readout, in the order of k.

    Raises
    ------
    ScanError
        Everything is discarded, the centre lies outside the readout, or samples lie outside the matrix.
    """
    if discard_pre + discard_post >= n_samples:
        raise ScanError(
            f"{name} has {n_samples} samples, of which discard_pre {discard_pre} and discard_post "
            f"{discard_post} leave none."
        )
    if n_samples == grid.n_columns:
        center_sample = n_samples // 2
    if center_sample >= n_samples:
        raise ScanError(
            f"{name} has center_sample {center_sample} of {n_samples} samples; the centre of k-space must "
            "lie inside the readout. Check the converter."
        )
    if is_reversed:
        discard_pre, discard_post = discard_post, discard_pre
    first, last = discard_pre, n_samples - discard_post
    column = first - center_sample + grid.n_columns // 2
    if column < 0 or column + last - first > grid.n_columns:
        raise ScanError(
            f"{name} has {last - first} samples with the centre at sample {center_sample - first}, which do "
            f"not fit the {grid.n_columns} columns of the encoded matrix with the centre at "
            f"{grid.n_columns // 2}. Check encodedSpace.matrixSize.x and center_sample."
        )
    return ReadoutSpan(first, last, column)


@dataclass(frozen=True, slots=True)
class PhaseRows:
    """The rows of k-space and which line is their centre."""

    n_rows: int
    center: int
    note: str | None = None

    def row(self, line: int, name: str = "A readout") -> int:
        """Return the row of a line.

        Raises
        ------
        ScanError
            The row lies outside the matrix.
        """
        row = line - self.center + self.n_rows // 2
        if 0 <= row < self.n_rows:
            return row
        raise ScanError(
            f"{name} has kspace_encode_step_1 {line}, which lies outside the matrix: {self.n_rows} rows with "
            f"line {self.center} at row {self.n_rows // 2} hold the lines {self.center - self.n_rows // 2} "
            f"to {self.center - self.n_rows // 2 + self.n_rows - 1}. Check encodedSpace.matrixSize.y and the "
            "limits of kspace_encoding_step_1."
        )


def phase_rows(encoding: Encoding) -> PhaseRows:
    """Return the rows that the header lays out."""
    n_rows = encoding.encoded.matrix[1]
    limit = encoding.limits.get("kspace_encoding_step_1")
    if limit is None or limit.maximum == limit.center == 0:
        note = f"no limits of kspace_encoding_step_1 in the header: line {n_rows // 2} taken as the centre"
        return PhaseRows(n_rows, n_rows // 2, note)
    if limit.minimum == 0 and limit.maximum == n_rows - 1 and limit.center != n_rows // 2:
        note = (
            f"the header's centre line {limit.center} cannot be, as its {n_rows} lines fill the matrix: "
            f"line {n_rows // 2} taken as the centre"
        )
        return PhaseRows(n_rows, n_rows // 2, note)
    return PhaseRows(n_rows, limit.center)


def expected_lines(encoding: Encoding) -> int:
    """Return how many imaging lines the header announces for a slice, as far as it can be known.

    The lines from minimum to maximum (all rows where the header has no limits), every R-th of them.
    """
    limit = encoding.limits.get("kspace_encoding_step_1")
    n_lines = encoding.encoded.matrix[1] if limit is None or limit.maximum == 0 else limit.size
    return -(-n_lines // encoding.acceleration[0])
