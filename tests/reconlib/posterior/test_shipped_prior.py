"""Widths with the shipped prior: how they follow noise and sampling."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from reconlib.evaluation.coverage import head_mask
from reconlib.kspace import KSpace
from reconlib.posterior.run import sample_posterior
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import load_prior
from reconlib.reconstruction import reconstruct
from reconlib.simulation.scan import simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

FOLDER = Path(__file__).parents[3] / "config" / "priors" / "brain-local"
SHORT = PosteriorSettings(chains=2, warmup=40, draws=80)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@cache
def head():
    """Return k-space of a drawn head, fully sampled but for noise, and its truth."""
    scan = simulate_head_scan(ScanSettings(matrix=(128, 128), n_coils=8, pattern="full", noise=1e-6, seed=5))
    return scan.kspace.samples, scan.truth


@cache
def width(share_of_noise, every):
    """Return the std (y, x) with noise of that share of the maximum, and every so many lines sampled."""
    samples, truth = head()
    std = share_of_noise * float(truth.abs().max())
    generator = torch.Generator().manual_seed(11)
    noise = torch.complex(*torch.randn(2, *samples.shape, generator=generator))
    mask = torch.zeros(1, 1, *samples.shape[-2:], dtype=torch.bool)
    mask[..., ::every, :] = True
    mask[..., 58:70, :] = True
    kspace = KSpace(samples=(samples + std * noise) * mask, mask=mask, noise_std=std)
    prior = load_prior(FOLDER, torch.device("cpu"))
    return (
        sample_posterior(kspace, reconstruct(kspace, prior=prior), prior=prior, settings=SHORT)
        .std[0, 0]
        .numpy()
    )


@cache
def inside():
    return head_mask(head()[1].abs())[0, 0].numpy()


def test_twice_the_noise_makes_the_map_wider_but_not_by_more_than_twice():
    ratio = np.median((width(0.02, 4) / width(0.01, 4))[inside()])
    assert 1.3 < ratio < 2.1


def test_fewer_lines_make_the_map_wider_where_there_is_an_object():
    fewer, more = width(0.01, 4), width(0.01, 2)
    growth = fewer / more
    assert np.median(growth[inside()]) > 1.2
    assert np.median(growth[inside()]) > np.median(growth[~inside()])
