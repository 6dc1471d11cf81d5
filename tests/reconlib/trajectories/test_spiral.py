"""Spirals: where they begin and end, how densely they lie."""

import numpy as np
import pytest

from reconlib.trajectories.spiral import spiral_points


def test_interleaves_start_at_the_centre_and_end_at_the_edge_one_turned_against_the_next():
    points = spiral_points(5, 301, k_max=24.0, n_turns=3.0)

    assert points.shape == (5, 301, 2)
    assert np.allclose(points[:, 0], 0)
    assert np.allclose(np.hypot(*points[:, -1].T), 24.0)
    first, second = (points[i, :, 0] + 1j * points[i, :, 1] for i in (0, 1))
    assert np.allclose(second, first * np.exp(2j * np.pi / 5))


def test_turns_of_constant_density_are_evenly_apart():
    points = spiral_points(1, 4000, k_max=30.0, n_turns=10.0)[0]

    radius, turn = np.hypot(*points.T), np.unwrap(np.arctan2(points[1:, 1], points[1:, 0])) / (2 * np.pi)

    assert np.allclose(radius[1:], 3.0 * (turn - turn[0]) + radius[1], atol=1e-2)


def test_the_centre_is_denser_with_a_larger_exponent():
    radius_at_half = [
        np.hypot(*_at_turn(spiral_points(1, 4000, k_max=32.0, n_turns=8.0, density=alpha)[0], 4.0))
        for alpha in (1.0, 2.0)
    ]

    assert radius_at_half == pytest.approx([16.0, 8.0], abs=0.05)


def test_samples_are_evenly_spaced_along_the_path_away_from_the_centre():
    points = spiral_points(1, 500, k_max=32.0, n_turns=8.0)[0]

    steps = np.hypot(*np.diff(points, axis=0).T)

    assert np.ptp(steps[250:]) < 0.01 * steps[250:].mean()
    assert steps.max() < 1.01 * steps[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_samples": 1}, "5 interleaves of 1 samples"),
        ({"n_turns": 0}, "n_turns 0"),
        ({"angles": np.zeros(4)}, r"angles of shape \(4,\) \(one for each of 5"),
    ],
)
def test_spirals_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        spiral_points(**({"n_interleaves": 5, "n_samples": 30, "k_max": 24.0, "n_turns": 3.0} | changes))


def _at_turn(points, turn):
    turns = np.unwrap(np.arctan2(points[1:, 1], points[1:, 0])) / (2 * np.pi)
    return points[1 + int(np.argmin(np.abs(turns - turn)))]
