"""What the prior is told of a complex image."""

import pytest
import torch

from reconlib.energies.total_variation import TotalVariation
from reconlib.energies.view import View
from reconlib.joint.image_model import ImageModel


class Quadratic:
    """R(x) = |x|^2 / 2, so that the gradient is the argument itself."""

    temperature = 1.0

    def value(self, image):
        return image.square().sum(dim=(1, 2, 3)) / 2

    def value_and_gradient(self, image):
        return self.value(image), image


def model(phase, *, signed):
    weight = torch.tensor([3.0], dtype=torch.float64)
    return ImageModel(phase, Quadratic(), weight, 0 * weight, TotalVariation(), signed)


@pytest.fixture
def image(generator):
    return torch.complex(*torch.randn(2, 1, 1, 6, 5, generator=generator))


@pytest.mark.parametrize("phase", ["real", "soft"])
def test_a_signed_prior_sees_the_real_part_with_its_sign(image, phase):
    view = View()
    value, gradient = model(phase, signed=True).value_and_gradient(image, view)
    torch.testing.assert_close(value, 1.5 * image.real.square().sum().double()[None])
    torch.testing.assert_close(gradient.real, 3 * image.real)
    assert not gradient.imag.any()


@pytest.mark.parametrize("phase", ["real", "soft"])
def test_a_prior_of_magnitudes_cannot_tell_the_sign(image, phase):
    view = View(torch.full((1, 1, 6, 5), 0.25))
    blind = model(phase, signed=False)
    value, gradient = blind.value_and_gradient(image, view)
    expected = 1.5 * (image.real.abs() - 0.01 + 0.25).square().sum()
    torch.testing.assert_close(value, expected.double()[None], rtol=2e-2, atol=0)
    mirrored, opposite = blind.value_and_gradient(-image, view)
    assert torch.equal(value, mirrored)
    torch.testing.assert_close(gradient.real, -opposite.real)


@pytest.mark.parametrize("signed", [True, False])
def test_the_gradient_is_that_of_the_value(image, generator, signed):
    view = View(torch.full((1, 1, 6, 5), 0.1, dtype=torch.float64))
    both = model("soft", signed=signed)
    image, direction = image.to(torch.complex128), torch.randn(1, 1, 6, 5, generator=generator).double()
    step = 1e-5
    ahead, behind = (both.value(image + sign * step * direction, view) for sign in (1, -1))
    _, gradient = both.value_and_gradient(image, view)
    torch.testing.assert_close(
        (gradient.real * direction).sum()[None], (ahead - behind) / (2 * step), rtol=1e-5, atol=0
    )
