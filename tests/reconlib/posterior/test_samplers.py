"""Samplers on densities of independent pixels, against scipy."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from reconlib.joint.data_consistency import DataConsistency
from reconlib.joint.image_model import ImageModel
from reconlib.operators.fourier import SampledFourier
from reconlib.operators.inner_product import half_square
from reconlib.posterior.samplers import ROCK_STAGES, ROCK_STEP, Kinetic, SkRock, start_sampler
from reconlib.posterior.target import PosteriorTarget, PriorTarget

N_ROWS = 60
SHAPE = (N_ROWS, 1, 4, 5)


@dataclass(frozen=True)
class Gumbel:
    """R / T = x + exp(-x): skewed; the mean is 0.577 (the mode 0) and the variance pi^2 / 6."""

    temperature: float = 0.2

    def value(self, image):
        return self.value_and_gradient(image)[0]

    def value_and_gradient(self, image):
        value = self.temperature * (image + torch.exp(-image)).sum(dim=(1, 2, 3))
        return value, self.temperature * (1 - torch.exp(-image))


@dataclass(frozen=True)
class Nothing:
    """R = 0."""

    temperature: float = 1.0

    def value(self, image):
        return image.new_zeros(len(image))

    def value_and_gradient(self, image):
        return self.value(image), torch.zeros_like(image)


def run(sampler, generator, *, warmup, draws, thin):
    """Return draws (draw, row, 1, y, x) and the acceptance after the warm-up."""
    kept, accepted = [], []
    for step in range(warmup + draws * thin):
        sampler.step(generator, warming=step < warmup)
        if step >= warmup:
            if sampler.accepted is not None:
                accepted.append(float(sampler.accepted.mean()))
            if (step - warmup) % thin == 0:
                kept.append(sampler.image.clone())
    return torch.stack(kept), np.mean(accepted) if accepted else None


def quadrature():
    """Mean, variance and third central moment of the density exp(-x - exp(-x))."""

    def moment(function):
        return integrate.quad(lambda x: function(x) * math.exp(-x - math.exp(-x)), -6, 40)[0]

    norm = moment(lambda _: 1.0)
    mean = moment(lambda x: x) / norm
    return mean, moment(lambda x: (x - mean) ** 2) / norm, moment(lambda x: (x - mean) ** 3) / norm


@pytest.mark.parametrize(("name", "share"), [("mala", 0.0), ("kinetic", 0.04), ("sk-rock", 0.04)])
def test_a_skewed_density_has_the_moments_of_quadrature(name, share, generator):
    """``share`` is what the steps of the unadjusted samplers may bias, of each moment."""
    target = PriorTarget(Gumbel(), SHAPE)
    lipschitz = torch.full((N_ROWS,), 5.0, dtype=torch.float64)
    sampler = start_sampler(name, target, torch.zeros(SHAPE), lipschitz, generator)
    draws, acceptance = run(sampler, generator, warmup=100, draws=60, thin=12)
    mean, variance, third = quadrature()
    centred = draws.double() - mean
    n = draws.numel() / 4  # thinned draws are nearly independent
    for power, expected in ((1, 0.0), (2, variance), (3, third)):
        values = centred**power
        error = float(values.mean()) - expected
        scale = variance ** (power / 2)
        assert abs(error) < 5 * float(values.std()) / math.sqrt(n) + share * scale, power
    if name == "mala":
        assert acceptance == pytest.approx(0.574, abs=0.06)


def one_coil_target(data, sigma, *, phase, n_chains):
    """Return the posterior of an image that is seen directly, pixel by pixel, with noise sigma."""
    n_y, n_x = data.shape
    fourier = SampledFourier(torch.ones(1, 1, n_y, n_x), (-2, -1))
    image = data[None, None].to(torch.complex64)
    one = torch.ones(1, dtype=torch.float64)
    return PosteriorTarget(
        data=DataConsistency(fourier, image),
        directions=torch.ones(1, 1, n_y, n_x, dtype=torch.complex64),
        backprojection=image,
        half_data_norm=half_square(image),
        model=ImageModel(phase, Nothing(), one, 0 * one, signed=False),
        inverse_variance=one / sigma**2,
        n_chains=n_chains,
        chunk=1000,
    )


@pytest.mark.parametrize(("name", "share"), [("kinetic", 0.18), ("langevin", 0.38), ("mala", 0.0)])
def test_reflection_gives_the_truncated_density(name, share, generator):
    """Data near zero: N(z, sigma^2) cut off at 0; ``share`` of the std is what steps may bias."""
    sigma = 0.1
    data = torch.linspace(-0.15, 0.3, 20).reshape(4, 5)
    target = one_coil_target(data, sigma, phase="real", n_chains=N_ROWS)
    lipschitz = torch.full((N_ROWS,), 1 / sigma**2, dtype=torch.float64)
    start = torch.complex(data.clamp_min(0), torch.zeros_like(data)).expand(SHAPE)
    sampler = start_sampler(name, target, start, lipschitz, generator)
    draws, _ = run(sampler, generator, warmup=60, draws=60, thin=6)
    draws = torch.view_as_real(draws)
    assert not bool(draws[..., 1].any()), "the image is real"
    values = draws[..., 0].double().reshape(-1, 4, 5).numpy()
    assert values.min() >= 0
    z = data.double().numpy()
    exact = stats.truncnorm(-z / sigma, np.inf, loc=z, scale=sigma)
    n = len(values) / 4
    bias = share * exact.std()
    assert (np.abs(values.mean(axis=0) - exact.mean()) < 5 * exact.std() / np.sqrt(n) + bias).all()
    assert (np.abs(values.std(axis=0) - exact.std()) < 5 * exact.std() / np.sqrt(2 * n) + bias).all()


def test_a_kinetic_chain_is_exact_for_gaussians_even_near_the_longest_stable_step(generator):
    """A step of 1.8 / sqrt(L), with an unequal variance per row; Langevin's bias would be large here."""
    sigma = torch.tensor([0.5, 1.0])
    target = PriorTarget(Gaussian(sigma), (2, 1, 60, 50))
    lipschitz = torch.full((2,), 4.0, dtype=torch.float64)
    sampler = Kinetic(target, torch.zeros(2, 1, 60, 50), lipschitz, generator, step=1.8)
    draws, _ = run(sampler, generator, warmup=60, draws=30, thin=10)
    found = draws.double().square().mean(dim=(0, 2, 3, 4)).sqrt()
    np.testing.assert_allclose(found.numpy(), sigma.numpy(), rtol=5 / math.sqrt(2 * 30 * 3000 / 4))


@dataclass(frozen=True)
class Gaussian:
    """R = |x|^2 / 2 sigma^2, with a sigma for each row."""

    sigma: torch.Tensor
    temperature: float = 1.0

    def value_and_gradient(self, image):
        precision = (1 / self.sigma**2)[:, None, None, None]
        return (precision * image.square()).sum(dim=(1, 2, 3)) / 2, precision * image

    def value(self, image):
        return self.value_and_gradient(image)[0]


def stability(p, n_stages, eta=0.05):
    """Deterministic and noise factor of a step on x'' = -p x, from Chebyshev polynomials of scipy.

    A = T_s(w0 - w1 p) / T_s(w0), B = U_{s-1}(w0 - w1 p) / U_{s-1}(w0) (1 - w1 p / 2): eq. 3.6 and 3.7 of
    Abdulle, Almuslimani and Vilmart, SIAM/ASA J Uncertain Quantif 6:937 (2018), where the method is from.
    """
    first, second = np.polynomial.Chebyshev.basis(n_stages), np.polynomial.Chebyshev.basis(n_stages).deriv()
    origin = 1 + eta / n_stages**2
    slope = first(origin) / second(origin)
    at = origin - slope * p
    return first(at) / first(origin), second(at) / second(origin) * (1 - slope * p / 2)


def test_a_stabilised_step_has_the_stability_functions_of_the_literature(generator):
    """One step from x, on a Gaussian: A x + B sqrt(2 delta) n."""
    sigma, curvature = torch.tensor([0.5, 2.0]), 4.0
    shape = (2, 1, 4, 5)
    target = PriorTarget(Gaussian(sigma), shape)
    start = torch.rand(shape, generator=generator)
    n_stages, share = 5, 0.7
    delta = share * (4.5**2 * (2 - 4 * 0.05 / 3) - 1.5) / curvature
    lipschitz = torch.full((2,), curvature, dtype=torch.float64)
    sampler = SkRock(target, start, lipschitz, n_stages=n_stages, share=share)
    state = generator.get_state()
    sampler.step(generator, warming=False)
    noise = target.noise(generator.set_state(state))
    for row in (0, 1):
        a, b = stability(delta / float(sigma[row]) ** 2, n_stages)
        expected = a * start[row] + b * math.sqrt(2 * delta) * noise[row]
        torch.testing.assert_close(sampler.image[row], expected.float(), rtol=1e-4, atol=1e-5)


def test_the_shipped_stabilised_step_keeps_every_width_within_five_percent():
    longest = (ROCK_STAGES - 0.5) ** 2 * (2 - 4 * 0.05 / 3) - 1.5
    p = np.geomspace(1e-3, 1, 500) * ROCK_STEP * longest
    a, b = stability(p, ROCK_STAGES)
    ratio = np.sqrt(2 * p * b**2 / (1 - a**2))
    assert 0.95 < ratio.min() < ratio.max() < 1.001


def test_steps_of_rows_follow_their_own_curvature(generator):
    """A row does not depend on the others: the same chain alone, with the same noise."""
    sigma = torch.tensor([0.05, 2.0])
    lipschitz = 1 / sigma.double().square()
    for name in ("kinetic", "langevin", "sk-rock"):
        pair = start_sampler(
            name, Shared(Gaussian(sigma), 2), torch.zeros(2, 1, 4, 5), lipschitz, generator.manual_seed(5)
        )
        for _ in range(10):
            pair.step(generator, warming=False)
        alone = start_sampler(
            name,
            Shared(Gaussian(sigma[1:]), 1),
            torch.zeros(1, 1, 4, 5),
            lipschitz[1:],
            generator.manual_seed(5),
        )
        for _ in range(10):
            alone.step(generator, warming=False)
        torch.testing.assert_close(pair.image[1:], alone.image)
        assert float(pair.image[0].std()) < 0.2 < float(pair.image[1].std())


@dataclass(frozen=True)
class Shared:
    """Noise that all rows share, as slices do."""

    energy: Gaussian
    n_rows: int
    reflecting = False

    def evaluate(self, image):
        return PriorTarget(self.energy, (self.n_rows, 1, 4, 5)).evaluate(image)

    def noise(self, generator):
        return torch.randn(1, 1, 4, 5, generator=generator).repeat(self.n_rows, 1, 1, 1)

    def uniform(self, generator):
        return torch.rand(1, generator=generator, dtype=torch.float64).repeat(self.n_rows)
