"""The readouts of one slice, or stack, of a non-Cartesian scan while they arrive."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from gadget.errors import ScanError
from gadget.scan.header import Encoding, Limit
from gadget.scan.kept_readout import kept_copy
from gadget.scan.open_slice import TRUSTED_PART
from gadget.scan.phase_rows import partition_rows
from gadget.scan.readout_kinds import known_dwell
from gadget.scan.readout_labels import ReadoutLabels
from gadget.wire.messages import Acquisition, Header


@dataclass(slots=True, kw_only=True)
class OpenTrajectory:
    """The readouts of one slice or stack so far.

    Readouts are counted by ``kspace_encode_step_1`` (spoke or interleave), in stacks by
    ``kspace_encode_step_2`` (partition), too. The header announces them by the limits of these counters; in
    R-fold accelerated scans every R-th is enough. Limits of one readout, or none, announce nothing.
    """

    encoding: Encoding
    is_late: bool = False
    """Whether this key was closed before: these readouts came after it."""
    was_flagged: bool = False
    """Whether a LAST flag has come."""
    was_flagged_early: bool = False
    """Whether one came before ``TRUSTED_PART`` of the readouts: flags end shots then, not slices."""
    readouts: list[tuple[Acquisition, str]] = field(default_factory=list)
    """In the order of arrival, with their names for messages."""
    bytes_held: int = 0
    n_announced: int = field(init=False)
    """Readouts of one average that the header announces; 0 where it does not say."""
    _numbers: range = field(init=False)
    _partitions: range = field(init=False)
    _came: dict[int, Counter[tuple[int, int]]] = field(init=False, default_factory=dict)
    """By average: how often each readout came, by partition and number."""
    _n_announced_came: Counter[int] = field(init=False, default_factory=Counter)
    """By average: how many of those that lie within the limits came, each counted once."""

    def __post_init__(self) -> None:
        limits, step_1, step_2 = self.encoding.limits, *self.encoding.acceleration
        number = limits.get("kspace_encoding_step_1")
        partition = limits.get("kspace_encoding_step_2") or Limit(minimum=0, maximum=0, center=0)
        is_silent, is_stack = number is None or number.size == 1, self.encoding.announces_partitions
        self._numbers = range(0) if number is None or is_silent else _range_of(number)
        self._partitions = _range_of(partition) if is_stack else range(1)
        self.n_announced = -(-len(self._numbers) // step_1) * -(-len(self._partitions) // step_2)

    @property
    def n_averages(self) -> int:
        """How often the readout that came most often did, over all averages."""
        return max(sum(self._came.values(), Counter()).values(), default=0)

    def add(self, acquisition: Acquisition, labels: ReadoutLabels, name: str, max_bytes: int) -> None:
        """Keep a readout.

        Raises
        ------
        ScanError
            It does not fit in ``max_bytes`` beside what is kept.
        """
        own = kept_copy(acquisition)
        self.bytes_held += n_bytes_of(own)
        if self.bytes_held > max_bytes:
            raise ScanError(
                f"{name}: its slice holds {len(self.readouts)} readouts, and no more memory is left for "
                "slices that are being received. Raise the limit, or check the scan's LAST_IN_SLICE flags."
            )
        self.readouts.append((own, name))
        of_average = self._came.setdefault(labels.average, Counter())
        partition = labels.kspace_encode_step_2 if self.encoding.announces_partitions else 0
        place = partition, labels.kspace_encode_step_1
        of_average[place] += 1
        is_announced = place[1] in self._numbers and partition in self._partitions
        self._n_announced_came[labels.average] += is_announced and of_average[place] == 1

    def all_came(self, *, averages_kept: bool) -> bool:
        """Whether no announced readout of any announced average is missing; not, where none is announced."""
        if not len(self._numbers):
            return False
        n_in_limits = len(self._partitions) * len(self._numbers)
        whole = sum(n_came == n_in_limits for n_came in self._n_announced_came.values())
        limit = self.encoding.limits.get("average")
        return whole >= 1 if averages_kept else limit is not None and whole >= limit.size

    def has_most(self, part: float = TRUSTED_PART) -> bool:
        """Whether ``part`` of the announced readouts came, by number of readouts per average."""
        return len(self.readouts) >= part * self.n_announced * max(1, len(self._came))

    def has_all_announced(self, *, averages_kept: bool, part: float = 1.0) -> bool:
        """Whether the slice has what the header announces, so that a LAST flag can be believed."""
        if not self.has_most(part):
            return False
        limit = self.encoding.limits.get("average")
        return averages_kept or limit is None or len(self._came) >= limit.size


def _range_of(limit: Limit) -> range:
    return range(limit.minimum, limit.maximum + 1)


def n_bytes_of(acquisition: Acquisition) -> int:
    """Return the memory of a readout."""
    return int(acquisition.data.nbytes + acquisition.trajectory.nbytes)


def in_order(readouts: list[Acquisition]) -> list[Acquisition]:
    """Return readouts in the order of measurement, whichever came first: an image does not depend on it."""

    def place(readout: Acquisition) -> tuple[int, ...]:
        header = readout.header
        idx = header["idx"]
        counters = ("repetition", "average", "segment", "kspace_encode_step_2", "kspace_encode_step_1")
        return (int(header["scan_counter"]), *(int(idx[name]) for name in counters))

    return sorted(readouts, key=place)


def by_partition(readouts: list[Acquisition], encoding: Encoding, label: str) -> list[list[Acquisition]]:
    """Part the readouts of a stack into its partitions, in the order of kz; one list where it is none.

    Raises
    ------
    ScanError
        A partition has no readouts, or other numbers of readouts than others; or one lies outside.
    """
    if not encoding.announces_partitions:
        return [readouts]
    rows = partition_rows(encoding)
    partitions: list[list[Acquisition]] = [[] for _ in range(rows.n_rows)]
    for readout in readouts:
        row = rows.row(int(readout.header["idx"]["kspace_encode_step_2"]))
        if row is None:
            raise ScanError(
                f"{label}: a readout has kspace_encode_step_2 "
                f"{int(readout.header['idx']['kspace_encode_step_2'])}, which lies outside of the stack: "
                f"{rows.describe()}. Check encodedSpace.matrixSize.z and the limits of this counter."
            )
        partitions[row].append(readout)
    numbers = [len(partition) for partition in partitions]
    if min(numbers) != max(numbers):
        raise ScanError(
            f"{label}: a stack whose {rows.n_rows} partitions have {min(numbers)} to {max(numbers)} "
            "readouts, which is not supported: it is transformed along the stack first, which needs the same "
            "readouts in all partitions. Measure all of them (no partial Fourier, acceleration or elliptical "
            "scanning along the stack)."
        )
    return [in_number_order(partition) for partition in partitions]


def in_number_order(readouts: list[Acquisition]) -> list[Acquisition]:
    """Return readouts by the number of their spoke or interleave, the order being kept beyond that."""
    return sorted(readouts, key=lambda readout: int(readout.header["idx"]["kspace_encode_step_1"]))


def common_dwell(readouts: list[Acquisition], label: str) -> float:
    """Return the dwell time of readouts in microseconds; 0 where it is not known.

    Raises
    ------
    ScanError
        They have several: their noise would differ.
    """
    dwells = np.array(sorted({known_dwell(readout.header) for readout in readouts} - {0.0}))
    if dwells.size and dwells[-1] > 1.01 * dwells[0]:
        raise ScanError(
            f"{label}: its readouts have dwell times from {dwells[0]:g} to {dwells[-1]:g} us, which is not "
            "supported for non-Cartesian readouts: their noise differs. Measure them with one bandwidth."
        )
    return float(dwells[0]) if dwells.size else 0.0


def middle_header(readouts: list[Acquisition]) -> Header:
    """Return the header of the readout in the middle of the measurement: it stands for the image's."""
    return readouts[len(readouts) // 2].header
