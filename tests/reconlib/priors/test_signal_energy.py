"""What is compared between images, against closed forms."""

from dataclasses import dataclass

import pytest
import torch
from small_energies import random_local_network

from reconlib.energies.local import LocalEnergy
from reconlib.priors.signal_energy import SignalEnergy, brightness, levelled, signal_energy

BRIGHT = 0.4


@dataclass(frozen=True)
class Square:
    """R = |x|^2 / 2."""

    temperature: float = 0.3

    def value(self, image):
        return image.square().sum(dim=(1, 2, 3)) / 2

    def value_and_gradient(self, image):
        return self.value(image), image


def measured(image: torch.Tensor, energy=None, noise_std: float = 0.0, side: int = 16) -> SignalEnergy:
    return signal_energy(
        energy or Square(), image, brightness_to=BRIGHT, noise_std=noise_std, region_side=side
    )


def body(value: float = 1.0) -> torch.Tensor:
    """A flat body of 24 x 40 pixels in 48 x 64 of air."""
    image = torch.zeros(1, 1, 48, 64)
    image[..., 8:32, 16:56] = value
    return image


@pytest.fixture
def local(generator) -> LocalEnergy:
    return LocalEnergy(random_local_network(generator), 0.05)


def test_brightness_is_that_of_the_bright_pixels():
    torch.testing.assert_close(brightness(body(3.0)), torch.tensor([3.0], dtype=torch.float64))
    mixed = torch.tensor([1.0, 1.0, -4.0])[None, None, None]
    torch.testing.assert_close(brightness(mixed), torch.tensor([3.0], dtype=torch.float64))
    assert float(brightness(torch.zeros(1, 1, 3, 4))) == 0


def test_a_flat_body_has_the_energy_of_its_brightness_whatever_its_units_and_its_air():
    for value in (1.0, 1e-9, 3e6):
        assert float(measured(body(value)).per_pixel) == pytest.approx(BRIGHT**2 / 2, rel=1e-5)


def test_air_does_not_count(generator):
    noisy = body() + (body() == 0) * 0.1 * torch.randn(1, 1, 48, 64, generator=generator)
    # the noise in the air has more than a fifth of the energy of the body; levelling sees a little of it
    assert float(measured(noisy).per_pixel) == pytest.approx(BRIGHT**2 / 2, rel=0.1)


def test_the_energy_of_the_noise_itself_does_not_count():
    found = float(measured(body(), noise_std=0.3).per_pixel)
    # what is left is x n: mean 0, standard deviation 0.3 x / sqrt(n); the noise alone has 0.045 per pixel
    assert found != BRIGHT**2 / 2
    assert found == pytest.approx(BRIGHT**2 / 2, abs=5 * 0.3 * BRIGHT / 960**0.5)


def test_shading_and_a_few_very_bright_pixels_hardly_count():
    y, x = torch.arange(48)[:, None] / 48, torch.arange(64)[None] / 64
    shading = 1 + 1.5 * torch.sin(2 * y) * (1 - x)
    texture = 1 + 0.3 * torch.sin(torch.arange(48)[:, None] * 1.3 + torch.arange(64)[None] * 2.1)
    plain = float(measured(body() * texture).per_pixel)
    assert float((body() * shading).max() / (body() * shading)[body() > 0].min()) > 1.9
    assert float(measured(body() * texture * shading).per_pixel) == pytest.approx(plain, rel=0.03)
    spot = body() * texture
    spot[..., 20, 30] = 5.0
    assert float(levelled(spot, BRIGHT)[..., 12, 50]) == pytest.approx(
        float(levelled(body() * texture, BRIGHT)[..., 12, 50]), rel=0.05
    )


def test_levelling_keeps_the_sign_and_leaves_air_dark():
    image = body(2.0)
    image[..., :, 36:] *= -1
    image[..., 44:, :4] = 0.02
    found = levelled(image, BRIGHT)
    flat = torch.full((1, 1, 24, 20), BRIGHT, dtype=torch.float64)
    torch.testing.assert_close(found[..., 8:32, 16:36], flat, rtol=1e-4, atol=0)
    torch.testing.assert_close(found[..., 8:32, 36:56], -flat, rtol=1e-4, atol=0)
    assert float(found[..., 44:, :4].max()) <= 0.05 * BRIGHT


def test_no_signal_has_no_energy(local):
    for energy in (Square(), local):
        found = measured(torch.zeros(1, 1, 20, 30), energy)
        assert found.per_pixel.isnan().all()
        assert found.regions is None or found.regions.isnan().all()


def test_the_regions_add_up_and_air_has_none(local, generator):
    full = 1 + 0.2 * torch.randn(1, 1, 48, 64, generator=generator)
    found = measured(full, local, noise_std=0.05)
    assert found.regions.shape == (1, 3, 4)
    torch.testing.assert_close(found.regions.mean(dim=(1, 2)), found.per_pixel, rtol=1e-6, atol=0)
    counted = ~measured(body(), local).regions[0].isnan()
    # of the last column, a quarter of the first region and half of the second are signal
    expected = [[False, True, True, False], [False, True, True, True], [False] * 4]
    assert counted.tolist() == expected


def test_cut_regions_at_the_end_count_with_the_pixels_that_they_have(local):
    regions = measured(torch.ones(1, 1, 40, 50), local, side=32).regions
    assert regions.shape == (1, 2, 2)
    assert torch.isfinite(regions).all()


def test_the_energy_of_a_slice_does_not_depend_on_its_neighbours(local, generator):
    pair = torch.cat([body() + 0.1, 3 * torch.rand(1, 1, 48, 64, generator=generator)])
    together = measured(pair, local, noise_std=0.05)
    for i in range(2):
        alone = measured(pair[i : i + 1], local, noise_std=0.05)
        torch.testing.assert_close(together.per_pixel[i : i + 1], alone.per_pixel, rtol=1e-5, atol=0)
        torch.testing.assert_close(
            together.regions[i : i + 1], alone.regions, rtol=1e-4, atol=1e-6, equal_nan=True
        )
