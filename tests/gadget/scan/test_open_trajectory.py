"""Which readouts of a non-Cartesian slice or stack came: each of the announced ones, once at least."""

import time

from gadget.scan.header import Encoding
from gadget.scan.open_trajectory import OpenTrajectory
from gadget.scan.readout_labels import labels_of
from gadget.wire.messages import Acquisition
from tests.gadget.scan.trajectory_scans import ENCODING, partitions, without_points

STACK = partitions(ENCODING, 3)
N_SPOKES = 24


def stack(numbers: list[int], **fields: int) -> list[Acquisition]:
    return without_points(numbers, 4, **fields)


def complete_at(encoding: Encoding, readouts: list[Acquisition]) -> list[int]:
    """Return after which readouts (from 1) all announced ones came."""
    slice_ = OpenTrajectory(encoding=encoding)
    found = []
    for number, readout in enumerate(readouts, start=1):
        slice_.add(readout, labels_of(readout.header), "A readout", 2**30)
        if slice_.all_came(averages_kept=True):
            found.append(number)
    return found


def test_a_readout_that_comes_again_stands_for_no_other() -> None:
    spokes = list(range(N_SPOKES))
    assert complete_at(ENCODING, stack([*spokes[:-1], 0, 1, spokes[-1]])) == [N_SPOKES + 2]


def test_a_readout_outside_the_limits_stands_for_none() -> None:
    spokes = list(range(N_SPOKES))
    assert complete_at(ENCODING, stack([*spokes[:-1], N_SPOKES, N_SPOKES + 1])) == []
    assert (
        complete_at(STACK, [one for page in range(1, 4) for one in stack(spokes, kspace_encode_step_2=page)])
        == []
    )


def test_averages_are_counted_apart() -> None:
    spokes = list(range(N_SPOKES))
    assert complete_at(ENCODING, [*stack(spokes[:12]), *stack(spokes[12:], average=1)]) == []


def test_a_readout_costs_the_same_in_a_large_stack() -> None:
    """To look through all that is announced took 10 ms for each readout of a stack of 64 x 400."""

    def seconds(n_partitions: int) -> float:
        encoding = partitions(ENCODING, n_partitions)
        readouts = [
            one for page in range(20) for one in stack(list(range(N_SPOKES)), kspace_encode_step_2=page)
        ]
        start = time.process_time()
        assert complete_at(encoding, readouts) == []
        return time.process_time() - start

    seconds(21)
    small, large = (min(seconds(n) for _ in range(3)) for n in (21, 21 * 50))
    assert large < 10 * small
