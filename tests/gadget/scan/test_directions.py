"""Directions that do not place an image."""

import math

import pytest

from gadget.scan.directions import direction_warnings

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    "directions",
    [(X, Y, Z), (Y, X, Z), ((0.6, 0.8, 0.0), (-0.8, 0.6, 0.0), (0.0, 0.0, -1.0)), (X, Y, (0, 1e-4, 1))],
)
def test_unit_vectors_at_right_angles_are_fine_whatever_their_hand(directions):
    assert direction_warnings(*directions) == ()


@pytest.mark.parametrize(
    ("directions", "words"),
    [
        (((0.0, 0.0, 0.0), Y, Z), "read_dir is not given (0, 0, 0)"),
        ((X, (0.0, 1.01, 0.0), Z), "phase_dir has the length 1.01 instead of 1"),
        ((X, (0.0, math.nan, 0.0), Z), "phase_dir has the length nan instead of 1"),
        ((X, Y, (0.0, 0.5, math.sqrt(0.75))), "phase_dir and slice_dir make an angle of 60.0 degrees"),
        ((X, X, Z), "read_dir and phase_dir make an angle of 0.0 degrees instead of 90"),
    ],
)
def test_each_fault_is_a_warning_that_says_what_it_means(directions, words):
    (warning,) = direction_warnings(*directions)
    assert warning.startswith(words)
    assert warning.endswith("directions are passed on as they came")


def test_all_faults_are_told():
    assert len(direction_warnings((2.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0))) == 4
