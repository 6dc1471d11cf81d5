"""Simulated scans of several coils: what they hold, and what is said about them."""

import numpy as np
import pytest
import torch

from reconlib.evaluation.multi_coil import multi_coil_scan
from reconlib.operators.fourier import ifft2c


@pytest.fixture
def image(generator):
    y, x = torch.meshgrid(torch.linspace(-1, 1, 61), torch.linspace(-1, 1, 48), indexing="ij")
    smooth = torch.exp(-4 * (x**2 + y**2))[None, None]  # hardly anything in the corners of its spectrum
    return (smooth + 0.001 * torch.randn(smooth.shape, generator=generator)).clamp_min(0)


def test_the_truth_is_what_all_coils_see_without_the_noise(image):
    scan = multi_coil_scan("a", image, n_coils=5, noise=0.01, noise_factor=1)
    assert scan.samples.shape == (1, 5, 61, 48)
    assert scan.samples.dtype == torch.complex64
    assert scan.reference is not None
    images = ifft2c(scan.samples)
    # of 5 coils, the noise of the root sum of squares is sigma where there is signal
    body = scan.reference > 0.5 * scan.reference.max()
    difference = (images.abs().square().sum(1, keepdim=True).sqrt() - scan.reference)[body]
    assert float(difference.std()) == pytest.approx(scan.noise_std, rel=0.1)
    assert scan.noise_std == pytest.approx(0.01 * float(scan.reference.max()), rel=1e-5)
    assert (scan.reference_noise_std, scan.coils) == (0.0, None)
    # in the corners there is hardly anything but noise
    corners = [images[..., y, x] for y in (slice(4), slice(-4, None)) for x in (slice(4), slice(-4, None))]
    assert float(torch.view_as_real(torch.cat(corners)).std()) == pytest.approx(scan.noise_std, rel=0.12)


def test_the_noise_is_at_least_a_multiple_of_the_images_own(generator):
    noisy = 1 + 0.02 * torch.randn(1, 1, 64, 60, generator=generator)
    quiet, loud = (multi_coil_scan("a", noisy, noise=0.001, noise_factor=factor) for factor in (1, 3))
    own = 0.02 / float(noisy.max())
    assert quiet.noise_std / float(quiet.reference.max()) == pytest.approx(own, rel=0.3)
    assert loud.noise_std == pytest.approx(3 * quiet.noise_std)
    assert "of the maximum (the image's own is about 0.0" in loud.noise_source
    assert "8 simulated coils" in loud.noise_source


def test_an_image_always_gets_the_same_coils_and_noise_and_another_one_others(image):
    first, again = multi_coil_scan("a", image), multi_coil_scan("b", image)
    assert torch.equal(first.samples, again.samples)
    other = multi_coil_scan("a", image.flip(-1))
    assert not torch.allclose(first.reference, other.reference.flip(-1), rtol=1e-3)


def test_an_interpolated_image_is_cut(generator):
    kspace = torch.zeros(96, 80, dtype=torch.complex64)
    kspace[16:-16] = torch.randn(64, 80, dtype=torch.complex64, generator=generator)
    kspace[48, 40] += 500
    interpolated = ifft2c(kspace).abs()[None, None]
    scan = multi_coil_scan("a", interpolated)
    assert scan.matrix[0] < 96
    assert f"cut from 96 x 80 to {scan.matrix[0]} x {scan.matrix[1]}" in scan.noise_source


def test_what_is_no_magnitude_is_refused(image):
    with pytest.raises(ValueError, match="finite, not negative, and not empty"):
        multi_coil_scan("bad", image - 1)
    with pytest.raises(ValueError, match=r"needs real \(1, 1, y, x\)"):
        multi_coil_scan("bad", torch.from_numpy(np.ones((4, 4))))
