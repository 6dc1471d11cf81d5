"""The quadratic that touches total variation."""

import pytest
import torch

from reconlib.energies.quadratic_variation import QuadraticVariation
from reconlib.energies.total_variation import TotalVariation


def test_it_touches_total_variation(generator):
    """The same gradient at the image where it was made; elsewhere, but for a constant, nowhere below."""
    image = torch.randn(2, 1, 6, 5, generator=generator)
    quadratic = QuadraticVariation.around(image, torch.full((2,), 0.3, dtype=torch.float64))
    variation = TotalVariation(epsilon=0.3)
    value, gradient = quadratic.value_and_gradient(image)
    torch.testing.assert_close(gradient, variation.value_and_gradient(image)[1])
    for _ in range(20):
        other = image + torch.randn(2, 1, 6, 5, generator=generator)
        rise = quadratic.value(other) - value
        assert bool((rise >= variation.value(other) - variation.value(image) - 1e-6).all())


def test_a_step_costs_its_square_over_twice_the_gradient_that_was_there():
    """One edge of height 3 in the estimate, epsilon 4: an edge of height h costs h^2 / (2 * 5)."""
    estimate = torch.zeros(1, 1, 1, 2)
    estimate[..., 1] = 3
    quadratic = QuadraticVariation.around(estimate, torch.tensor([4.0], dtype=torch.float64))
    for height in (0.5, -2.0):
        value, gradient = quadratic.value_and_gradient(estimate * height / 3)
        assert float(value) == pytest.approx(height**2 / 10)
        assert gradient.flatten().tolist() == pytest.approx([-height / 5, height / 5])


def test_slices_have_their_own(generator):
    image = torch.randn(3, 1, 4, 4, generator=generator)
    epsilon = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    rows = torch.tensor([2, 0])
    both = QuadraticVariation.around(image, epsilon).select(rows)
    alone = QuadraticVariation.around(image[rows], epsilon[rows])
    torch.testing.assert_close(both.value(image[rows]), alone.value(image[rows]))
