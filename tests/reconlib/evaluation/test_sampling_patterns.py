"""The patterns are the ones that results are quoted for, to the line."""

import numpy as np
import pytest
import torch

from reconlib.evaluation.sampling_patterns import (
    calibration_lines,
    mask_from_lines,
    random_cartesian_mask,
    random_lines,
    uniform_cartesian_mask,
    uniform_lines,
)


def written_out(n: int, acceleration: float, fraction: float, seed: int) -> list[bool]:
    """The rule of the published comparison, typed anew line by line."""
    centre = round(fraction * n)
    draws = np.random.default_rng(seed).uniform(size=n)
    start = (n - centre + 1) // 2
    kept = []
    for line in range(n):
        if start <= line < start + centre:
            kept.append(True)
        else:
            kept.append(bool(draws[line] < (n / acceleration - centre) / (n - centre)))
    return kept


@pytest.mark.parametrize(
    ("n", "acceleration", "fraction", "seed"),
    [
        (256, 4, 0.08, 42),
        (216, 4, 0.08, 42),
        (101, 4, 0.08, 1),
        (97, 2.5, 0.04, 7),
        (13, 3, 0.0, 3),
        (320, 8, 0.04, 0),
    ],
)
def test_random_lines_are_those_of_the_written_rule(n, acceleration, fraction, seed):
    lines = random_lines(n, acceleration=acceleration, calibration_fraction=fraction, seed=seed)
    assert lines.dtype == np.bool_
    assert lines.tolist() == written_out(n, acceleration, fraction, seed)


def test_default_pattern_of_256_lines_is_the_one_that_results_are_quoted_for():
    lines = random_lines(256)
    assert int(lines.sum()) == 64
    assert np.flatnonzero(lines)[:8].tolist() == [4, 8, 17, 27, 28, 36, 49, 51]


def test_on_average_as_many_lines_are_measured_as_the_acceleration_says():
    counts = [random_lines(200, acceleration=4, seed=seed).sum() for seed in range(400)]
    # Binomial: 184 lines at p = 34/184, so the mean of 400 draws has a standard deviation of 0.26.
    assert abs(np.mean(counts) - 50.0) < 5 * 0.27


def test_two_seeds_give_two_patterns_and_one_seed_the_same():
    assert np.array_equal(random_lines(128, seed=5), random_lines(128, seed=5))
    assert not np.array_equal(random_lines(128, seed=5), random_lines(128, seed=6))


@pytest.mark.parametrize(
    ("n", "centre", "first"), [(256, 20, 118), (255, 20, 118), (9, 3, 3), (8, 3, 3), (4, 4, 0)]
)
def test_calibration_lines_start_where_the_rule_says(n, centre, first):
    assert np.flatnonzero(calibration_lines(n, centre)).tolist() == list(range(first, first + centre))


@pytest.mark.parametrize("n", [31, 32, 33, 34])
@pytest.mark.parametrize("acceleration", [1, 2, 3, 5])
def test_uniform_lines_are_regular_and_hold_the_centre(n, acceleration):
    lines = uniform_lines(n, acceleration=acceleration, calibration_fraction=0.0)
    assert lines[n // 2]
    assert set(np.diff(np.flatnonzero(lines))) <= {acceleration}
    assert np.flatnonzero(lines)[0] < acceleration


def test_uniform_lines_can_start_elsewhere():
    assert np.flatnonzero(uniform_lines(10, acceleration=4, calibration_fraction=0.0, offset=3)).tolist() == [
        3,
        7,
    ]


def test_masks_lie_along_the_axis_that_was_asked_for():
    along_ky = random_cartesian_mask((40, 21), phase_axis="ky")
    along_kx = random_cartesian_mask((21, 40), phase_axis="kx")
    assert along_ky.shape == (1, 1, 40, 21)
    assert along_ky.dtype == torch.bool
    assert torch.equal(along_ky[0, 0, :, 0], torch.from_numpy(random_lines(40)))
    assert bool((along_ky == along_ky[..., :1]).all())
    assert torch.equal(along_kx, along_ky.transpose(-1, -2))


def test_uniform_mask_spreads_uniform_lines():
    mask = uniform_cartesian_mask((16, 5), acceleration=3, calibration_fraction=0.25)
    assert torch.equal(
        mask[0, 0, :, 4], torch.from_numpy(uniform_lines(16, acceleration=3, calibration_fraction=0.25))
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_lines(100, acceleration=0.5), "acceleration is 0.5"),
        (lambda: random_lines(100, acceleration=20.0), r"8 calibration lines are more than the 5\.0 lines"),
        (lambda: random_lines(100, calibration_fraction=1.2), "calibration_fraction is 1.2"),
        (lambda: random_lines(0), "0 lines is empty"),
        (lambda: uniform_lines(100, acceleration=0), "acceleration is 0"),
        (lambda: uniform_lines(100, acceleration=4, offset=4), "offset is 4"),
        (lambda: calibration_lines(4, 5), "5 calibration lines do not fit into 4"),
        (lambda: mask_from_lines(np.ones((2, 2), dtype=bool), 3), r"shape \(2, 2\)"),
    ],
)
def test_impossible_patterns_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
