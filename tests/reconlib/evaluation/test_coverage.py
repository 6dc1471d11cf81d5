"""Coverage and reliability of standard deviations, where the right answer can be written down."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from reconlib.evaluation.coverage import (
    LEVELS,
    PixelErrors,
    factor_for_coverage,
    head_mask,
    pixel_errors,
    pooled,
    reliability,
    std_ratio,
    uncertainty_measures,
)

N_PIXELS = 20_000


def gaussian_errors(std_off_by=1.0, reference_std=0.0, seed=1):
    """Errors of known standard deviations between 0.01 and 0.05, which are told ``std_off_by`` times off."""
    rng = np.random.default_rng(seed)
    std = rng.uniform(0.01, 0.05, N_PIXELS)
    error = std * rng.standard_normal(N_PIXELS) + reference_std * rng.standard_normal(N_PIXELS)
    return PixelErrors(error=error, std=std / std_off_by, reference_std=np.full(N_PIXELS, reference_std))


def binomial_tolerance(level):
    return 5 * math.sqrt(level * (1 - level) / N_PIXELS)


def disc(matrix=(61, 48), radius=0.7):
    y, x = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in matrix), indexing="ij")
    return (y**2 + x**2 < radius**2)[None, None]


@pytest.mark.parametrize("level", LEVELS)
def test_honest_standard_deviations_cover_what_they_say(level):
    assert gaussian_errors().coverage(level) == pytest.approx(level, abs=binomial_tolerance(level))
    noisy = gaussian_errors(reference_std=0.03)
    assert noisy.coverage(level) == pytest.approx(level, abs=binomial_tolerance(level))


def test_half_the_width_covers_what_half_the_width_does():
    # P(|n| < z / 2) for a standard normal n
    for level in LEVELS:
        expected = 2 * norm.cdf(norm.ppf((1 + level) / 2) / 2) - 1
        found = gaussian_errors(std_off_by=2.0).coverage(level)
        assert found == pytest.approx(expected, abs=binomial_tolerance(expected))


@pytest.mark.parametrize("reference_std", [0.0, 0.02])
def test_a_width_that_is_off_by_two_is_found_as_the_factor_two(reference_std):
    errors = gaussian_errors(std_off_by=2.0, reference_std=reference_std)
    factor = factor_for_coverage(errors)
    assert factor == pytest.approx(2.0, rel=0.05)
    assert errors.coverage(0.9, factor) == pytest.approx(0.9, abs=1e-3)
    # the same by bisection
    low, high = 0.1, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if errors.coverage(0.9, middle) < 0.9 else (low, middle)
    assert factor == pytest.approx(high, rel=1e-9)


def test_pixels_of_no_width_count_as_outside():
    errors = gaussian_errors()
    std = np.where(np.arange(N_PIXELS) < N_PIXELS // 20, 0.0, errors.std)
    partly = PixelErrors(error=errors.error, std=std, reference_std=errors.reference_std)
    # of the others, 0.9 / 0.95 have to lie inside
    expected = norm.ppf((1 + 0.9 / 0.95) / 2) / norm.ppf(0.95)
    assert factor_for_coverage(partly) == pytest.approx(expected, rel=0.03)


def test_where_no_factor_helps_that_is_said():
    errors = gaussian_errors()
    nothing = PixelErrors(error=errors.error, std=0 * errors.std, reference_std=errors.reference_std)
    with pytest.raises(ValueError, match=r"No factor gives 90 % coverage: more than 10 % .* are zero"):
        factor_for_coverage(nothing)
    loud = PixelErrors(error=errors.error, std=errors.std, reference_std=np.full(N_PIXELS, 1.0))
    with pytest.raises(ValueError, match="the noise of the reference alone explains the errors"):
        factor_for_coverage(loud)


def test_errors_lie_on_the_diagonal_for_honest_widths_only():
    curve = reliability(gaussian_errors())
    assert curve.n_pixels.sum() == N_PIXELS
    # the relative standard error of a root mean square of n normal errors is 1 / sqrt(2 n)
    tolerance = 5 / math.sqrt(2 * curve.n_pixels.min())
    assert curve.rms_error == pytest.approx(curve.predicted, rel=tolerance)
    assert curve.predicted[0] < 0.015
    assert curve.predicted[-1] > 0.045
    assert curve.coverage == pytest.approx(curve.levels, abs=0.02)
    double = reliability(gaussian_errors(std_off_by=2.0))
    assert double.rms_error == pytest.approx(2 * double.predicted, rel=tolerance)
    repaired = reliability(gaussian_errors(std_off_by=2.0), factor=2.0)
    assert repaired.rms_error == pytest.approx(repaired.predicted, rel=tolerance)


def test_fewer_pixels_than_bins_are_one_bin_each():
    few = PixelErrors(error=np.array([0.1, 0.2]), std=np.array([0.3, 0.1]), reference_std=np.zeros(2))
    curve = reliability(few)
    assert curve.predicted.tolist() == [0.1, 0.3]
    assert curve.rms_error.tolist() == [0.2, 0.1]


def test_an_image_is_compared_at_the_references_scale_and_inside_the_head_only(generator):
    inside = disc()
    reference = torch.where(inside, 4.0, 0.01)
    noise = torch.randn(reference.shape, generator=generator, dtype=torch.float64)
    image = (reference + torch.where(inside, 0.2, 0.0) * noise) / 3
    std = torch.where(inside, 0.2, 100.0) / 3
    errors = pixel_errors(image, std, reference, reference_noise_std=0.4, mask=inside)
    scale = float((image * reference).sum() / (image * image).sum())  # about 3
    assert len(errors.error) == int(inside.sum())
    assert errors.std == pytest.approx(scale * 0.2 / 3 / 4.0)
    assert errors.reference_std == pytest.approx(0.1)
    expected = (scale * image - reference)[inside].numpy() / 4.0
    assert errors.error == pytest.approx(expected, abs=1e-12)
    assert pixel_errors(1e-9 * image, 1e-9 * std, reference, mask=inside).error == pytest.approx(errors.error)


def test_pooled_scans_are_their_pixels_together():
    one, other = gaussian_errors(seed=2), gaussian_errors(std_off_by=4.0, seed=3)
    both = pooled([one, other])
    assert both.coverage(0.9) == pytest.approx((one.coverage(0.9) + other.coverage(0.9)) / 2)
    assert both.rms_error == pytest.approx(math.hypot(one.rms_error, other.rms_error) / math.sqrt(2))
    with pytest.raises(ValueError, match="no errors to pool"):
        pooled([])


def test_the_row_says_coverage_with_and_without_the_cards_factor():
    row = uncertainty_measures(gaussian_errors(std_off_by=0.5), std_factor=2.0)
    half = 2 * norm.cdf(norm.ppf(0.95)) - 1
    assert row["coverage_90_without_factor"] == pytest.approx(half, abs=binomial_tolerance(0.9))
    assert row["coverage_90"] > 0.99
    assert row["mean_std"] == pytest.approx(0.06, rel=0.01)
    assert row["rms_error_in_head"] == pytest.approx(math.sqrt((0.05**3 - 0.01**3) / 3 / 0.04), rel=0.03)


def test_a_ratio_of_maps_is_told_by_its_percentiles():
    other = torch.rand(1, 1, 50, 41, generator=torch.Generator().manual_seed(0)) + 0.5
    ratio = torch.linspace(1, 3, other.numel()).reshape(other.shape)
    found = std_ratio(ratio * other, other, torch.ones_like(other, dtype=torch.bool))
    assert (found.median, found.tenth, found.ninetieth) == pytest.approx((2.0, 1.2, 2.8), rel=1e-3)
    mask = disc((50, 41), 0.4)
    other[~mask] = 0
    assert std_ratio(2 * other, other, torch.ones_like(mask)).median == 2.0
    with pytest.raises(ValueError, match="a positive value inside"):
        std_ratio(other, other, ~mask)


def test_the_head_is_the_largest_part_with_its_holes_filled(generator):
    head, hole = disc(radius=0.7), disc(radius=0.3)
    image = torch.where(head & ~hole, 1.0, 0.0) + 0.02 * torch.rand(head.shape, generator=generator)
    image[..., :4, :4] = 1.0  # something bright beside it
    mask = head_mask(image)
    assert mask.shape == image.shape
    assert not bool(mask[..., :4, :4].any())
    assert bool(mask[hole].all())
    assert abs(int(mask.sum()) - int(head.sum())) < 0.15 * int(head.sum())  # the edge, by the smoothing
    assert bool(mask[disc(radius=0.65)].all())
    assert not bool(mask[~disc(radius=0.8)].any())
    assert torch.equal(head_mask(1e-9 * image), mask)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda image: image * 0, "no positive value"),
        (lambda image: image * float("nan"), "infinities or NaNs"),
        (lambda image: image.to(torch.complex64), r"needs a real image \(1, 1, y, x\)"),
        (lambda image: image[0], r"a real image \(1, 1, y, x\)"),
    ],
)
def test_what_shows_no_head_is_refused(spoil, message):
    with pytest.raises(ValueError, match=message):
        head_mask(spoil(disc().float()))


def test_maps_that_do_not_fit_are_refused():
    image, inside = disc().float(), disc()
    with pytest.raises(ValueError, match="they need the same shape"):
        pixel_errors(image, image[..., :-1], image)
    with pytest.raises(ValueError, match="The mask is empty"):
        pixel_errors(image, image, image, mask=torch.zeros_like(inside))
    with pytest.raises(ValueError, match="no interval to check"):
        pixel_errors(image, -image, image, mask=inside)
    with pytest.raises(ValueError, match="lies between 0 and 1"):
        gaussian_errors().coverage(1.0)
