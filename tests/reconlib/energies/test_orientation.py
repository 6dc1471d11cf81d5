"""An energy that sees the image turned."""

import numpy as np
import pytest
import torch

from reconlib.energies.orientation import OrientedEnergy
from reconlib.energies.protocol import Energy


class Weighted:
    """R = sum of w x^2 / 2: every pixel counts differently, so no turn goes unnoticed."""

    temperature = 3.0

    def __init__(self, weights: torch.Tensor) -> None:
        self.weights = weights

    def value(self, image):
        return (self.weights * image**2 / 2).sum(dim=(1, 2, 3))

    def value_and_gradient(self, image):
        return self.value(image), self.weights * image


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("quarter_turns", [0, 1, 2, 3])
def test_value_and_gradient_are_those_of_the_turned_image(quarter_turns, transpose, generator):
    image = torch.rand(2, 1, 5, 8, generator=generator, dtype=torch.float64)
    plain = image.numpy().swapaxes(2, 3) if transpose else image.numpy()
    seen = np.rot90(plain, quarter_turns, axes=(2, 3)).copy()
    weights = torch.rand(seen.shape[1:], generator=generator, dtype=torch.float64)
    energy = OrientedEnergy(Weighted(weights), quarter_turns, transpose)

    value, gradient = energy.value_and_gradient(image)

    expected = (weights.numpy() * seen**2 / 2).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert torch.equal(energy.value(image), value)
    turned_back = np.rot90(weights.numpy() * seen, -quarter_turns, axes=(2, 3))
    np.testing.assert_allclose(gradient, turned_back.swapaxes(2, 3) if transpose else turned_back)
    assert gradient.shape == image.shape


def test_it_is_an_energy_with_the_temperature_of_the_one_inside():
    energy = OrientedEnergy(Weighted(torch.ones(1, 4, 4)), 2)
    assert isinstance(energy, Energy)
    assert energy.temperature == 3.0
