"""Angles: closed forms, and the property that makes them golden."""

import numpy as np
import pytest

from reconlib.trajectories.angles import (
    golden_angle,
    shares_of_half_circle,
    stepped_angles,
    uniform_angles,
)


# Wundrak et al., IEEE Trans Med Imaging 34:1262 (2015), table 1, in degrees
@pytest.mark.parametrize(
    ("number", "degrees"),
    [(1, 111.2461179750), (2, 68.7538820250), (3, 49.7507764), (4, 38.9776), (5, 32.0397), (7, 23.6281)],
)
def test_tiny_golden_angles_are_those_that_were_published(number, degrees):
    assert np.degrees(golden_angle(number)) == pytest.approx(degrees, abs=5e-5)


def test_golden_angles_are_exact():
    assert golden_angle(1) == pytest.approx(np.pi * (np.sqrt(5) - 1) / 2, rel=1e-15)
    assert golden_angle(2) == pytest.approx(np.pi * (3 - np.sqrt(5)) / 2, rel=1e-15)


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_fibonacci_number_of_golden_spokes_leaves_no_large_gap(number):
    # generalised Fibonacci numbers: 1, N, N + 1, ...
    terms = [1, number]
    while len(terms) < 9:
        terms.append(terms[-1] + terms[-2])

    shares = shares_of_half_circle(stepped_angles(terms[-1], golden_angle(number)))

    assert shares.sum() == pytest.approx(np.pi, rel=1e-12)
    # two gaps only, in the golden ratio; the share is the mean of two neighbouring gaps
    assert shares.max() / shares.min() < 1.3


def test_uniform_spokes_halve_the_circle_and_interleaves_fill_it():
    assert np.allclose(np.degrees(uniform_angles(4)), [0, 45, 90, 135])
    assert np.allclose(np.degrees(uniform_angles(4, full_circle=True)), [0, 90, 180, 270])


def test_steps_count_from_the_given_spokes_and_the_first_angle():
    angles = stepped_angles(np.array([0, 3, 100_000]), 2 * np.pi / 7, first_rad=0.1)

    assert np.allclose(angles, 0.1 + 2 * np.pi / 7 * np.array([0, 3, 100_000 % 7]))


def test_an_opposed_spoke_shares_what_is_its_opposites():
    shares = shares_of_half_circle(np.radians([0.0, 180.0, 90.0, 30.0]))

    # gaps modulo 180 degrees: 0 to 30, 30 to 90, 90 to 180
    assert np.allclose(np.degrees(shares), [30.0, 30.0, 75.0, 45.0])


def test_a_single_spoke_has_the_whole_half_circle():
    assert shares_of_half_circle(np.array([1.0])).tolist() == [np.pi]


@pytest.mark.parametrize("call", [lambda: golden_angle(0), lambda: uniform_angles(0)])
def test_there_is_no_angle_without_a_number(call):
    with pytest.raises(ValueError, match=r"counted from 1|at least 1"):
        call()
