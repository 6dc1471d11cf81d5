"""Energies of real images as a yardstick, against closed forms."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from small_energies import random_local_network

from reconlib.energies.local import LocalEnergy
from reconlib.training.energy_percentiles import energy_percentiles


@dataclass(frozen=True)
class Steps:
    """R = sum of |x(r + 1) - x(r)|^2 / 2 along rows."""

    temperature: float = 0.3

    def value(self, image):
        return image.diff(dim=3).square().sum(dim=(1, 2, 3)) / 2

    def value_and_gradient(self, image):
        raise NotImplementedError


def slotted_images(n: int, value: float = 1.0) -> torch.Tensor:
    """Image i is flat, 24 x 40, with i dark columns: R is 2 i * 24 value^2 / 2."""
    images = torch.full((n, 24, 40), value)
    for i in range(n):
        images[i, :, 2 : 2 + 3 * i : 3] = 0
    return images.half()


def test_percentiles_are_those_of_energies_per_pixel_at_the_median_brightness():
    images = slotted_images(11)
    images[7:] *= 4  # units do not matter; the median brightness is still 1
    found = energy_percentiles(Steps(), images, noise_std=0.0, batch=4)
    expected = np.arange(11) / 40
    assert found.brightness == 1.0
    assert list(found.per_pixel) == [0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0]
    assert list(found.per_pixel.values()) == pytest.approx(np.percentile(expected, list(found.per_pixel)))
    assert (found.n_images, found.noise_std, found.resolutions, found.regions) == (11, 0.0, (1.0,), None)


def test_every_resolution_counts():
    flat = torch.ones(3, 32, 40)
    flat[1] = slotted_images(9)[8, :1].float()  # vertical slots, three pixels apart: gone at half the matrix
    whole = energy_percentiles(Steps(), flat, noise_std=0.0)
    both = energy_percentiles(Steps(), flat, noise_std=0.0, resolutions=(1.0, 0.5))
    assert both.per_pixel[100.0] == whole.per_pixel[100.0] == pytest.approx(8 / 40, rel=1e-4)
    assert both.resolutions == (1.0, 0.5)
    # one of three, then one of six images has slots
    assert whole.per_pixel[75.0] == pytest.approx(0.5 * 8 / 40, rel=1e-4)
    assert both.per_pixel[75.0] < 0.1 * 8 / 40


def test_regions_of_a_local_energy_have_percentiles_of_their_own(generator):
    network = random_local_network(generator)
    images = torch.ones(5, 64, 96) + 0.1 * torch.randn(5, 64, 96, generator=generator)
    images[:, :, 32:64] = 0
    images[4, :32, :32] *= torch.rand(32, 32, generator=generator)
    images[2] = 0  # an empty slice does not count
    found = energy_percentiles(LocalEnergy(network, 0.05), images, noise_std=0.02)
    assert found.regions is not None
    assert found.regions.side == 32
    # one of the sixteen regions with signal is the odd one, so it is one of the four of its image
    assert found.regions.unusual_share[100.0] >= 0.25
    spread = found.regions.per_pixel
    assert abs(spread[0.0] - spread[50.0]) + abs(spread[100.0] - spread[50.0]) > 2 * abs(
        spread[75.0] - spread[25.0]
    )
    assert all(np.isfinite(value) for value in found.per_pixel.values())
