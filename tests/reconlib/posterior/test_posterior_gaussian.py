"""Posteriors that are known exactly: every sampler against a dense solve."""

import numpy as np
import pytest
import torch
from gaussian_scans import (
    NO_IMAGINARY_PRIOR,
    Quadratic,
    Roughness,
    exact_posterior,
    prior_of,
    reconstruction_of,
    scan,
    std_along,
)

from reconlib.kspace import KSpace
from reconlib.posterior.diagnostics import effective_sample_size
from reconlib.posterior.run import sample_posterior
from reconlib.posterior.settings import PosteriorSettings

WEIGHT = 0.5
CHAINS = 24
STEPS = {"kinetic": (50, 120), "langevin": (120, 280), "mala": (120, 280), "sk-rock": (50, 60)}
"""Warm-up and draws: enough for the chains to agree."""
BIAS = {"kinetic": 0.01, "langevin": 0.05, "mala": 0.02, "sk-rock": 0.05}
"""Most that the std may be off, as a median over the pixels."""


class Recorder:
    """Stands where the output grid is chosen, and keeps all draws."""

    def __init__(self):
        self.draws = []

    def __call__(self, image):
        if len(image) > 1:
            self.draws.append(image[:, 0].clone())
        return image


def sampled(kspace, coils, image, energy, sampler):
    recorder = Recorder()
    posterior = sample_posterior(
        kspace,
        reconstruction_of(kspace, coils, image, weight=WEIGHT),
        prior=prior_of(energy),
        settings=PosteriorSettings(
            sampler=sampler, chains=CHAINS, warmup=STEPS[sampler][0], draws=STEPS[sampler][1]
        ),
        solver=NO_IMAGINARY_PRIOR,
        seed=3,
        to_output=recorder,
    )
    return posterior, torch.stack(recorder.draws, dim=1)


@pytest.mark.parametrize(
    ("sampler", "energy"),
    [*((name, Quadratic()) for name in STEPS), ("kinetic", Roughness())],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_mean_and_std_are_those_of_the_dense_solve(sampler, energy, generator):
    kspace, coils, image = scan(generator, keep=0.8)
    mean, std, _ = exact_posterior(kspace, coils, energy, WEIGHT)
    posterior, draws = sampled(kspace, coils, image, energy, sampler)
    parts = torch.view_as_real(draws).double().reshape(*draws.shape[:2], -1)
    along = (draws * torch.from_numpy(np.conj(mean) / np.abs(mean))).real.reshape(*draws.shape[:2], -1)
    ess_of_mean = float(effective_sample_size(parts).min())
    ess_of_width = effective_sample_size((along - along.mean(dim=(0, 1))).square()).numpy()
    assert min(ess_of_mean, ess_of_width.min()) > 60
    assert posterior.worst_rhat[0] < 1.25
    error = np.abs(posterior.mean[0, 0].numpy() - mean)
    # in each direction of the plane, the std of a pixel is at most about 1.5 times that along the mean
    assert (error / std).max() < 5 * 1.5 / np.sqrt(ess_of_mean)
    ratio = posterior.std[0, 0].numpy() / std
    assert (np.abs(ratio - 1).ravel() * np.sqrt(2 * ess_of_width)).max() < 5
    # all pixels together tell a bias from the noise of the draws
    assert np.median(ratio) == pytest.approx(1, abs=BIAS[sampler])


def test_the_bias_of_the_unadjusted_step_is_its_closed_form_and_below_five_percent(generator):
    """With precision P, steps zeta = 0.35 / L make the covariance (P - zeta P^2 / 4)^-1."""
    kspace, coils, image = scan(generator, keep=2.0)
    mean, std, precision = exact_posterior(kspace, coils, Quadratic(), WEIGHT)
    # fully sampled, P is diagonal: (1 + WEIGHT) / sigma^2 on a, 1 / sigma^2 on b
    largest = (1 + WEIGHT) / kspace.noise_std**2
    assert np.linalg.eigvalsh(precision)[-1] == pytest.approx(largest, rel=1e-5)
    step = 0.35 / (1.2 * largest)
    discretised = std_along(mean.ravel(), np.linalg.inv(precision - step / 4 * precision @ precision))
    ratio = discretised.reshape(std.shape) / std
    posterior, _ = sampled(kspace, coils, image, Quadratic(), "langevin")
    found = posterior.std[0, 0].numpy() / std
    assert np.median(found) == pytest.approx(np.median(ratio), abs=0.006)
    assert 1.02 < np.median(found) < 1.05
    assert ratio.max() < 1.05


def test_twice_the_noise_widens_the_posterior_as_the_closed_form_says(generator):
    """Fully sampled, the std of a is (1 / sigma^2 + 1 / T)^-1/2, that of b sigma."""
    temperature, widths, expected = 0.003, [], []
    for noise in (0.05, 0.1):
        kspace, coils, image = scan(generator, keep=2.0, noise=noise)
        weight = noise**2 / temperature
        posterior = sample_posterior(
            kspace,
            reconstruction_of(kspace, coils, image.abs(), weight=weight, scale=1.0),
            prior=prior_of(Quadratic()),
            settings=PosteriorSettings(chains=24, warmup=40, draws=100),
            solver=NO_IMAGINARY_PRIOR,
        )
        assert posterior.effective_temperature[0] == pytest.approx(temperature)
        m = posterior.mean[0, 0]
        a, b = (m.real / m.abs()).square(), (m.imag / m.abs()).square()
        variance = a / (1 / noise**2 + 1 / temperature) + b * noise**2
        expected.append(float(variance.sqrt().mean()))
        widths.append(float(posterior.std.mean()))
    assert widths[1] / widths[0] == pytest.approx(expected[1] / expected[0], rel=0.02)
    assert widths[0] == pytest.approx(expected[0], rel=0.02)
    assert expected[1] / expected[0] > 1.2


def test_fewer_lines_widen_the_posterior_where_they_alias(generator):
    """Every second line: how much is told apart by the coils, and how much is not, varies over the image."""
    kspace, coils, image = scan(generator, keep=2.0)
    mask = kspace.mask.clone()
    mask[..., 1::2, :] = False
    fewer = KSpace(samples=kspace.samples * mask, mask=mask, noise_std=kspace.noise_std)
    _, std_full, _ = exact_posterior(kspace, coils, Roughness(), WEIGHT)
    _, std_fewer, _ = exact_posterior(fewer, coils, Roughness(), WEIGHT)
    full, _ = sampled(kspace, coils, image, Roughness(), "kinetic")
    aliased, _ = sampled(fewer, coils, image, Roughness(), "kinetic")
    found = (aliased.std / full.std)[0, 0].numpy()
    expected = std_fewer / std_full
    assert expected.max() > 1.2 * expected.min() > 1.2
    np.testing.assert_allclose(found, expected, rtol=0.2)
