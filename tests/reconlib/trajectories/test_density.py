"""Density weights: areas in closed form, and A^H W A near the identity."""

import numpy as np
import pytest
import torch

from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.trajectories.angles import golden_angle, stepped_angles, uniform_angles
from reconlib.trajectories.coordinates import transform_points
from reconlib.trajectories.density import (
    density_weights,
    iterative_weights,
    ramp_weights,
    scaled_to_identity,
)
from reconlib.trajectories.radial import radial_points, spoke_geometry
from reconlib.trajectories.spiral import spiral_points

MATRIX = (32, 32)


def transform(points, matrix=MATRIX):
    """Forward and adjoint, on images (1, 1, y, x)."""
    trajectory = transform_points(points, matrix)
    return NonuniformFourier.plan(trajectory, matrix, eps=1e-8, dtype=torch.complex128)


def weights_of(points):
    """Iterative weights, on the doubled grid that they need."""
    twice = transform(2 * points, (64, 64))
    start = torch.ones(points.shape[0] * points.shape[1], dtype=torch.float64)
    weights = iterative_weights(twice.forward, twice.adjoint, start, (64, 64))
    return scaled_to_identity(weights, transform(points).forward, MATRIX)


def spot(width):
    """A Gaussian spot off the centre, which the disc of k-space holds."""
    y, x = torch.meshgrid(*[torch.arange(32.0, dtype=torch.float64) - 16] * 2, indexing="ij")
    return torch.exp(-((y - 3).square() + (x + 5).square()) / (2 * width**2)).to(torch.complex128)[None, None]


def relative_error(points, weights, width=1.5):
    pair, image = transform(points), spot(width)
    back = pair.adjoint(pair.forward(image) * weights)
    return float((back - image).norm() / image.norm())


@pytest.mark.parametrize("spacing", [1.0, 0.5])
def test_ramp_weights_of_uniform_spokes_are_areas(spacing):
    weights = ramp_weights(uniform_angles(20), 64, centre=32, spacing=spacing)

    # a ring's area 2 pi r dr over the 2 x 20 samples at that radius
    assert weights[7, 40] == pytest.approx(2 * np.pi * 8 * spacing * spacing / 40)
    assert weights[7, 24] == pytest.approx(weights[7, 40])
    # at the centre spacing^2 / 6 per rad
    assert weights[7, 32] == pytest.approx(spacing**2 / 6 * np.pi / 20)


@pytest.mark.parametrize("centre", [32, 31.5, 31.8])
def test_ramp_weights_integrate_what_is_smooth(centre):
    # the integral of exp(-|k|^2 / (2 s^2)) over the plane is 2 pi s^2
    angles = uniform_angles(12)
    radius = (np.arange(64) - centre) * 0.5

    weights = ramp_weights(angles, 64, centre=centre, spacing=0.5)

    total = (weights * np.exp(-(radius**2) / (2 * 3.0**2))).sum()
    # without the correction at the kink it would be off by up to 1 part in 200
    assert total == pytest.approx(2 * np.pi * 9.0, rel=2e-4)


def test_ramp_weights_heed_uneven_angles():
    weights = ramp_weights(np.radians([0.0, 90.0, 110.0]), 8, centre=4)

    # gaps of 90, 20 and 70 degrees: shares of 80, 55 and 45
    assert np.allclose(weights[:, 7] / weights[:, 7].sum(), np.array([80, 55, 45]) / 180)


@pytest.mark.parametrize(
    "angles",
    [uniform_angles(55), stepped_angles(60, golden_angle())],
    ids=["uniform", "golden"],
)
def test_with_ramp_weights_the_adjoint_gives_the_image_back(angles):
    points = radial_points(angles, 64, spacing=0.5)
    weights = torch.from_numpy(ramp_weights(angles, 64, centre=32, spacing=0.5).ravel())

    assert relative_error(points, weights) < 0.02
    assert relative_error(points, torch.full_like(weights, float(weights.mean()))) > 0.5


@pytest.mark.parametrize("density", [1.0, 1.3])
def test_with_iterative_weights_the_adjoint_of_a_spiral_gives_the_image_back(density):
    points = spiral_points(10, 300, k_max=16, n_turns=2.2, density=density)

    weights = weights_of(points)

    assert bool((weights > 0).all())
    assert relative_error(points, weights) < 0.03


def test_iterative_weights_of_spokes_rise_with_the_radius_as_the_ramp_does():
    angles = uniform_angles(55)
    points = radial_points(angles, 64, spacing=0.5)

    weights = weights_of(points).reshape(55, 64).numpy()

    ramp = ramp_weights(angles, 64, centre=32, spacing=0.5)
    middle = np.s_[:, 40:56]
    assert np.abs(weights[middle] / ramp[middle] - 1).max() < 0.05


def test_a_complete_cartesian_grid_has_weights_of_one():
    k = np.stack(np.meshgrid(np.arange(32) - 16.0, np.arange(32) - 16.0), axis=-1)

    weights = weights_of(k).reshape(32, 32)

    assert torch.allclose(weights[8:24, 8:24], torch.ones(16, 16, dtype=torch.float64), atol=0.01)


def test_on_a_flat_image_the_weighted_normal_operator_is_one():
    points = radial_points(uniform_angles(55), 64, spacing=0.5)
    pair = transform(points)
    ramp = torch.from_numpy(ramp_weights(uniform_angles(55), 64, centre=32, spacing=0.5).ravel())

    weights = scaled_to_identity(7.0 * ramp, pair.forward, MATRIX)

    ones = torch.ones(1, 1, *MATRIX, dtype=torch.complex128)
    back = pair.adjoint(pair.forward(ones) * weights)[0, 0, 10:22, 10:22]
    assert torch.allclose(back, torch.ones_like(back), atol=0.03)


def test_weights_that_are_not_positive_are_refused():
    pair = transform(radial_points(uniform_angles(5), 8))

    with pytest.raises(ValueError, match="Weights start from positive numbers"):
        iterative_weights(pair.forward, pair.adjoint, torch.zeros(40, dtype=torch.float64), MATRIX)
    with pytest.raises(ValueError, match="Weights of zero cannot be scaled"):
        scaled_to_identity(torch.zeros(40, dtype=torch.float64), pair.forward, MATRIX)


def test_few_spokes_have_weights_no_wider_than_a_cycle():
    capped = ramp_weights(uniform_angles(10), 64, centre=32, spacing=0.5, widest=1.0)

    # neighbours are a cycle apart at the radius 10 / pi: from 6.4 samples on the weight is 0.5
    assert capped[3, 32 + 6] == pytest.approx(3.0 * np.pi / 10 * 0.5)
    assert (capped[:, 32 + 7 :] == 0.5).all()


SPIRAL = spiral_points(10, 300, k_max=16, n_turns=2.2)
SPOKES = radial_points(uniform_angles(55), 64, spacing=0.5)


@pytest.mark.parametrize(
    ("points", "geometry"),
    [(SPIRAL, None), (SPOKES, None), (SPOKES, spoke_geometry(SPOKES))],
    ids=["spiral", "spokes, not known as such", "spokes"],
)
def test_weights_of_any_scan_give_the_image_back(points, geometry):
    weights = density_weights(points, MATRIX, geometry=geometry)

    assert relative_error(points, weights) < 0.03


def test_weights_of_the_scan_are_taken_and_scaled():
    given = ramp_weights(uniform_angles(55), 64, centre=32, spacing=0.5) * 321.0

    weights = density_weights(SPOKES, MATRIX, given=given)

    ratio = weights.numpy() * 321.0 / given.ravel()
    assert np.ptp(ratio) < 1e-5
    assert ratio[0] == pytest.approx(1.0, abs=0.02)


def test_points_become_those_of_the_transform():
    # (kx, ky) in cycles per field of view to (ky, kx) per pixel
    trajectory = transform_points(np.array([[[8.0, -3.0]]]), (6, 32))

    assert trajectory.tolist() == [[[-0.5, 0.25]]]


def test_points_in_space_are_refused():
    with pytest.raises(ValueError, match=r"shape \(4, 3\) are not two-dimensional"):
        transform_points(np.zeros((4, 3)), (8, 8))
