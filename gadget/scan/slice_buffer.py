"""Collects the readouts of one slice or slab, and turns them into whitened k-space when it is complete.

A readout costs one copy; everything that needs arithmetic (oversampling, whitening, averaging) is done once
per slice. Rows are stored one after another, (row, coil, column), so that a readout is one run of memory, and
their columns in FFT order (the zero frequency first), so that no shift is ever computed.

Memory: the rows of one partition are a page, taken when its first row is measured: 8 bytes times rows, coils
and columns; the weights are 4 bytes times rows and columns. On the way out a slab's pages are turned into
k-space one by one and given up, so that the peak is all pages, or the finished k-space where that is larger,
a page more, the weights, and some 60 MiB of the libraries. For 256 x 256 x 192 with 16 coils and twofold
oversampling: 3.1 GiB while readouts come, falling to 1.5 GiB.
"""

import math
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from gadget.scan.buffer_survey import edge_noise_std
from gadget.scan.coil_products import combine_coils
from gadget.scan.kept_readout import kept_header
from gadget.scan.placement import ReadoutGrid, ReadoutSpan
from gadget.scan.readout_labels import ReadoutLabels
from gadget.wire.messages import Header

_ROWS_PER_BLOCK = 16
"""About 1 MiB at 16 coils and 512 samples: the working set stays in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceArrays:
    """K-space of one slice or slab as numpy arrays, centred."""

    samples: NDArray[np.complex64]
    """complex64 (coil, ky, kx), of a slab (coil, kz, ky, kx); zero where not measured."""
    mask: NDArray[np.bool_]
    """bool (ky, kx), of a slab (kz, ky, kx)."""
    noise_factor: float
    """Noise after averaging over that of one measurement: root mean square over the measured samples."""
    counts_differ: bool
    """Whether some samples were measured more often, or longer, than others."""
    is_cropped: bool
    """Whether readout oversampling was removed here."""


class SliceBuffer:
    """The readouts of one slice, or of one slab: then row = partition * rows of a partition + row in it.

    * A row measured several times (averages, or simply again) holds the mean of its measurements, weighted by
      the inverse variances of their noise.
    * An imaging line replaces a calibration-only line of the same row, and a calibration-only line never
      changes a row with an imaging line: a separate calibration scan may have another contrast.
    * Both rules give the same k-space whatever the order of the readouts.
    """

    def __init__(self, *, n_rows: int, n_coils: int, grid: ReadoutGrid, n_partitions: int = 1) -> None:
        self.grid = grid
        self.n_coils = n_coils
        self.n_rows = n_rows
        """Rows of one partition."""
        self.n_partitions = n_partitions
        self.n_calibration_replaced = 0
        """Calibration-only readouts whose line an imaging readout replaced."""
        self.unit_weight = 1.0
        """The weight of the readouts whose noise :attr:`SliceArrays.noise_factor` is relative to."""
        self._pages: list[NDArray[np.complex64] | None] = [None] * n_partitions
        n_all = n_rows * n_partitions
        self.weights = np.zeros((n_all, grid.n_columns), np.float32)
        """float32 (row, column), columns centred: sums of the weights of the measurements."""
        self.times = np.zeros(n_all, np.uint32)
        """How often each row was measured."""
        self.is_image = np.zeros(n_all, np.bool_)
        """Which rows hold imaging lines."""
        self._edge_noise_std: float | None = None
        self._nearest: tuple[tuple[int, ...], Header] | None = None

    @staticmethod
    def bytes_needed(*, n_rows: int, n_coils: int, grid: ReadoutGrid, n_partitions: int = 1) -> int:
        """Return the memory that a buffer of this size takes when all its rows are measured."""
        return n_partitions * n_rows * grid.n_columns * (n_coils * 8 + 4)

    @property
    def n_lines(self) -> int:
        """Rows that were measured."""
        return int(np.count_nonzero(self.times))

    @property
    def n_image_lines(self) -> int:
        """Rows with an imaging line."""
        return int(np.count_nonzero(self.is_image))

    @property
    def largest_count(self) -> int:
        """How often the most-measured row was measured."""
        return int(self.times.max())

    def is_filled(self, row: int) -> bool:
        """Whether a row was measured."""
        return 0 <= row < self.times.size and bool(self.times[row])

    @property
    def nearest_header(self) -> Header:
        """The header of the imaging readout nearest to the centre of k-space."""
        if self._nearest is None:
            raise ValueError("The slice has no imaging readout yet.")
        return self._nearest[1]

    def add(
        self,
        row: int,
        span: ReadoutSpan,
        data: NDArray[np.complex64],
        header: Header,
        labels: ReadoutLabels,
        *,
        is_calibration: bool,
        weight: float = 1.0,
    ) -> bool:
        """Add one readout, complex (coil, sample) in the order of k; return whether it was used.

        ``weight`` is the inverse variance of its noise, in any unit that is the same for all.
        """
        if is_calibration and self.is_image[row]:
            return False
        partition, row_in_page = divmod(row, self.n_rows)
        page = self._pages[partition]
        if page is None:
            page = self._pages[partition] = self._new_page()
        target = page[row_in_page]
        is_first = not self.times[row]
        if not is_calibration and not is_first and not self.is_image[row]:
            self.n_calibration_replaced += int(self.times[row])
            self.times[row] = 0
            self.weights[row] = 0
            is_first = True
        if is_first and span.size < self.grid.n_columns:
            target[...] = 0
        if weight != 1:
            data = data * np.float32(weight)
        zero = self.grid.n_columns // 2
        first, last, end = span.first, span.last, span.column + span.size
        # Columns from `zero` on come first in FFT order, those before it last.
        cut = first + min(max(zero - span.column, 0), span.size)
        if cut < last:
            start = max(span.column - zero, 0)
            _store(target[:, start : start + last - cut], data[:, cut:last], is_first)
        if first < cut:
            start = span.column + self.grid.n_columns - zero
            _store(target[:, start : start + cut - first], data[:, first:cut], is_first)
        _store(self.weights[row, span.column : end], weight, is_first)
        self.times[row] += 1
        if not is_calibration:
            self.is_image[row] = True
            self._remember(row, partition, row_in_page, header, labels)
        return True

    def _new_page(self) -> NDArray[np.complex64]:
        """Take memory whose parts are not touched before their rows are measured."""
        shape = (self.n_rows, self.n_coils, self.grid.n_columns)
        if self.n_partitions == 1:
            return np.empty(shape, np.complex64)
        # A mapping of its own goes back to the system when the page is given up; what malloc frees may not.
        return np.frombuffer(mmap.mmap(-1, 8 * math.prod(shape)), np.complex64).reshape(shape)

    def _remember(
        self, row: int, partition: int, row_in_page: int, header: Header, labels: ReadoutLabels
    ) -> None:
        distance = (row_in_page - self.n_rows // 2) ** 2 + (partition - self.n_partitions // 2) ** 2
        if self._nearest is not None and distance > self._nearest[0][0]:
            return
        rank = (distance, row, labels.average, labels.scan_counter)
        if self._nearest is None or rank < self._nearest[0]:
            self._nearest = (rank, kept_header(header))

    def columns(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.complex64]:
        """Return some columns (in FFT order) of measured rows, weighted sums: (row, coil, column)."""
        found = np.empty((rows.size, self.n_coils, columns.size), np.complex64)
        coils = np.arange(self.n_coils)
        for partition in np.unique(rows // self.n_rows):
            page = self._pages[partition]
            if page is None:
                raise RuntimeError("a row is read whose page was given up, or never measured")
            is_here = rows // self.n_rows == partition
            found[is_here] = page[np.ix_(rows[is_here] % self.n_rows, coils, columns)]
        return found

    def edge_noise_std(self) -> float:
        """Return :func:`gadget.scan.buffer_survey.edge_noise_std`, also when the pages were given up."""
        if self._edge_noise_std is None:
            self._edge_noise_std = edge_noise_std(self)
        return self._edge_noise_std

    def arrays(self, matrix: NDArray[np.complex128] | None, *, is_3d: bool = False) -> SliceArrays:
        """Average, remove oversampling, apply ``matrix`` (kept coil, coil) to the coils, and centre.

        Oversampling is removed exactly: inverse FFT along the readout, the middle of the field of view, FFT
        back. That needs complete readouts. Where any readout is incomplete (asymmetric echo, discarded
        samples) the unmeasured samples would mix with the measured ones, so all columns stay, and the image
        is cropped after the reconstruction instead.

        ``is_3d`` gives the k-space of the slab; without it that of the first partition, for a 2-D scan. A
        slab's pages are given up on the way: its rows can't be read afterwards.
        """
        n_pages = self.n_partitions if is_3d else 1
        if matrix is None:
            self.edge_noise_std()  # while the pages are there
        n_all = n_pages * self.n_rows
        is_filled = self.times[:n_all] > 0
        weights, n_columns = self.weights[:n_all], self.grid.n_columns
        smallest, largest, inverse_sum, n_measured = np.inf, 0.0, 0.0, 0
        for start in range(0, n_all, self.n_rows):
            measured = weights[start : start + self.n_rows]
            measured = measured[measured > 0]
            if measured.size:
                smallest = min(smallest, float(measured.min()))
                largest = max(largest, float(measured.max()))
                inverse_sum += float(np.sum(1 / measured, dtype=np.float64))
                n_measured += measured.size
        has_all_columns = n_measured == int(is_filled.sum()) * n_columns
        is_cropped = self.grid.n_kept < n_columns and n_measured > 0 and has_all_columns
        n_out = self.grid.n_kept if is_cropped else n_columns
        n_coils = self.n_coils if matrix is None else matrix.shape[0]
        samples: NDArray[np.complex64] = np.zeros((n_coils, n_all, n_out), np.complex64)
        is_weighted = not smallest == largest == 1
        for partition in range(n_pages):
            self._fill(samples, partition, matrix, is_cropped=is_cropped, is_weighted=is_weighted)
            if is_3d and self.n_partitions > 1:
                self._pages[partition] = None
        mask = np.repeat(is_filled[:, None], n_out, axis=1) if has_all_columns else weights > 0
        shape = (n_pages, self.n_rows, n_out) if is_3d else (self.n_rows, n_out)
        mean_inverse = self.unit_weight * inverse_sum / n_measured if n_measured else 1.0
        return SliceArrays(
            samples=samples.reshape(n_coils, *shape),
            mask=mask.reshape(shape),
            noise_factor=float(np.sqrt(mean_inverse)),
            counts_differ=n_measured > 0 and smallest != largest,
            is_cropped=is_cropped,
        )

    def _fill(
        self,
        samples: NDArray[np.complex64],
        partition: int,
        matrix: NDArray[np.complex128] | None,
        *,
        is_cropped: bool,
        is_weighted: bool,
    ) -> None:
        """Write one partition's rows into ``samples`` (coil, row of all partitions, column)."""
        page, first_row = self._pages[partition], partition * self.n_rows
        rows = np.flatnonzero(self.times[first_row : first_row + self.n_rows])
        if page is None or not rows.size:
            return
        n_out = samples.shape[2]
        zero = n_out // 2
        white = None if matrix is None else matrix.astype(np.complex64)
        for start in range(0, rows.size, _ROWS_PER_BLOCK):
            block_rows = rows[start : start + _ROWS_PER_BLOCK]
            is_run = block_rows[-1] - block_rows[0] == block_rows.size - 1
            block: NDArray[np.complex64]
            block = page[block_rows[0] : block_rows[-1] + 1] if is_run else page[block_rows]
            if is_weighted:
                weights = np.fft.ifftshift(self.weights[first_row + block_rows], axes=1)
                weights[weights == 0] = 1
                block = np.divide(block, weights[:, None, :], dtype=np.complex64)
            if is_cropped:
                image = scipy.fft.ifft(block, axis=2, norm="ortho")
                block = scipy.fft.fft(_middle(image, n_out), axis=2, norm="ortho", overwrite_x=True)
            if white is not None:
                block = combine_coils(white, block)
            block = block.transpose(1, 0, 2)
            samples[:, first_row + block_rows, zero:] = block[:, :, : n_out - zero]
            samples[:, first_row + block_rows, :zero] = block[:, :, n_out - zero :]


def _store(target: NDArray[Any], data: NDArray[np.complex64] | float, is_first: bool) -> None:
    if is_first:
        target[...] = data
    else:
        target += data


def _middle(image: NDArray[np.complex64], n_kept: int) -> NDArray[np.complex64]:
    """Keep the middle of the last axis; in FFT order it lies at both ends."""
    n_after = n_kept - n_kept // 2
    return np.concatenate([image[..., :n_after], image[..., image.shape[-1] - n_kept // 2 :]], axis=-1)
