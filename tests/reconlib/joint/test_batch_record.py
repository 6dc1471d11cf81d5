"""What is noted of a batch, iteration by iteration, and how its slices end."""

import dataclasses
import math

import pytest
import torch

from reconlib.joint.batch_record import ASKED_EVERY, CALM, BatchRecord
from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointTrace

CPU = torch.device("cpu")


def put(record: BatchRecord, energies: list[float], changes: list[float]) -> None:
    columns = {name: torch.ones(len(energies), dtype=torch.float64) for name in JointTrace.__slots__}
    columns["energy"] = torch.tensor(energies, dtype=torch.float64)
    columns["relative_change"] = torch.tensor(changes, dtype=torch.float64)
    record.put(**columns)


def test_slices_end_where_they_are_calm_or_not_finite_and_the_trace_ends_with_them():
    record = BatchRecord.start(4, CPU, 0.1)
    changes = [
        [0.05, 0.05, 0.5, 0.5],
        [0.05, 0.5, 0.5, 0.5],
        [0.05, 0.05, 0.5, math.inf],
        [0.05, 0.05, 0.5, 0.5],
    ]
    active = []
    for number, row in enumerate(changes):
        put(record, [9.0 - number] * 3 + [math.nan if number == 3 else 1.0], row)
        active.append(record.n_active)
    assert CALM == 3
    assert active == [4, 4, 2, 2]
    outcomes, counts = record.ends(out_of_time=False)
    assert outcomes == (
        Outcome.CONVERGED,
        Outcome.OUT_OF_ITERATIONS,
        Outcome.OUT_OF_ITERATIONS,
        Outcome.NOT_FINITE,
    )
    assert counts == (3, 4, 4, 3)
    assert record.ends(out_of_time=True)[0][1] is Outcome.OUT_OF_TIME
    energy = record.trace().energy
    assert energy[:, 1].tolist() == [9, 8, 7, 6]
    assert energy[:3, 0].tolist() == [9, 8, 7]
    assert energy[3].isnan().tolist() == [True, False, False, True]


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_a_device_is_asked_now_and_then_only_where_no_slice_can_converge(tolerance):
    record = BatchRecord.start(2, CPU, tolerance)
    assert record.is_asked, "on a CPU asking costs nothing"
    record = dataclasses.replace(record, is_asked=tolerance > 0)
    over = []
    for _ in range(ASKED_EVERY):
        put(record, [math.nan] * 2, [0.5] * 2)
        over.append(record.is_over())
    expected = [True] * ASKED_EVERY if tolerance else [False] * (ASKED_EVERY - 1) + [True]
    assert over == expected
    assert record.n_active == (0 if tolerance else 2)


def test_without_iterations_there_is_an_empty_trace():
    record = BatchRecord.start(3, CPU, 0.0)
    assert record.trace().energy.shape == (0, 3)
    assert record.ends(out_of_time=True) == ((Outcome.OUT_OF_TIME,) * 3, (0, 0, 0))
