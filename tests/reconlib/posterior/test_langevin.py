"""Langevin chains against what is known of them for Gaussians, and on a skewed density."""

from dataclasses import dataclass

import pytest
import torch
from scipy import stats

from reconlib.posterior.langevin import unadjusted_langevin


@dataclass(frozen=True)
class _Quadratic:
    """R = T |x - mean|^2 / 2v: the density is Gaussian whatever the temperature."""

    variance: torch.Tensor
    mean: float = 0.3
    temperature: float = 1.0

    def value(self, image):
        return self.value_and_gradient(image)[0]

    def value_and_gradient(self, image):
        away = image - self.mean
        value = self.temperature * (away.square() / self.variance).sum(dim=(1, 2, 3)) / 2
        return value, self.temperature * away / self.variance


@dataclass(frozen=True)
class _Gumbel:
    """R / T = x + exp(-x): skewed, with mean 0.5772 (Euler) and variance pi^2 / 6."""

    temperature: float = 0.2

    def value(self, image):
        return self.value_and_gradient(image)[0]

    def value_and_gradient(self, image):
        value = self.temperature * (image + torch.exp(-image)).sum(dim=(1, 2, 3))
        return value, self.temperature * (1 - torch.exp(-image))


@pytest.mark.parametrize("temperature", [1.0, 2.8125e-5])
def test_the_draws_have_the_variance_of_the_discretised_gaussian(temperature, generator):
    variance, step = torch.tensor([0.5, 1.0, 4.0]).view(1, 1, 1, 3), 0.4
    energy = _Quadratic(variance, temperature=temperature)
    n = 20_000
    drawn = unadjusted_langevin(
        energy, torch.zeros(n, 1, 1, 3), step_size=step, n_steps=120, generator=generator
    )
    expected = variance / (1 - step / (4 * variance))
    deviation = drawn.var(dim=0, keepdim=True) / expected - 1
    assert float(deviation.abs().max()) < 5 * (2 / n) ** 0.5
    error = (drawn.mean(dim=0) - 0.3).abs() / (expected[0] / n).sqrt()
    assert float(error.max()) < 5


def test_the_draws_of_a_skewed_density_are_skewed_the_right_way(generator):
    drawn = unadjusted_langevin(
        _Gumbel(), torch.zeros(20_000, 1, 1, 1), step_size=0.02, n_steps=800, generator=generator
    )
    # the step's bias is of the order of the step; the mirrored density has mean -0.58
    assert float(drawn.mean()) == pytest.approx(stats.gumbel_r.mean(), abs=0.04)
    assert float(stats.skew(drawn.flatten().numpy())) == pytest.approx(1.14, abs=0.15)


def test_the_papers_iteration_is_the_special_case(generator):
    epsilon = 7.5e-3
    energy = _Quadratic(torch.ones(1, 1, 2, 3), temperature=epsilon**2 / 2)
    start = torch.rand(2, 1, 2, 3, generator=generator)
    state = generator.get_state()
    found = unadjusted_langevin(energy, start, step_size=epsilon**2, n_steps=1, generator=generator)
    noise = torch.randn(2, 1, 2, 3, generator=generator.set_state(state))
    expected = start - energy.value_and_gradient(start)[1] + epsilon * noise
    torch.testing.assert_close(found, expected)


def test_held_pixels_stay_and_the_others_are_drawn(generator):
    energy = _Quadratic(torch.ones(1, 1, 4, 5))
    start = torch.rand(3, 1, 4, 5, generator=generator)
    kept = start.clone()
    held = torch.zeros(4, 5, dtype=torch.bool)
    held[0], held[:, 4] = True, True
    seen = []
    found = unadjusted_langevin(
        energy,
        start,
        step_size=0.5,
        n_steps=4,
        generator=generator,
        held=held,
        on_step=lambda step, image: seen.append((step, image.clone())),
    )
    assert torch.equal(start, kept), "the start is the caller's"
    assert torch.equal(found[..., held], start[..., held])
    assert bool((found != start)[..., ~held].all())
    assert [step for step, _ in seen] == [1, 2, 3, 4]
    assert torch.equal(seen[-1][1], found)


def test_a_step_size_must_be_positive(generator):
    with pytest.raises(ValueError, match=r"step_size is 0\.0; it needs a number > 0"):
        unadjusted_langevin(_Gumbel(), torch.zeros(1, 1, 1, 1), step_size=0.0, n_steps=1, generator=generator)
