"""Energies of real images as a yardstick, against closed forms."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from reconlib.training.energy_percentiles import energies_per_pixel, energy_percentiles


@dataclass(frozen=True)
class _Square:
    """R = |x|^2 / 2, at a temperature that must not matter."""

    temperature: float = 0.3

    def value(self, image):
        return image.square().sum(dim=(1, 2, 3)) / 2

    def value_and_gradient(self, image):
        return self.value(image), image


def flat_images(n: int) -> torch.Tensor:
    """Image i is i / 10 everywhere: R per pixel is i^2 / 200."""
    return (torch.arange(n) / 10)[:, None, None].expand(n, 24, 30).half()


def test_energies_are_per_pixel_and_in_the_order_of_the_images(generator):
    found = energies_per_pixel(_Square(), flat_images(21), noise_std=0.0, generator=generator, batch=4)
    expected = flat_images(21)[:, 0, 0].float().square() / 2
    torch.testing.assert_close(found, expected)


def test_noise_adds_half_its_variance_per_pixel(generator):
    found = energies_per_pixel(_Square(), flat_images(30), noise_std=0.2, generator=generator)
    excess = found - flat_images(30)[:, 0, 0].float().square() / 2
    # per pixel x n + n^2 / 2 with standard deviation below 0.2 * 3
    assert float(excess.mean()) == pytest.approx(0.02, abs=5 * 0.6 / (30 * 720) ** 0.5)
    assert float(excess.std()) > 0


def test_percentiles_are_those_of_numpy_and_follow_the_seed():
    def found(seed: int) -> dict[float, float]:
        generator = torch.Generator().manual_seed(seed)
        return energy_percentiles(_Square(), flat_images(21), noise_std=0.1, generator=generator)

    values = energies_per_pixel(
        _Square(), flat_images(21), noise_std=0.1, generator=torch.Generator().manual_seed(3)
    ).numpy()
    assert list(found(3)) == [0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0]
    assert list(found(3).values()) == pytest.approx(np.percentile(values, list(found(3))), rel=1e-5)
    assert found(3) == found(3) != found(4)
