"""How far an image is from its reference: PSNR, NMSE and SSIM, one value per slice.

Images are real, (slice, 1, y, x), of any float type; the sums are taken in float64. Peak and data range are
those of the reference of each slice, so a slice in a batch has the value that it has alone.
"""

import torch
from torch import Tensor
from torch.nn import functional

SSIM_WINDOW = 7
SSIM_K1 = 0.01
SSIM_K2 = 0.03


def fit_scale(image: Tensor, reference: Tensor) -> Tensor:
    """Return the factor per slice, (slice, 1, 1, 1) float64, that brings the image closest to the reference.

    The least-squares solution ``<image, reference> / <image, image>``; 0 for an image of zeros.
    """
    image, reference = _checked(image, reference)
    power = _total(image * image)
    factor = _total(image * reference) / torch.where(power > 0, power, torch.ones_like(power))
    return factor[:, None, None, None]


def psnr(image: Tensor, reference: Tensor) -> Tensor:
    r"""Peak signal-to-noise ratio in dB per slice, float64.

    .. math:: 20 \log_{10}(\max r / \mathrm{rms}(x - r))
    """
    image, reference = _checked(image, reference)
    peak = reference.amax(dim=(1, 2, 3))
    mean_square = _total((image - reference).square()) / image[0].numel()
    return 20.0 * torch.log10(peak) - 10.0 * torch.log10(mean_square)


def psnr_after_scale_fit(image: Tensor, reference: Tensor) -> Tensor:
    """:func:`psnr` of the image times its :func:`fit_scale`: a wrong overall brightness costs nothing."""
    return psnr(image.to(torch.float64) * fit_scale(image, reference), reference)


def nmse(image: Tensor, reference: Tensor) -> Tensor:
    r"""Normalised mean squared error per slice: :math:`\|x - r\|^2 / \|r\|^2`, float64."""
    image, reference = _checked(image, reference)
    return _total((image - reference).square()) / _total(reference.square())


def ssim(image: Tensor, reference: Tensor) -> Tensor:
    """Structural similarity per slice, float64.

    A uniform window of 7 x 7 pixels that lies completely inside the image, K1 = 0.01, K2 = 0.03, the sample
    covariance (divided by 48), and the maximum of the reference as data range: the fastMRI convention.

    References
    ----------
    Wang et al., IEEE Trans Image Process 13:600 (2004).
    """
    image, reference = _checked(image, reference)
    if min(image.shape[-2:]) < SSIM_WINDOW:
        raise ValueError(
            f"SSIM needs images of at least {SSIM_WINDOW} x {SSIM_WINDOW} pixels; these have "
            f"{image.shape[-2]} x {image.shape[-1]}."
        )
    data_range = reference.amax(dim=(1, 2, 3))[:, None, None, None]
    c_1, c_2 = (SSIM_K1 * data_range) ** 2, (SSIM_K2 * data_range) ** 2
    n_window = SSIM_WINDOW**2
    sample = n_window / (n_window - 1)
    mean_x, mean_y = _local_mean(image), _local_mean(reference)
    variance_x = sample * (_local_mean(image * image) - mean_x * mean_x)
    variance_y = sample * (_local_mean(reference * reference) - mean_y * mean_y)
    covariance = sample * (_local_mean(image * reference) - mean_x * mean_y)
    brightness = (2.0 * mean_x * mean_y + c_1) / (mean_x * mean_x + mean_y * mean_y + c_1)
    structure = (2.0 * covariance + c_2) / (variance_x + variance_y + c_2)
    return (brightness * structure).mean(dim=(1, 2, 3))


def _local_mean(image: Tensor) -> Tensor:
    return functional.avg_pool2d(image, SSIM_WINDOW, stride=1)


def _total(values: Tensor) -> Tensor:
    return values.sum(dim=(1, 2, 3))


def _checked(image: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float64, or an error that says what does not fit."""
    if image.shape != reference.shape or image.ndim != 4 or image.shape[1] != 1:
        raise ValueError(
            f"An image of shape {tuple(image.shape)} cannot be compared with a reference of shape "
            f"{tuple(reference.shape)}; both need (slice, 1, y, x)."
        )
    if image.is_complex() or reference.is_complex():
        raise ValueError(
            "Metrics compare magnitudes; this image or reference is complex. Take its abs() first."
        )
    if not bool((reference.amax(dim=(1, 2, 3)) > 0).all()):
        raise ValueError(
            "A slice of the reference has no positive value (or a NaN), so there is no peak to relate to."
        )
    return image.to(torch.float64), reference.to(torch.float64)
