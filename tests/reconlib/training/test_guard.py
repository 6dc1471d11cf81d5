"""What counts as diverging."""

import math

import pytest

from reconlib.training.guard import Guard, UpdateSeen
from reconlib.training.settings import GuardSettings


def guard(**settings) -> Guard:
    return Guard(GuardSettings(**{"gap_range": (-2.0, 1.0), "sample_range": (-1.0, 2.0), **settings}))


FINE = {"gradient_norm": 1.0, "gap": 0.2, "sample_range": (-0.1, 1.1)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"gap": -1.9}, None),
        ({"gap": 1.1}, r"the energy gap is 1.1 T per pixel (guard.gap_range allows -2 to 1)"),
        ({"gap": -2.1}, r"the energy gap is -2.1 T per pixel (guard.gap_range allows -2 to 1)"),
        ({"gap": math.nan}, "the energy gap is nan"),
        ({"gradient_norm": math.inf}, "the gradient norm is inf"),
        ({"loss": math.nan}, "the loss is nan"),
        ({"sample_range": (-1.5, 1.0)}, "samples range from -1.5 to 1 (guard.sample_range allows -1 to 2)"),
        ({"sample_range": (0.0, 2.5)}, "samples range from 0 to 2.5 (guard.sample_range allows -1 to 2)"),
        ({"sample_range": (0.0, math.nan)}, "samples range from 0 to nan"),
    ],
)
def test_limits_are_kept(changes, expected):
    found = guard().trouble(UpdateSeen(**{**FINE, **changes}))
    assert found is None if expected is None else found.startswith(expected)


@pytest.mark.parametrize("name", ["gradient_norm", "loss"])
def test_growth_is_measured_against_the_recent_median(name):
    watching = guard(max_growth=10.0)

    def trouble(value: float) -> str | None:
        return watching.trouble(UpdateSeen(**{"gradient_norm": 1.0, "loss": 1.0, name: value}))

    assert trouble(50.0) is None, "nothing to compare with yet"
    assert [trouble(v) for v in (0.5, 2.0, 1.0) * 12] == [None] * 36
    assert trouble(9.9) is None
    assert f"{name.replace('_', ' ')} is 10.5, 10.5 times its recent median" in trouble(10.5)
    # what was refused does not become the measure of what follows
    assert all(trouble(10.5) for _ in range(100))
    # slow growth over the memory of a hundred updates is no trouble
    assert [trouble(5.0) for _ in range(100)] == [None] * 100
    assert trouble(40.0) is None


def test_a_restored_guard_remembers():
    first, second = guard(max_growth=10.0), guard(max_growth=10.0)
    for _ in range(30):
        first.trouble(UpdateSeen(**FINE))
    second.restore(first.state())
    first.trouble(UpdateSeen(gradient_norm=500.0))
    assert second.trouble(UpdateSeen(gradient_norm=11.0)) is not None
    assert second.state() == first.state()
