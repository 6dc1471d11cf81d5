"""The posterior mean as a method: what it hands on, and that its intervals are right where that is known."""

import math

import pytest
import torch

from reconlib.evaluation.posterior_mean import posterior_mean
from reconlib.evaluation.study import Case, FullScan, MethodError, measure
from reconlib.operators.fourier import fft2c
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.run import sample_posterior
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct

MATRIX = (31, 26)
NOISE = 0.05
SOLVER = ReconstructionSettings(iterations=40, image_phase="real")
QUICK = PosteriorSettings(chains=2, warmup=30, draws=60)


class HalfSquare:
    """R = |x|^2 / 2: the posterior is Gaussian."""

    temperature = 1.0

    def value(self, image):
        return image.square().sum(dim=(1, 2, 3)) / 2

    def value_and_gradient(self, image):
        return self.value(image), image


def prior(**changes):
    card = {
        "name": "half-square",
        "version": "1.0",
        "description": "for tests",
        "architecture": {"kind": "local", "widths": [4, 4], "input_gain": 1.0, "noise_level": 0.01},
        "temperature": 1.0,
        "prior_weight": {"rule": "noise"},
        "anatomy": "none",
        "licence": "none",
    }
    return Prior(PriorCard.model_validate(card | changes), HalfSquare())


@pytest.fixture
def case(generator):
    """A bright disc, all samples, one coil of sensitivity 1: the error of a pixel is that of its noise."""
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in MATRIX), indexing="ij")
    truth = torch.where(x**2 + y**2 < 0.8, 1.5 + 0.5 * y, 0.3)[None, None]
    noise = NOISE * torch.randn(1, 1, *MATRIX, dtype=torch.complex64, generator=generator) * math.sqrt(2)
    scan = FullScan(
        name="disc",
        samples=fft2c(truth.to(torch.complex64)) + noise,
        noise_std=NOISE,
        noise_source="made up",
        reference=truth,
        coils=torch.ones(1, 1, *MATRIX, dtype=torch.complex64),
    )
    return Case(scan=scan, pattern="all", mask=torch.ones(1, 1, *MATRIX, dtype=torch.bool))


def test_in_the_gaussian_case_the_width_is_the_noise_and_intervals_cover(case):
    result = posterior_mean(prior(), SOLVER, QUICK, seed=3)(case)
    # precision (1 + lambda) / sigma^2, lambda = sigma^2 in units of the maximum: 0.0006
    assert result.std is not None
    assert float(result.std.mean()) == pytest.approx(NOISE, rel=0.05)
    row = measure(case, result, 0.0)
    n_pixels = 500
    assert row["coverage_90"] == pytest.approx(0.9, abs=5 * math.sqrt(0.09 / n_pixels))
    assert row["coverage_50"] == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / n_pixels))
    assert row["rms_error_in_head"] == pytest.approx(NOISE / 1.95, rel=0.2)
    assert row["outcome"] in {outcome.value for outcome in PosteriorOutcome}


def test_it_samples_what_reconstruct_leaves(case):
    solver = ReconstructionSettings(iterations=5, image_phase="soft", imaginary_weight=2.0)
    result = posterior_mean(prior(), solver, QUICK, seed=3)(case)
    reconstruction = reconstruct(case.kspace, prior=prior(), settings=solver, coils=case.scan.coils, seed=3)
    direct = sample_posterior(
        case.kspace, reconstruction, prior=prior(), settings=QUICK, solver=solver, seed=3
    )
    assert torch.equal(result.image, direct.mean.abs())
    assert torch.equal(result.std, direct.std)
    assert result.facts["worst R-hat"] == direct.worst_rhat[0]
    assert result.facts["smallest ESS"] == direct.smallest_ess[0]
    assert result.facts["weight"] == reconstruction.prior_weight[0]


def test_the_cards_factor_is_in_the_width_and_known(case):
    plain, double = (
        posterior_mean(prior(posterior={"std_factor": factor}), SOLVER, QUICK)(case) for factor in (1.0, 2.0)
    )
    assert torch.allclose(double.std, 2 * plain.std)
    assert (plain.std_factor, double.std_factor) == (1.0, 2.0)
    rows = [measure(case, result, 0.0) for result in (plain, double)]
    assert rows[1]["coverage_90"] > rows[0]["coverage_90"] + 0.05
    assert rows[1]["coverage_90_without_factor"] == rows[0]["coverage_90"]


def test_without_time_for_two_draws_there_is_no_image(case):
    calls = []

    def start_clock():
        def out_of_time():
            calls.append(1)
            return len(calls) > 5

        return out_of_time

    method = posterior_mean(prior(), SOLVER, QUICK, start_clock=start_clock)
    with pytest.raises(MethodError, match="no posterior mean: too short"):
        method(case)
    assert len(calls) == 6  # the reconstruction before it is not on this clock


def test_steps_are_told(case):
    steps = []
    posterior_mean(prior(), SOLVER, QUICK, on_step=lambda done, total: steps.append((done, total)))(case)
    total = steps[0][1]
    assert steps == [(done, total) for done in range(1, total + 1)]
    assert total >= 90
