"""Metrics against formulas written out with numpy and scipy."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from reconlib.evaluation.metrics import fit_scale, nmse, psnr, psnr_after_scale_fit, ssim


@pytest.fixture
def pair(generator):
    """Three slices of an image with structure, and a noisy copy; 23 x 30."""
    reference = torch.rand(3, 1, 23, 30, generator=generator) ** 3
    image = reference + 0.05 * torch.randn(3, 1, 23, 30, generator=generator)
    return image, reference


def written_out_ssim(image: np.ndarray, reference: np.ndarray) -> float:
    """SSIM of one slice with scipy's uniform filter, borders of half a window left out."""
    x, y = image.astype(np.float64), reference.astype(np.float64)
    n = 49
    mean_x, mean_y = ndimage.uniform_filter(x, 7), ndimage.uniform_filter(y, 7)
    var_x = n / (n - 1) * (ndimage.uniform_filter(x * x, 7) - mean_x**2)
    var_y = n / (n - 1) * (ndimage.uniform_filter(y * y, 7) - mean_y**2)
    cov = n / (n - 1) * (ndimage.uniform_filter(x * y, 7) - mean_x * mean_y)
    c_1, c_2 = (0.01 * y.max()) ** 2, (0.03 * y.max()) ** 2
    value = (
        (2 * mean_x * mean_y + c_1)
        * (2 * cov + c_2)
        / ((mean_x**2 + mean_y**2 + c_1) * (var_x + var_y + c_2))
    )
    return float(value[3:-3, 3:-3].mean())


def test_psnr_relates_the_error_to_the_peak_of_the_reference(pair):
    image, reference = pair
    values = psnr(image, reference)
    assert values.dtype == torch.float64
    for i in range(3):
        x, y = image[i, 0].double().numpy(), reference[i, 0].double().numpy()
        assert values[i].item() == pytest.approx(
            10 * np.log10(y.max() ** 2 / np.mean((x - y) ** 2)), rel=1e-12
        )


def test_psnr_of_a_known_error():
    reference = torch.zeros(1, 1, 10, 10)
    reference[0, 0, 3, 4] = 2.0
    assert psnr(reference + 0.2, reference).item() == pytest.approx(20.0, abs=1e-5)
    assert psnr(reference, reference).item() == float("inf")


def test_nmse_relates_the_error_to_the_energy(pair):
    image, reference = pair
    expected = [
        float(np.sum((x - y) ** 2) / np.sum(y**2))
        for x, y in zip(image.double().numpy(), reference.double().numpy(), strict=True)
    ]
    assert nmse(image, reference).tolist() == pytest.approx(expected, rel=1e-12)


def test_fitted_scale_is_the_least_squares_solution(pair):
    image, reference = pair
    expected = [
        np.linalg.lstsq(x.reshape(-1, 1), y.reshape(-1), rcond=None)[0][0]
        for x, y in zip(image.double().numpy(), reference.double().numpy(), strict=True)
    ]
    assert fit_scale(image, reference).flatten().tolist() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("factor", [1e-9, 0.5, 1e6])
def test_brightness_costs_nothing_after_the_scale_fit(pair, factor):
    image, reference = pair
    plain = psnr_after_scale_fit(image, reference)
    assert torch.allclose(psnr_after_scale_fit(image * factor, reference), plain, rtol=1e-6)
    assert bool((plain >= psnr(image, reference) - 1e-9).all())


def test_an_image_of_zeros_has_a_finite_psnr(pair):
    assert bool(torch.isfinite(psnr_after_scale_fit(torch.zeros_like(pair[1]), pair[1])).all())


def test_ssim_equals_the_formula_written_with_scipy(pair):
    image, reference = pair
    expected = [written_out_ssim(x[0].numpy(), y[0].numpy()) for x, y in zip(image, reference, strict=True)]
    assert ssim(image, reference).tolist() == pytest.approx(expected, rel=1e-10)


def test_ssim_of_an_image_with_itself_is_one(pair):
    assert ssim(pair[1], pair[1]).tolist() == pytest.approx([1.0] * 3, abs=1e-12)


@pytest.mark.parametrize("metric", [psnr, psnr_after_scale_fit, nmse, ssim])
def test_a_slice_in_a_batch_has_the_value_that_it_has_alone(pair, metric):
    image, reference = pair
    reference = reference * torch.tensor([1.0, 30.0, 0.01])[:, None, None, None]
    alone = [metric(image[i : i + 1], reference[i : i + 1]).item() for i in range(3)]
    assert metric(image, reference).tolist() == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("metric", [psnr, psnr_after_scale_fit, nmse, ssim])
def test_a_nan_in_the_image_is_not_hidden(pair, metric):
    image, reference = pair[0].clone(), pair[1]
    image[1, 0, 2, 3] = torch.nan
    assert torch.isnan(metric(image, reference)).tolist() == [False, True, False]


def test_what_cannot_be_compared_is_refused():
    good = torch.ones(1, 1, 8, 8)
    with pytest.raises(ValueError, match=r"shape \(1, 1, 8, 9\).*\(1, 1, 8, 8\)"):
        psnr(torch.ones(1, 1, 8, 9), good)
    with pytest.raises(ValueError, match=r"need \(slice, 1, y, x\)"):
        psnr(torch.ones(8, 8), torch.ones(8, 8))
    with pytest.raises(ValueError, match="complex"):
        nmse(good.to(torch.complex64), good)
    with pytest.raises(ValueError, match="no positive value"):
        psnr(good, torch.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match="at least 7 x 7"):
        ssim(torch.ones(1, 1, 6, 8), torch.ones(1, 1, 6, 8))
