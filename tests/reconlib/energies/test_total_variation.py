"""Total variation against its formula in plain loops."""

import math

import pytest
import torch

from reconlib.energies.protocol import Energy
from reconlib.energies.total_variation import TotalVariation

GRIDS = [(6, 8), (5, 8), (7, 9), (1, 4)]


def written_out(image: torch.Tensor, epsilon: float) -> float:
    """One slice, pixel by pixel; differences across the border are zero."""
    n_y, n_x = image.shape
    total = 0.0
    for y in range(n_y):
        for x in range(n_x):
            d_y = (image[y + 1, x] - image[y, x]).item() if y + 1 < n_y else 0.0
            d_x = (image[y, x + 1] - image[y, x]).item() if x + 1 < n_x else 0.0
            total += math.sqrt(d_y**2 + d_x**2 + epsilon**2) - epsilon
    return total


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_value_is_the_formula(grid, generator):
    image = torch.randn(2, 1, *grid, dtype=torch.float64, generator=generator)
    energy = TotalVariation(epsilon=0.1)
    assert isinstance(energy, Energy)
    expected = [written_out(one[0], 0.1) for one in image]
    assert energy.value(image).tolist() == pytest.approx(expected, rel=1e-12)
    assert energy.value_and_gradient(image)[0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_gradient_is_the_slope_of_the_value(grid, generator):
    image = torch.randn(2, 1, *grid, dtype=torch.float64, generator=generator)
    energy = TotalVariation(epsilon=0.1)
    _, gradient = energy.value_and_gradient(image)
    assert gradient.shape == image.shape
    torch.testing.assert_close(energy.tangent(image)[0], gradient)
    for _ in range(4):
        direction = torch.randn(image.shape, dtype=torch.float64, generator=generator)
        step = 1e-5 * direction
        slope = (energy.value(image + step) - energy.value(image - step)) / 2e-5
        torch.testing.assert_close((gradient * direction).sum(dim=(1, 2, 3)), slope, rtol=1e-7, atol=1e-7)


def test_the_curvature_is_the_formula(generator):
    image, direction = (torch.randn(2, 1, 5, 7, dtype=torch.float64, generator=generator) for _ in range(2))
    energy, expected = TotalVariation(epsilon=0.1), [0.0, 0.0]
    for row in range(2):
        for y in range(5):
            for x in range(7):
                slopes = []
                for one in (image[row, 0], direction[row, 0]):
                    d_y = (one[y + 1, x] - one[y, x]).item() if y < 4 else 0.0
                    d_x = (one[y, x + 1] - one[y, x]).item() if x < 6 else 0.0
                    slopes.append(d_y**2 + d_x**2)
                expected[row] += slopes[1] / math.sqrt(slopes[0] + 0.01)
    assert energy.curvature(energy.tangent(image)[1], direction).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("size", [1e-3, 0.1, 3.0])
def test_the_quadratic_of_the_curvature_bounds_the_energy(generator, size):
    energy = TotalVariation(epsilon=0.1)
    image = torch.randn(20, 1, 6, 5, dtype=torch.float64, generator=generator)
    step = size * torch.randn(image.shape, dtype=torch.float64, generator=generator)
    gradient, weights = energy.tangent(image)
    linear = energy.value(image) + (gradient * step).sum(dim=(1, 2, 3))
    bound = linear + energy.curvature(weights, step) / 2
    assert bool((energy.value(image + step) <= bound + 1e-12).all())


def test_on_a_flat_image_the_bound_has_the_curvature_of_the_energy(generator):
    """A smaller curvature would be no bound."""
    energy, flat = TotalVariation(epsilon=0.1), torch.full((1, 1, 6, 5), 0.3, dtype=torch.float64)
    step = 1e-4 * torch.randn(flat.shape, dtype=torch.float64, generator=generator)
    curved = energy.value(flat + step) + energy.value(flat - step)
    torch.testing.assert_close(energy.curvature(energy.tangent(flat)[1], step), curved, rtol=1e-4, atol=0)


def test_a_flat_image_costs_nothing():
    flat = torch.full((1, 1, 5, 8), 0.7)
    value, gradient = TotalVariation().value_and_gradient(flat)
    assert value.item() == 0
    assert not bool(gradient.any())


def test_an_edge_costs_its_height_times_its_length():
    image = torch.zeros(1, 1, 10, 8)
    image[..., 4:] = 0.5
    assert TotalVariation(epsilon=1e-4).value(image).item() == pytest.approx(5.0, rel=1e-3)
