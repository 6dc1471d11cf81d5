"""Where a readout goes along the readout direction: its columns, and what of them is kept.

The rules, for encoded matrix nx over the field of view f, recon matrix rx over rf (along x), readouts of n
samples; indices from 0, the zero frequency at column nx // 2:

* **Column**: sample j of a readout in the order of k goes to column ``j - centre + nx // 2``, where the
  centre is ``center_sample``, "the sample at the centre of k-space". Discarded samples (``discard_pre``,
  ``discard_post``, in the order of acquisition) are not measured. What there is of an asymmetric echo is
  placed, the rest of its row is not measured.
* **Full readouts**: n = nx samples fill the matrix, whatever their ``center_sample`` says (another one than 0
  or n // 2 is warned about): nothing else would fit.
* **center_sample 0** of a shorter readout is "not set" where the samples would not fit so: its middle is
  taken, with a warning.
* **Reversed readouts** (IS_REVERSE) are flipped. Their ``center_sample`` counts in the order of acquisition,
  as the standard defines it: n - 1 - center_sample after the flip. Two habits differ: a symmetric readout has
  n // 2 in either direction; and scanners that mirror about the middle of the matrix mean n - center_sample.
  The latter is taken where the former does not fit, and where neither does, with a warning, a center_sample
  that counts in the order of k.
* **Overhang**: up to nx / 32 samples that stick out of the matrix are cut off, with a warning; more is
  refused.
* **Oversampling** is removed after the Fourier transform along the readout: of nx columns the middle
  ``round(nx * rf / f)`` are kept. A matrix of 2 rx over f = rf is what it says, pixels of half the size (then
  averaged), but warned about: a converter may have forgotten to double f.
* **Removed upstream**: readouts of just the kept number of samples, with the centre in their middle, at nx //
  2 (as before the removal) or 0 (not set), are taken as they are.
* **More than the header says**: n = m nx samples (m = 2, 3, ...) are m times oversampled, so that they cover
  the field of view m f; but where f / n is the recon matrix's pixel size, and f / nx is not, the matrix is
  what is wrong, and they cover f. Either is warned about.
"""

from dataclasses import dataclass

from gadget.errors import ScanError
from gadget.scan.header import Encoding
from gadget.scan.phase_rows import expected_lines as expected_lines  # the other directions' part of placement
from gadget.scan.phase_rows import phase_rows as phase_rows

OVERHANG_PART = 32
"""Samples up to this part of the matrix may stick out of it."""


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
    warning: str | None = None
    """Where header and readouts disagree: how, and what was taken."""

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
    warning: str | None = None

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.last - self.first


def kept_columns(encoding: Encoding) -> int:
    """Return how many image columns the reconstructed field of view covers."""
    return _kept(encoding, encoding.encoded.matrix[0], encoding.encoded.fov_mm[0])


def _kept(encoding: Encoding, n_columns: int, fov_mm: float) -> int:
    return max(1, min(n_columns, round(n_columns * encoding.recon.fov_mm[0] / fov_mm)))


def readout_grid(encoding: Encoding, n_samples: int, center_sample: int) -> ReadoutGrid:
    """Choose the columns for readouts of this length."""
    n_columns, fov_mm = encoding.encoded.matrix[0], encoding.encoded.fov_mm[0]
    pixel_mm = fov_mm / n_columns
    n_kept = kept_columns(encoding)
    if n_samples == n_kept < n_columns and center_sample in (0, n_samples // 2, n_columns // 2):
        return ReadoutGrid(n_kept, n_kept, pixel_mm, removed_upstream=True)
    if n_samples > n_columns and n_samples % n_columns == 0:
        return _more_than_announced(encoding, n_samples)
    warning = None
    recon = encoding.recon
    if n_columns == 2 * recon.matrix[0] and _alike(fov_mm, recon.fov_mm[0]):
        warning = (
            f"the header encodes {n_columns} columns over the {fov_mm:g} mm that it reconstructs as "
            f"{recon.matrix[0]}: taken as pixels of half the size. If this is readout oversampling, "
            "encodedSpace.fieldOfView_mm.x has to be twice as large"
        )
    return ReadoutGrid(n_columns, n_kept, pixel_mm, warning=warning)


def _more_than_announced(encoding: Encoding, n_samples: int) -> ReadoutGrid:
    n_columns, fov_mm = encoding.encoded.matrix[0], encoding.encoded.fov_mm[0]
    recon_pixel_mm = encoding.recon.fov_mm[0] / encoding.recon.matrix[0]
    what = f"readouts of {n_samples} samples where the header encodes {n_columns} columns: taken as "
    if _alike(fov_mm / n_samples, recon_pixel_mm) and not _alike(fov_mm / n_columns, recon_pixel_mm):
        return ReadoutGrid(
            n_samples,
            _kept(encoding, n_samples, fov_mm),
            fov_mm / n_samples,
            warning=f"{what}{n_samples} columns over its {fov_mm:g} mm",
        )
    times = n_samples // n_columns
    return ReadoutGrid(
        n_samples,
        kept_columns(encoding),
        fov_mm / n_columns,
        warning=f"{what}{times} times more oversampling, over {times * fov_mm:g} mm",
    )


def _alike(a: float, b: float) -> bool:
    return abs(a - b) <= 0.01 * abs(b)


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
        Everything is discarded, the centre lies outside the readout, or more samples lie outside the matrix
        than can be cut off.
    """
    if discard_pre + discard_post >= n_samples:
        raise ScanError(
            f"{name} has {n_samples} samples, of which discard_pre {discard_pre} and discard_post "
            f"{discard_post} leave none."
        )
    if is_reversed:
        discard_pre, discard_post = discard_post, discard_pre
    first, last = discard_pre, n_samples - discard_post
    center, warning = _center(grid, n_samples, center_sample, (first, last), is_reversed, name)
    column = first - center + grid.n_columns // 2
    before, behind = _overhang(grid, center, first, last)
    if not before + behind:
        return ReadoutSpan(first, last, column, warning)
    if before + behind > min(grid.n_columns // OVERHANG_PART, last - first - 1):
        raise ScanError(
            f"{name} has {last - first} samples with the centre at sample {center - first}, which do "
            f"not fit the {grid.n_columns} columns of the encoded matrix with the centre at "
            f"{grid.n_columns // 2}. Check encodedSpace.matrixSize.x and center_sample."
        )
    cut = (
        f"readouts of {last - first} samples with the centre at {center - first} stick out of the "
        f"{grid.n_columns} columns of the header: {before} and {behind} samples at the ends cut off"
    )
    return ReadoutSpan(
        first + before, last - behind, column + before, cut if warning is None else f"{warning}; {cut}"
    )


def _overhang(grid: ReadoutGrid, center: int, first: int, last: int) -> tuple[int, int]:
    """Return how many samples lie before the first and behind the last column."""
    column = first - center + grid.n_columns // 2
    size = last - first
    return min(size, max(0, -column)), min(size, max(0, column + size - grid.n_columns))


def _center(
    grid: ReadoutGrid,
    n_samples: int,
    center_sample: int,
    kept: tuple[int, int],
    is_reversed: bool,
    name: str,
) -> tuple[int, str | None]:
    """Return the sample at the centre of k-space in the order of k, and a warning."""

    def fits(center: int) -> bool:
        return sum(_overhang(grid, center, *kept)) == 0

    middle = n_samples // 2
    if n_samples == grid.n_columns:
        if grid.removed_upstream or center_sample in (0, middle, n_samples - 1 - middle):
            return middle, None
        return middle, (
            f"center_sample {center_sample} of readouts that fill the {n_samples} columns of the matrix "
            f"cannot be: sample {middle} taken as the centre"
        )
    if center_sample >= n_samples:
        raise ScanError(
            f"{name} has center_sample {center_sample} of {n_samples} samples; the centre of k-space must "
            "lie inside the readout. Check the converter."
        )
    if center_sample == 0 and not fits(n_samples - 1 if is_reversed else 0):
        return middle, (
            f"center_sample 0 of readouts of {n_samples} samples taken as not set: sample {middle} taken as "
            "the centre"
        )
    if not is_reversed or center_sample == middle:
        return center_sample, None
    flipped = n_samples - 1 - center_sample
    if fits(flipped):
        return flipped, None
    if fits(flipped + 1):
        return flipped + 1, None
    if fits(center_sample):
        return center_sample, (
            f"center_sample {center_sample} of reversed readouts of {n_samples} samples does not fit the "
            "matrix in the order of acquisition: taken in the order of k"
        )
    return flipped, None
