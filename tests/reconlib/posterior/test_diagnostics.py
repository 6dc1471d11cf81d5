"""Split R-hat and effective sample size of chains of which they are known."""

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

from reconlib.posterior.diagnostics import effective_sample_size, split_rhat


def autoregressive(phi, *, n_chains=8, n_draws=4000, seed=0):
    """Chains x' = phi x + n, started in its stationary law: float64 (chain, draw, 1)."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal((n_chains, n_draws))
    noise[:, 0] /= np.sqrt(1 - phi**2)
    return torch.from_numpy(lfilter([1.0], [1.0, -phi], noise, axis=1)[..., None].copy())


@pytest.mark.parametrize("phi", [0.9, 0.5, 0.0, -0.3])
def test_effective_sample_size_of_an_autoregressive_chain(phi):
    """Autocorrelations phi^t sum to (1 + phi) / (1 - phi)."""
    draws = autoregressive(phi)
    expected = 8 * 4000 * (1 - phi) / (1 + phi)
    assert float(effective_sample_size(draws)) == pytest.approx(expected, rel=0.12)
    assert float(split_rhat(draws)) == pytest.approx(1, abs=0.02)


def test_draws_that_alternate_are_worth_at_most_n_log_n():
    draws = autoregressive(-0.95)
    n = 8 * 4000
    assert float(effective_sample_size(draws)) == pytest.approx(n * np.log10(n))


def test_rhat_of_chains_that_never_meet():
    """Chains N(m, 1) about means of variance v: R-hat^2 -> 1 + v."""
    random = np.random.default_rng(1)
    offsets = np.array([-1.0, -0.5, 0.5, 1.0])
    draws = torch.from_numpy(random.standard_normal((4, 5000, 1)) + offsets[:, None, None])
    v = np.repeat(offsets, 2).var(ddof=1)
    assert float(split_rhat(draws)) == pytest.approx(np.sqrt(1 + v), rel=0.02)
    assert float(effective_sample_size(draws)) < 40


def test_a_trend_shows_although_all_chains_agree():
    """Halves of a ramp of height h differ by h / 2; without the split R-hat would be 1."""
    random = np.random.default_rng(2)
    ramp = np.linspace(0, 6, 2000)[None, :, None]
    draws = torch.from_numpy(random.standard_normal((4, 2000, 1)) + ramp)
    v = np.array([1.5, 4.5] * 4).var(ddof=1)
    assert float(split_rhat(draws)) == pytest.approx(np.sqrt(1 + v / (1 + 3**2 / 12)), rel=0.02)


def test_statistics_are_judged_one_by_one_and_one_chain_will_do():
    draws = torch.cat([autoregressive(0.9, n_chains=1), autoregressive(0.0, n_chains=1, seed=3)], dim=2)
    found = effective_sample_size(draws)
    assert found.shape == (2,)
    assert float(found[0]) == pytest.approx(4000 / 19, rel=0.4)
    assert float(found[1]) == pytest.approx(4000, rel=0.15)


def test_nothing_is_said_of_few_draws_or_of_what_does_not_vary():
    assert torch.isnan(split_rhat(autoregressive(0.0, n_draws=7))).all()
    assert torch.isnan(effective_sample_size(autoregressive(0.0, n_draws=7))).all()
    constant = torch.ones(4, 100, 1, dtype=torch.float64)
    assert torch.isnan(split_rhat(constant)).all()
    assert torch.isnan(effective_sample_size(constant)).all()


def test_chains_that_are_stuck_at_different_places_have_an_infinite_rhat():
    stuck = torch.arange(4, dtype=torch.float64)[:, None, None].expand(4, 100, 1)
    assert torch.isinf(split_rhat(stuck)).all()
    assert float(effective_sample_size(stuck)) < 10
