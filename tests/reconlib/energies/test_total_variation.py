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
    for _ in range(4):
        direction = torch.randn(image.shape, dtype=torch.float64, generator=generator)
        step = 1e-5 * direction
        slope = (energy.value(image + step) - energy.value(image - step)) / 2e-5
        torch.testing.assert_close((gradient * direction).sum(dim=(1, 2, 3)), slope, rtol=1e-7, atol=1e-7)


def test_a_flat_image_costs_nothing():
    flat = torch.full((1, 1, 5, 8), 0.7)
    value, gradient = TotalVariation().value_and_gradient(flat)
    assert value.item() == 0
    assert not bool(gradient.any())


def test_an_edge_costs_its_height_times_its_length():
    image = torch.zeros(1, 1, 10, 8)
    image[..., 4:] = 0.5
    assert TotalVariation(epsilon=1e-4).value(image).item() == pytest.approx(5.0, rel=1e-3)
