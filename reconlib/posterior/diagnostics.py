r"""Whether chains agree, and how many independent draws they are worth.

Each chain is cut in two halves; a trend within a chain then shows as halves that differ. With M sequences of
n draws, B the variance of the sequences' means times n, and W the mean of their variances:

.. math:: \hat R = \sqrt{\frac{(n - 1) / n \; W + B / n}{W}}, \qquad
    \mathrm{ESS} = \frac{M n}{-1 + 2 \sum_k \hat P_k}, \quad \hat P_k = \hat\rho_{2k} + \hat\rho_{2k + 1}

with the autocorrelations estimated from all sequences together,

.. math:: \hat\rho_t = 1 - \frac{W - \frac{1}{M} \sum_m \hat\gamma_{t, m}\, n / (n - 1)}
    {(n - 1)/n\; W + B / n}

(:math:`\hat\gamma_{t,m}` the autocovariance of sequence m at lag t, divided by n), and the sum cut where
:math:`\hat P_k` becomes negative and made monotone before that (Geyer, Stat Sci 7:473, 1992).

References
----------
Gelman et al., Bayesian Data Analysis, 3rd ed., sections 11.4 and 11.5.
Vehtari et al., Bayesian Anal 16:667 (2021).
"""

import math

import torch
from torch import Tensor

FEWEST_DRAWS = 8
"""Per chain; of fewer nothing is said."""


def split_rhat(draws: Tensor) -> Tensor:
    """Return split R-hat (statistic,) of draws float64 (chain, draw, statistic).

    NaN where a statistic does not vary at all, or with fewer than 8 draws per chain.
    """
    if draws.shape[1] < FEWEST_DRAWS:
        return draws.new_full((draws.shape[2],), math.nan)
    _, within, pooled = _variances(_halves(draws))
    return torch.sqrt(pooled / within)


def effective_sample_size(draws: Tensor) -> Tensor:
    """Return the effective number of draws (statistic,) of all chains of draws (chain, draw, statistic).

    At most N log10 N of N draws, as in Vehtari et al.: draws that alternate about their mean are worth more
    than independent ones. NaN as in :func:`split_rhat`.
    """
    if draws.shape[1] < FEWEST_DRAWS:
        return draws.new_full((draws.shape[2],), math.nan)
    sequences = _halves(draws)
    n_sequences, n_draws, _ = sequences.shape
    centred, within, pooled = _variances(sequences)
    spectrum = torch.fft.rfft(centred, n=2 * n_draws, dim=1)
    covariance = torch.fft.irfft(spectrum.abs().square(), n=2 * n_draws, dim=1)[:, :n_draws] / n_draws
    correlation = 1 - (within - covariance.mean(dim=0) * (n_draws / (n_draws - 1))) / pooled
    correlation[0] = 1
    n_pairs = n_draws // 2
    pairs = correlation[: 2 * n_pairs].reshape(n_pairs, 2, -1).sum(dim=1)
    positive = torch.cumprod((pairs > 0).to(pairs.dtype), dim=0)
    monotone = torch.cummin(pairs, dim=0).values
    length = 2 * (monotone * positive).sum(dim=0) - 1
    total = n_sequences * n_draws
    smallest_length = 1 / math.log10(total)
    return total / length.clamp_min(smallest_length)


def _halves(draws: Tensor) -> Tensor:
    """Cut each chain in two (2 chain, draw / 2, statistic); of an odd number the middle draw is left out."""
    half = draws.shape[1] // 2
    return torch.cat([draws[:, :half], draws[:, -half:]])


def _variances(sequences: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sequences less their means, W, and (n - 1) / n W + B / n."""
    n_draws = sequences.shape[1]
    mean = sequences.mean(dim=1, keepdim=True)
    centred = sequences - mean
    within = centred.square().sum(dim=1).mean(dim=0) / (n_draws - 1)
    between = mean.var(dim=0)[0]
    return centred, within, (n_draws - 1) / n_draws * within + between
