"""The density that is sampled, its curvature, and what is watched."""

import math

import numpy as np
import pytest
import torch
from gaussian_scans import Quadratic, Roughness, prior_of, reconstruction_of, scan

from reconlib.joint.data_consistency import DataConsistency
from reconlib.operators.fourier import SampledFourier
from reconlib.posterior.curvature import SAFETY, largest_curvature
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.run import FEWEST_EFFECTIVE_DRAWS, LARGEST_RHAT, _judge
from reconlib.posterior.settings import PosteriorSettings
from reconlib.posterior.target import Evaluation, posterior_target
from reconlib.posterior.watched import N_PIXELS, WatchedStatistics
from reconlib.reconstruction import ReconstructionSettings

CHAINS = PosteriorSettings(chains=3)


def numpys_energy(x, kspace, coils, estimate, row, scale, sigma, weight, imaginary_weight):
    """Prior part and data part of E of the image x (y, x), complex128, in scaled units."""
    axes = (-2, -1)
    shifted = np.fft.ifftshift(coils[row].numpy() * x, axes=axes)
    full = np.fft.fftshift(np.fft.fft2(shifted, norm="ortho"), axes=axes)
    mask = kspace.mask[row].numpy()
    residual = (full - scale * kspace.samples[row].numpy()) * mask
    data = (np.abs(residual) ** 2).sum() / (2 * sigma**2)
    a, b = x.real, x.imag
    roughness = ((np.diff(a, axis=0) ** 2).sum() + (np.diff(a, axis=1) ** 2).sum()) / 2

    def squared_gradient(b):
        return np.diff(b, axis=0, append=b[-1:]) ** 2 + np.diff(b, axis=1, append=b[:, -1:]) ** 2

    there = squared_gradient(scale * estimate[row, 0].numpy().imag.astype(np.float64))
    variation = (squared_gradient(b) / (2 * np.sqrt(there + sigma**2))).sum()
    return (weight * roughness + imaginary_weight * variation) / sigma**2, data


def test_energy_and_gradient_are_those_of_the_formula(generator):
    """Values against numpy, gradients against numpy's differences along random directions."""
    kspace, coils, image = scan(generator, n_slices=2, n_coils=3, grid=(7, 9), noise=0.05)
    scale, weight = 0.5, 0.02
    sigma = 0.05 * scale
    target, scaled, found_sigma = posterior_target(
        kspace,
        reconstruction_of(kspace, coils, image, weight=weight, scale=scale),
        prior_of(Roughness(temperature=0.3)),
        ReconstructionSettings(imaginary_weight=0.2),
        CHAINS,
        torch.arange(2),
    )
    torch.testing.assert_close(scaled, scale * image)
    np.testing.assert_allclose(found_sigma.numpy(), sigma)
    x = scaled.repeat_interleave(3, dim=0) + 0.1 * target.noise(generator)
    direction = target.noise(generator)
    found = target.evaluate(x)
    for row in range(6):
        at, along = (v[row, 0].numpy().astype(np.complex128) for v in (x, direction))
        arguments = (kspace, coils, image, row // 3, scale, sigma, weight, 0.2 * sigma)
        prior, data = numpys_energy(at, *arguments)
        assert float(found.prior[row]) == pytest.approx(prior, rel=1e-4)
        assert float(found.data[row]) == pytest.approx(data, rel=1e-3)
        step = 1e-4
        up, down = (sum(numpys_energy(at + s * along, *arguments)) for s in (step, -step))
        slope = float((found.gradient[row].conj() * direction[row]).real.sum())
        assert slope == pytest.approx((up - down) / (2 * step), rel=2e-3)


def test_curvature_is_the_largest_eigenvalue(generator):
    """Fully sampled, with R = |x|^2 / 2 on a: (1 + lambda) / sigma^2, times the safety factor."""
    kspace, coils, image = scan(generator, n_slices=2, grid=(7, 9), keep=2.0)
    target, scaled, sigma = posterior_target(
        kspace,
        reconstruction_of(kspace, coils, image, weight=3.0),
        prior_of(Quadratic()),
        ReconstructionSettings(imaginary_weight=0.0),
        PosteriorSettings(chains=1),
        torch.arange(2),
    )
    found = list(largest_curvature(target, scaled, sigma, generator))
    expected = SAFETY * 4 / sigma**2
    torch.testing.assert_close(found[-1], expected, rtol=0.02, atol=0)
    assert bool((found[0] <= found[-1]).all())


@pytest.mark.parametrize(
    ("rhat", "ess", "early", "enough", "outcome"),
    [
        (LARGEST_RHAT, FEWEST_EFFECTIVE_DRAWS, False, True, "DONE"),
        (LARGEST_RHAT, FEWEST_EFFECTIVE_DRAWS, True, True, "OUT_OF_TIME"),
        (1.101, 500.0, False, True, "NOT_MIXED"),
        (1.0, 49.9, False, True, "NOT_MIXED"),
        (1.101, 500.0, True, True, "TOO_SHORT"),
        (1.0, 49.9, True, True, "TOO_SHORT"),
        (math.nan, math.nan, False, True, "NOT_MIXED"),
        (math.nan, 500.0, True, True, "TOO_SHORT"),
        (1.0, math.nan, False, True, "NOT_MIXED"),
        (math.nan, math.nan, False, False, "TOO_SHORT"),
    ],
)
def test_both_numbers_have_to_be_good(rhat, ess, early, enough, outcome):
    assert _judge(rhat, ess, early=early, enough=enough) is PosteriorOutcome[outcome]


def test_the_lowest_frequencies_that_were_not_acquired_are_watched(generator):
    """In the second slice all lines but the three central ones are left out, in the first none."""
    kspace, _, image = scan(generator, n_slices=2, grid=(16, 15), keep=2.0)
    mask = kspace.mask.clone()
    mask[1] = False
    mask[1, :, 7:10] = True
    data = DataConsistency(
        *SampledFourier.fold(type(kspace)(samples=kspace.samples, mask=mask, noise_std=1.0))
    )
    watched = WatchedStatistics.choose(image, data)
    rows, columns = watched.frequencies // 15, watched.frequencies % 15
    lines = torch.minimum(rows, 16 - rows)
    assert watched.frequencies.shape == (2, 8)
    assert int(watched.frequencies[0, 0]) == 0
    assert int(lines[:, :4].max()) <= 1
    assert int(torch.minimum(columns, 15 - columns)[:, :4].max()) <= 1
    assert lines[1, 4:].tolist() == [2] * 4, "the nearest that are missing"
    assert int(lines[0, 4:].max()) <= 1, "nothing is missing"


def test_statistics_are_what_they_are_called(generator):
    kspace, _, image = scan(generator, n_slices=2, grid=(16, 15))
    image = image * (torch.arange(15) > 4)  # air on one side
    watched = WatchedStatistics.choose(image, DataConsistency(*SampledFourier.fold(kspace)))
    draws = torch.complex(*torch.randn(2, 6, 1, 16, 15, generator=generator))
    energies = torch.arange(6, dtype=torch.float64)
    found = watched.of(draws, Evaluation(draws, energies, 10 * energies)).numpy()
    assert found.shape == (2, 3, 2 + 16 + N_PIXELS)
    for row in range(6):
        statistics = found[row // 3, row % 3]
        np.testing.assert_allclose(statistics[:2], [row, 10 * row])
        spectrum = np.fft.fft2(draws[row, 0].numpy(), norm="ortho").ravel()
        expected = spectrum[watched.frequencies[row // 3].numpy()]
        np.testing.assert_allclose(statistics[2:10], expected.real, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(statistics[10:18], expected.imag, rtol=1e-4, atol=1e-5)
        pixels = watched.pixels[row // 3].numpy()
        assert len(set(pixels)) == N_PIXELS
        reference = image[row // 3].numpy().ravel()[pixels]
        assert (np.abs(reference) > 0.1 * image[row // 3].abs().max().item()).all(), "in the object"
        along = draws[row].numpy().ravel()[pixels] * np.conj(reference) / np.abs(reference)
        np.testing.assert_allclose(statistics[18:], along.real, rtol=1e-4, atol=1e-5)
