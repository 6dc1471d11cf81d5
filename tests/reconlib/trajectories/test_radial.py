"""Spokes: where their samples lie, and how they are recognised."""

import numpy as np
import pytest

from reconlib.trajectories.angles import golden_angle, stepped_angles
from reconlib.trajectories.radial import SpokeShift, radial_points, spoke_geometry


@pytest.mark.parametrize(
    ("n_samples", "first", "last"), [(8, -4.0, 3.0), (7, -3.0, 3.0)], ids=["even", "odd"]
)
def test_the_centre_is_at_half_the_samples(n_samples, first, last):
    points = radial_points(np.array([0.0, np.pi / 2]), n_samples)

    assert np.allclose(points[0, [0, -1]], [[first, 0], [last, 0]])
    assert np.allclose(points[1, [0, -1]], [[0, first], [0, last]])
    assert np.allclose(points[:, n_samples // 2], 0)


def test_twofold_oversampling_halves_the_steps():
    points = radial_points(np.array([np.pi / 6]), 16, spacing=0.5, centre=8)

    assert np.allclose(points[0, 10], [np.cos(np.pi / 6), np.sin(np.pi / 6)])


def test_a_shift_moves_spokes_along_their_gradients():
    shift = SpokeShift(xx=0.5, yy=-0.25, xy=0.125)

    moved = radial_points(np.array([0.0, np.pi / 2]), 6, spacing=0.5, shift=shift)

    still = radial_points(np.array([0.0, np.pi / 2]), 6, spacing=0.5)
    # 0.5 samples of 0.5 cycles along x for the spoke along x; the askew part goes across it
    assert np.allclose(moved[0] - still[0], [0.25, 0.0625])
    assert np.allclose(moved[1] - still[1], [0.0625, -0.125])


def test_the_geometry_of_spokes_is_found_again():
    angles = stepped_angles(13, golden_angle(7), first_rad=0.3)
    points = radial_points(angles, 40, centre=17.5, spacing=0.5)
    points[4] += 0.2 * np.array([-np.sin(angles[4]), np.cos(angles[4])])

    geometry = spoke_geometry(points)

    assert geometry is not None
    assert geometry.spacing == pytest.approx(0.5)
    assert np.allclose(geometry.nearest, 17.5)
    assert np.allclose(np.exp(1j * geometry.angles), np.exp(1j * angles))
    # the fourth spoke passes to the left of the centre, so the centre is to its right
    assert np.allclose(geometry.offsets, np.where(np.arange(13) == 4, -0.2, 0.0))


@pytest.mark.parametrize(
    "points",
    [
        radial_points(np.array([0.0, 1.0]), 20, centre=0),
        radial_points(np.array([0.0, 1.0]), 20) + np.array([0.0, 3.0]),
        radial_points(np.array([0.0, 1.0]), 20) * np.linspace(0.5, 1, 20)[:, None],
        np.zeros((3, 20, 2)),
        radial_points(np.array([0.0]), 3),
        np.stack([radial_points(np.array([0.0]), 20)[0], radial_points(np.array([0.0]), 20, spacing=0.7)[0]]),
    ],
    ids=["half spokes", "beside the centre", "uneven", "all at one point", "too short", "unequal"],
)
def test_what_is_no_set_of_spokes_is_not_taken_for_one(points):
    assert spoke_geometry(points) is None


def test_no_samples_are_no_spoke():
    with pytest.raises(ValueError, match="A spoke of 0 samples has no points"):
        radial_points(np.array([0.0]), 0)
