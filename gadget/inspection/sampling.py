"""Which lines of k-space were measured, image by image, and which columns.

Rows are those of the assembled k-space (:mod:`gadget.scan.phase_rows`) where the encoding is
Cartesian and in the header, and the line numbers themselves where it is not.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError
from gadget.inspection.content import Pattern
from gadget.scan.header import Encoding
from gadget.scan.phase_rows import partition_rows, phase_rows
from gadget.scan.placement import readout_grid, readout_span
from gadget.scan.readout_kinds import ReadoutKind
from gadget.wire.headers import AcquisitionFlag as Flag

LETTERS = {0: ".", 1: "#", 2: "b", 3: "c"}
"""Never measured, imaging, imaging that serves as calibration too, calibration only."""
LEGEND = "# imaging, b imaging and calibration, c calibration only, . never measured"
MAX_COUNTS = 64 * 2**20
"""Counters kept for images one by one; those of further images are added up."""
MAX_LINES = 4 * 2**20
"""Rows times partitions above which an encoding is not drawn: its counters are nonsense."""
MOST_PIXELS = 2048
"""Rows and columns of a picture; larger ones show blocks."""
MAX_SPANS = 256
"""Different ranges of columns of an encoding; further ones count as not placed."""

_NAMES = ("slice", "contrast", "phase", "repetition", "set")
_ALL = (-1,) * len(_NAMES)


def codes_of(counts: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the numbers of the letters from counts by class (first axis)."""
    imaging, both, calibration = counts > 0
    codes: NDArray[np.uint8] = np.zeros(imaging.shape, np.uint8)
    for number, is_there in ((3, calibration), (1, imaging), (2, both)):
        codes[is_there] = number
    return codes


@dataclass(slots=True, eq=False)
class LineCounts:
    """How often each row was measured in one image."""

    counts: NDArray[np.uint32]
    """(class, partition, row); classes are the numbers of ``LETTERS`` less one."""

    def codes(self) -> NDArray[np.uint8]:
        """Return the number of the letter for each (partition, row)."""
        return codes_of(self.counts)


@dataclass(slots=True, eq=False)
class EncodingSampling:
    """The sampling of one encoding."""

    n_rows: int
    n_partitions: int
    n_columns: int
    is_centred: bool
    """Whether the zero frequency is known to be at n // 2 of each axis: Cartesian, and in the header."""
    images: dict[tuple[int, ...], LineCounts] = field(default_factory=dict)
    n_outside: int = 0
    """Readouts whose row or partition lies outside the matrix."""
    n_unplaced: int = 0
    """Readouts whose samples do not fit the columns."""
    spans: dict[tuple[int, int], NDArray[np.uint32]] = field(default_factory=dict)
    """(class, row) by first column and the one after the last: how often a row was measured there, all
    partitions and images together. Columns count from the zero frequency where ``is_centred``."""

    def make_room(self, first: int, last: int) -> None:
        """Take more columns where a readout has more than the header says."""
        self.n_columns = max(self.n_columns, 2 * max(-first, last) if self.is_centred else last)

    def grow(self, n_rows: int, n_partitions: int) -> None:
        """Take more rows and partitions, at the end."""
        n_rows, n_partitions = max(n_rows, self.n_rows), max(n_partitions, self.n_partitions)
        if (n_rows, n_partitions) == (self.n_rows, self.n_partitions):
            return
        more = ((0, 0), (0, n_partitions - self.n_partitions), (0, n_rows - self.n_rows))
        for image in self.images.values():
            image.counts = np.pad(image.counts, more)
        for columns, counts in self.spans.items():
            self.spans[columns] = np.pad(counts, (more[0], more[2]))
        self.n_rows, self.n_partitions = n_rows, n_partitions

    def _placed(self) -> Iterator[tuple[int, int, NDArray[np.uint32]]]:
        zero = self.n_columns // 2 if self.is_centred else 0
        for (first, last), counts in self.spans.items():
            yield max(first + zero, 0), min(last + zero, self.n_columns), counts

    def column_counts(self) -> NDArray[np.int64]:
        """Return how often each column was measured, by all readouts: (class, column)."""
        steps = np.zeros((3, self.n_columns + 1), np.int64)
        for first, last, counts in self._placed():
            n_readouts = counts.sum(axis=1, dtype=np.int64)
            steps[:, first] += n_readouts
            steps[:, last] -= n_readouts
        return steps.cumsum(axis=1)[:, :-1]

    def sample_codes(self) -> NDArray[np.uint8]:
        """Return the number of the letter for each (row, column); large pictures in blocks."""
        high, wide = (max(1, -(-n // MOST_PIXELS)) for n in (self.n_rows, self.n_columns))
        n_rows, n_columns = -(-self.n_rows // high), -(-self.n_columns // wide)
        total = np.zeros((3, n_rows, n_columns), np.uint32)
        for first, last, counts in self._placed():
            blocks = np.pad(counts, ((0, 0), (0, n_rows * high - self.n_rows)))
            blocks = blocks.reshape(3, n_rows, high).max(axis=2)
            total[:, :, first // wide : -(-last // wide)] += blocks[:, :, None]
        return codes_of(total)

    def total(self) -> LineCounts:
        """Return the sum over all images."""
        return LineCounts(np.sum([one.counts for one in self.images.values()], axis=0))


class SamplingTally:
    """Counts measured lines over the headers of imaging and calibration readouts."""

    def __init__(self, encodings: tuple[Encoding, ...]) -> None:
        self.encodings: dict[int, EncodingSampling] = {}
        self._headers = {encoding.index: encoding for encoding in encodings}
        self._n_counts = 0
        self.n_too_large = 0
        """Readouts of encodings with too many rows to be counted."""

    def add(self, headers: NDArray[Any], kinds: NDArray[Any]) -> None:
        """Add a block of readouts: headers and kinds of equal length."""
        is_image = np.array([kind is ReadoutKind.IMAGE for kind in kinds], np.bool_)
        is_calibration = np.array([kind is ReadoutKind.CALIBRATION for kind in kinds], np.bool_)
        is_both = headers["flags"] & np.uint64(Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING.bit) != 0
        classes = np.where(is_calibration, 2, np.where(is_both, 1, 0))
        for index in np.unique(headers["encoding_space_ref"][is_image | is_calibration]):
            chosen = (is_image | is_calibration) & (headers["encoding_space_ref"] == index)
            self._add_lines(int(index), headers[chosen], classes[chosen])

    def _add_lines(self, index: int, headers: NDArray[Any], classes: NDArray[np.int64]) -> None:
        encoding = self._headers.get(index)
        if encoding is not None and encoding.trajectory != "cartesian":
            encoding = None
        rows = headers["idx"]["kspace_encode_step_1"].astype(np.int64)
        partitions = headers["idx"]["kspace_encode_step_2"].astype(np.int64)
        n_rows, n_partitions, n_columns = int(rows.max()) + 1, int(partitions.max()) + 1, 0
        if encoding is not None:
            lines = phase_rows(encoding)
            rows += lines.n_rows // 2 - lines.center
            n_rows, n_columns = lines.n_rows, encoding.encoded.matrix[0]
            n_partitions = min(n_partitions, encoding.encoded.matrix[2])
            if encoding.announces_partitions:
                lines = partition_rows(encoding)
                partitions += lines.n_rows // 2 - lines.center
                n_partitions = lines.n_rows
        if n_rows * n_partitions > MAX_LINES:
            self.n_too_large += len(headers)
            return
        sampling = self._of(index, n_rows, n_partitions, n_columns, is_centred=encoding is not None)
        is_inside = (
            (rows >= 0) & (rows < sampling.n_rows) & (partitions >= 0) & (partitions < sampling.n_partitions)
        )
        sampling.n_outside += int((~is_inside).sum())
        headers, classes = headers[is_inside], classes[is_inside]
        rows, partitions = rows[is_inside], partitions[is_inside]
        keys = np.stack([headers["idx"][name] for name in _NAMES], axis=1)
        for key in np.unique(keys, axis=0):
            chosen = (keys == key).all(axis=1)
            counts = self._counts_of(sampling, tuple(int(value) for value in key))
            np.add.at(counts, (classes[chosen], partitions[chosen], rows[chosen]), 1)
        self._add_columns(sampling, encoding, headers, classes, rows)

    def _of(
        self, index: int, n_rows: int, n_partitions: int, n_columns: int, *, is_centred: bool
    ) -> EncodingSampling:
        """Return the sampling of an encoding, made or grown to this size."""
        found = self.encodings.get(index)
        if found is None:
            found = EncodingSampling(n_rows, n_partitions, n_columns, is_centred=is_centred)
            self.encodings[index] = found
        else:
            found.grow(n_rows, n_partitions)
        return found

    def _counts_of(self, sampling: EncodingSampling, key: tuple[int, ...]) -> NDArray[np.uint32]:
        if key not in sampling.images and self._n_counts >= MAX_COUNTS:
            key = _ALL
        if key not in sampling.images:
            counts = np.zeros((3, sampling.n_partitions, sampling.n_rows), np.uint32)
            self._n_counts += counts.size
            sampling.images[key] = LineCounts(counts)
        return sampling.images[key].counts

    def _add_columns(
        self,
        sampling: EncodingSampling,
        encoding: Encoding | None,
        headers: NDArray[Any],
        classes: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> None:
        names = ("number_of_samples", "center_sample", "discard_pre", "discard_post")
        is_reversed = headers["flags"] & np.uint64(Flag.IS_REVERSE.bit) != 0
        spans = np.stack([*(headers[name].astype(np.int64) for name in names), is_reversed], axis=1)
        for span in np.unique(spans, axis=0):
            chosen = (spans == span).all(axis=1)
            columns = _columns(encoding, *(int(value) for value in span))
            if columns is None or (columns not in sampling.spans and len(sampling.spans) >= MAX_SPANS):
                sampling.n_unplaced += int(chosen.sum())
                continue
            if columns not in sampling.spans:
                sampling.spans[columns] = np.zeros((3, sampling.n_rows), np.uint32)
            np.add.at(sampling.spans[columns], (classes[chosen], rows[chosen]), 1)
            sampling.make_room(*columns)

    def patterns(self) -> tuple[Pattern, ...]:
        """Return the patterns that occur, each with the images that have it."""
        patterns = []
        for index, sampling in sorted(self.encodings.items()):
            alike: dict[bytes, list[tuple[int, ...]]] = defaultdict(list)
            for key in sorted(sampling.images):
                alike[sampling.images[key].codes().tobytes()].append(key)
            for keys in alike.values():
                first = sampling.images[keys[0]]
                codes = first.codes()
                patterns.append(
                    Pattern(
                        encoding=index,
                        images=images_in_words(keys),
                        n_images=len(keys),
                        n_rows=sampling.n_rows,
                        n_partitions=sampling.n_partitions,
                        center_row=sampling.n_rows // 2 if sampling.is_centred else 0,
                        n_imaging=int(((codes == 1) | (codes == 2)).sum()),
                        n_calibration=int((codes == 3).sum()),
                        largest_count=max(
                            int(sampling.images[key].counts.sum(axis=0).max(initial=0)) for key in keys
                        ),
                        codes=tuple("".join(LETTERS[int(code)] for code in line) for line in codes),
                    )
                )
        return tuple(patterns)


def images_in_words(keys: list[tuple[int, ...]]) -> str:
    """Say which images these are: the values of each counter that is not always 0."""
    if keys == [_ALL]:
        return "images that were too many to tell apart"
    parts = []
    for name, values in zip(_NAMES, zip(*keys, strict=True), strict=True):
        if name == "slice" or any(values):
            parts.append(f"{name} {ranges_in_words(sorted(set(values)))}")
    return ", ".join(parts)


def ranges_in_words(values: list[int]) -> str:
    """Write whole numbers in increasing order as ranges: ``0-3, 7``."""
    texts: list[str] = []
    start = previous = None
    for value in [*values, None]:
        if previous is not None and value == previous + 1:
            previous = value
            continue
        if start is not None:
            texts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = value
    return ", ".join(texts)


def _columns(
    encoding: Encoding | None, n_samples: int, center: int, pre: int, post: int, is_reversed: int
) -> tuple[int, int] | None:
    """Return the first column of a readout and the one after its last, from the zero frequency on.

    Without an encoding they are the numbers of the samples. None where the readout does not fit the matrix.
    """
    if encoding is None:
        return pre, max(pre, n_samples - post)
    try:
        grid = readout_grid(encoding, n_samples, center)
        span = readout_span(
            grid, n_samples, center, discard_pre=pre, discard_post=post, is_reversed=bool(is_reversed)
        )
    except ScanError:
        return None
    start = span.column - grid.n_columns // 2
    return start, start + span.size
