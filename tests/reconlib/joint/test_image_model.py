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


def test_a_signed_prior_sees_both_parts_of_a_free_image_alike(image):
    value, gradient = model("free", signed=True).value_and_gradient(image, View())
    torch.testing.assert_close(value, 1.5 * (image.real.square() + image.imag.square()).sum().double()[None])
    torch.testing.assert_close(gradient, 3 * image)
    torch.testing.assert_close(value, model("free", signed=True).value(1j * image, View()))


def test_a_prior_of_magnitudes_sees_that_of_a_free_image(image):
    """R = |.|^2 / 2 of sqrt(a^2 + b^2 + e^2) - e; a phase of every pixel's own changes nothing."""
    blind = model("free", signed=False)
    value, gradient = blind.value_and_gradient(image, View())
    root = torch.sqrt(image.real.square() + image.imag.square() + 0.01**2)
    torch.testing.assert_close(value, 1.5 * (root - 0.01).square().sum().double()[None])
    torch.testing.assert_close(gradient, 3 * (root - 0.01) * image / root)
    turned = image * torch.polar(torch.ones_like(image.real), 7 * image.imag)
    torch.testing.assert_close(blind.value(turned, View()), value)


def test_the_weight_of_the_imaginary_part_is_used_in_soft_only(image):
    for phase, is_used in (("real", False), ("soft", True), ("free", False)):
        weight = torch.tensor([3.0], dtype=torch.float64)
        values = [
            ImageModel(phase, Quadratic(), weight, k * weight, TotalVariation()).value(image, View())
            for k in (0.0, 1.0)
        ]
        assert (float(values[0]) != float(values[1])) == is_used


def test_a_free_image_is_admissible_as_it_is(image):
    assert model("free", signed=True).project(image) is image
    assert bool((model("real", signed=True).project(image).real >= 0).all())


@pytest.mark.parametrize("phase", ["soft", "free"])
@pytest.mark.parametrize("signed", [True, False])
def test_the_gradient_is_that_of_the_value(image, generator, signed, phase):
    view = View(torch.full((1, 1, 6, 5), 0.1, dtype=torch.float64), (2, 1), 5)
    weight = torch.tensor([3.0], dtype=torch.float64)
    both = ImageModel(phase, TotalVariation(epsilon=0.1), weight, weight, TotalVariation(epsilon=0.1), signed)
    image = image.to(torch.complex128)
    direction = torch.complex(*torch.randn(2, 1, 1, 6, 5, generator=generator).double())
    step = 1e-5
    ahead, behind = (both.value(image + sign * step * direction, view) for sign in (1, -1))
    _, gradient = both.value_and_gradient(image, view)
    torch.testing.assert_close(
        (gradient.conj() * direction).real.sum()[None], (ahead - behind) / (2 * step), rtol=1e-5, atol=0
    )
