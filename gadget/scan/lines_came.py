"""Which announced lines of one slice or slab have come, average by average."""

import numpy as np
from numpy.typing import NDArray

from gadget.scan.header import Encoding
from gadget.scan.phase_rows import PhaseRows, expected_lines


class LinesCame:
    """Imaging lines as they come, and the rule for when none is missing.

    None is missing of an average when all announced lines came: in R-fold accelerated scans every R-th from
    some first one (lines between, of a calibration that is imaging, too, do not count), along both
    directions; or, in 3-D scans accelerated along the partitions, where patterns may be sheared, as many as
    are announced.
    """

    def __init__(self, encoding: Encoding, rows: PhaseRows, partitions: PhaseRows, *, is_3d: bool) -> None:
        self.n_announced = expected_lines(encoding, is_3d=is_3d)
        """Lines that the header announces."""
        self._steps = encoding.acceleration if is_3d else (encoding.acceleration[0], 1)
        planes = partitions.announced if is_3d else range(1)
        lines = rows.announced
        self._fewest = (len(planes) // self._steps[1]) * (len(lines) // self._steps[0])
        self._announced = slice(planes.start, planes.stop), slice(lines.start, lines.stop)
        self._shape = partitions.n_rows if is_3d else 1, rows.n_rows
        self._came: dict[int, NDArray[np.bool_]] = {}
        self._n_came: dict[int, int] = {}
        self._whole: set[int] = set()
        limit = encoding.limits.get("average")
        self._n_averages = None if limit is None else limit.size
        says_3d = encoding.announces_partitions
        is_open = encoding.encoded.matrix[2] > 1 and "kspace_encoding_step_2" not in encoding.limits
        self._can_tell = says_3d if is_3d else not is_open

    def add(self, row: int, average: int) -> None:
        """Note that a line came; ``row`` counts through all partitions."""
        came = self._came.get(average)
        if came is None:
            came = self._came[average] = np.zeros(self._shape[0] * self._shape[1], np.bool_)
            self._n_came[average] = 0
        if came[row]:
            return
        came[row] = True
        self._n_came[average] += 1
        if self._n_came[average] >= self._fewest and self._is_whole(came):
            self._whole.add(average)

    def _is_whole(self, came: NDArray[np.bool_]) -> bool:
        announced = came.reshape(self._shape)[self._announced]
        step_1, step_2 = self._steps
        if step_2 > 1 and int(announced.sum()) >= self.n_announced:
            return True
        starts = ((first, second) for first in range(step_1) for second in range(step_2))
        return any(bool(announced[second::step_2, first::step_1].all()) for first, second in starts)

    def all_came(self, *, averages_kept: bool) -> bool:
        """Whether no announced line of no announced average is missing.

        Never, where the header does not give the number of averages (and they are combined), or leaves open
        whether the scan is 3-D.
        """
        if not self._whole or not self._can_tell:
            return False
        return averages_kept or (self._n_averages is not None and len(self._whole) >= self._n_averages)
