"""Scans of the single-coil study: what is added, and what is said about it."""

import pytest
import torch

from reconlib.evaluation.single_coil import single_coil_scan
from reconlib.operators.fourier import fft2c


@pytest.fixture
def image(generator):
    bright = 1 + 0.02 * torch.randn(1, 1, 96, 80, generator=generator)
    bright[..., :10, :] = 0
    return bright


def test_the_noise_is_the_factor_times_the_images_own(image):
    double = single_coil_scan("a", image, noise_factor=2)
    triple = single_coil_scan("a", image, noise_factor=3)
    assert triple.noise_std == pytest.approx(1.5 * double.noise_std)
    noise = torch.view_as_real(double.samples - fft2c(image.to(torch.complex64)))
    assert float(noise.std()) == pytest.approx(double.noise_std, rel=0.03)
    assert "2.0 times the image's own" in double.noise_source


def test_the_coil_is_one_and_the_reference_has_no_added_noise(image):
    scan = single_coil_scan("a", image)
    assert scan.coils is not None
    assert scan.coils.shape == image.shape
    assert bool((scan.coils == 1).all())
    assert torch.equal(scan.reference, image)


def test_an_image_always_gets_the_same_noise_and_another_one_other_noise(image):
    first, again = single_coil_scan("a", image), single_coil_scan("b", image)
    assert torch.equal(first.samples, again.samples)
    other = single_coil_scan("a", image.flip(-1))
    here, there = (one.samples - fft2c(one.reference.to(torch.complex64)) for one in (first, other))
    correlation = (here.conj() * there).sum().abs() / (here.abs().square().sum())
    assert float(correlation) < 0.1


def test_an_image_without_noise_gets_some():
    image = torch.zeros(1, 1, 64, 64)
    image[..., 32, 32] = 5.0
    flat = single_coil_scan("dot", image - image + 5.0)
    assert flat.noise_std >= 0.002 * 5.0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda image: image - 1, "finite, not negative, and not empty"),
        (lambda image: image * float("nan"), "finite, not negative, and not empty"),
        (lambda image: image * 0, "finite, not negative, and not empty"),
        (lambda image: image[0], r"needs real \(1, 1, y, x\)"),
        (lambda image: image.to(torch.complex64), r"needs real \(1, 1, y, x\)"),
    ],
)
def test_what_is_no_magnitude_is_refused(image, spoil, message):
    with pytest.raises(ValueError, match=message):
        single_coil_scan("bad", spoil(image))
