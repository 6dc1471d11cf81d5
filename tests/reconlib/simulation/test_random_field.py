"""Random fields: unit variance, the asked wavelength, the same function at any grid."""

import math

import pytest
import torch

from reconlib.simulation.random_field import RandomField


def plane(n: int, length: float) -> tuple[torch.Tensor, torch.Tensor]:
    axis = torch.arange(n) * (length / n)
    return axis[:, None], axis[None, :]


def test_a_field_has_zero_mean_and_unit_variance(generator):
    field = RandomField.draw(7.0, generator=generator)
    values = field(*plane(300, 700.0), torch.tensor(3.0))
    assert values.shape == (300, 300)
    assert abs(float(values.mean())) < 0.05
    assert float(values.std()) == pytest.approx(1.0, abs=0.1)


def test_structures_repeat_about_every_wavelength(generator):
    field = RandomField.draw(10.0, generator=generator, n_dimensions=2, bandwidth=0.05, n_waves=200)
    values = field(*plane(400, 800.0))
    power = torch.fft.fft2(values).abs().square()
    frequency = torch.fft.fftfreq(400, d=2.0)
    radius = torch.hypot(frequency[:, None], frequency[None, :])
    assert float((power * radius).sum() / power.sum()) == pytest.approx(0.1, rel=0.05)


def test_a_grid_only_decides_where_a_field_is_seen(generator):
    field = RandomField.draw(5.0, generator=generator)
    coarse = field(*plane(20, 40.0), torch.tensor(1.0))
    fine = field(*plane(60, 40.0), torch.tensor(1.0))
    assert torch.allclose(fine[::3, ::3], coarse, atol=1e-4)


def test_neighbouring_planes_differ_little(generator):
    field = RandomField.draw(20.0, generator=generator)
    x, y = plane(50, 100.0)
    step = field(x, y, torch.tensor(0.1)) - field(x, y, torch.tensor(0.0))
    # The slope of a field is at most the sum of its wave numbers; its rms is 2 pi / wavelength / sqrt(3).
    assert float(step.square().mean().sqrt()) < 2 * 0.1 * 2 * math.pi / 20.0 / math.sqrt(3)


def test_wrong_use_is_explained(generator):
    with pytest.raises(ValueError, match="wavelength 0"):
        RandomField.draw(0.0, generator=generator)
    with pytest.raises(ValueError, match="3 dimensions; 2 coordinates"):
        RandomField.draw(1.0, generator=generator)(torch.zeros(2), torch.zeros(2))
