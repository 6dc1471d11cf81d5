r"""How far a map of standard deviations can be trusted: intervals against a reference.

For every pixel of the head a Gaussian interval :math:`m \pm z_p s` is laid round the mean :math:`m`, with
:math:`P(|n| < z_p) = p` for a standard normal :math:`n`. If the map is honest, a share :math:`p` of the
reference lies inside, and pixels of the same predicted :math:`s` have that root-mean-square error.

A reference that is noisy itself, with the standard deviation :math:`s_r`, widens the interval to
:math:`\sqrt{s^2 + s_r^2}`: its noise is taken as independent of the error. Where it was part of the samples
it is not quite, and the interval is a little too wide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from scipy.stats import norm
from torch import Tensor

from reconlib.evaluation.metrics import fit_scale

Values = NDArray[np.float64]

LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the intervals that are reported."""
FITTED_LEVEL = 0.9
"""That of the interval whose coverage a factor makes right."""
HEAD_SHARE = 0.1
"""Pixels above this share of the bright ones belong to the head."""
BRIGHT_PERCENTILE = 99.5
SMOOTHING_PIXELS = 1.0
N_BINS = 12
CURVE_LEVELS = np.linspace(0.05, 0.99, 40)


def head_mask(reference: Tensor) -> Tensor:
    """Return where the head is in a magnitude image (1, 1, y, x), bool.

    The image is smoothed by a Gaussian of one pixel. What exceeds a tenth of its 99.5th percentile is taken,
    of that the largest connected part (pixels that share a side), and its holes are filled: ventricles and
    bone are part of the head.

    Raises
    ------
    ValueError
        The image is no finite magnitude with something in it.
    """
    if reference.ndim != 4 or reference.shape[:2] != (1, 1) or reference.is_complex():
        raise ValueError(
            f"The reference is {reference.dtype} of shape {tuple(reference.shape)}; a mask of the head needs "
            "a real image (1, 1, y, x)."
        )
    pixels = reference[0, 0].detach().cpu().to(torch.float64).numpy()
    if not np.isfinite(pixels).all() or not (pixels > 0).any():
        raise ValueError(
            "The reference has no positive value, or infinities or NaNs, so it shows no head; give a finite "
            "magnitude image."
        )
    smooth = ndimage.gaussian_filter(pixels, SMOOTHING_PIXELS)
    parts, n_parts = ndimage.label(smooth > HEAD_SHARE * np.percentile(smooth, BRIGHT_PERCENTILE))
    sizes = np.bincount(parts.ravel(), minlength=n_parts + 1)
    sizes[0] = 0
    filled = ndimage.binary_fill_holes(parts == sizes.argmax())
    return torch.from_numpy(np.asarray(filled, dtype=np.bool_))[None, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PixelErrors:
    """Errors of pixels and the standard deviations that were predicted for them.

    All are float64 (pixel,), as shares of the reference's maximum, so that scans can be pooled.
    """

    error: Values
    std: Values
    reference_std: Values
    """Of the reference's own noise."""

    def width(self, factor: float = 1.0) -> Values:
        """Return the predicted standard deviation of the error, with a factor on that of the method."""
        width: Values = np.hypot(factor * self.std, self.reference_std)
        return width

    def coverage(self, level: float, factor: float = 1.0) -> float:
        """Return the share of pixels whose reference lies inside the interval of that probability."""
        return float(np.mean(np.abs(self.error) <= _quantile(level) * self.width(factor)))

    @property
    def rms_error(self) -> float:
        """Root mean square of the errors."""
        return float(np.sqrt(np.mean(self.error**2)))


def pixel_errors(
    image: Tensor,
    std: Tensor,
    reference: Tensor,
    *,
    reference_noise_std: float = 0.0,
    mask: Tensor | None = None,
) -> PixelErrors:
    """Compare an image and its standard deviations with the reference, real (1, 1, y, x), inside the head.

    Image and standard deviations are brought to the reference by the one factor of
    :func:`reconlib.evaluation.metrics.fit_scale`. ``reference_noise_std`` is that of the reference's noise,
    in its units. The root sum of squares of coil images has, where there is signal, the noise of one real
    component of the samples. ``mask`` is by default the :func:`head_mask` of the reference.

    Raises
    ------
    ValueError
        Shapes differ, a value is not finite, a standard deviation is negative, or the mask is empty.
    """
    if std.shape != image.shape or (mask is not None and mask.shape != image.shape):
        raise ValueError(
            f"The image has shape {tuple(image.shape)}, its standard deviations {tuple(std.shape)}"
            f"{'' if mask is None else f', the mask {tuple(mask.shape)}'}; they need the same shape."
        )
    scale = float(fit_scale(image, reference))
    inside = head_mask(reference) if mask is None else mask
    if not bool(inside.any()):
        raise ValueError("The mask is empty; give one that is true in the object.")
    peak = float(reference.max())
    values, widths, target = (x[inside].double().cpu().numpy() for x in (image, std, reference))
    if not np.isfinite(values).all() or not np.isfinite(widths).all() or (widths < 0).any():
        raise ValueError(
            "The image or its standard deviations hold infinities, NaNs or negative standard deviations; "
            "there is no interval to check."
        )
    return PixelErrors(
        error=(values * scale - target) / peak,
        std=widths * abs(scale) / peak,
        reference_std=np.full(len(target), reference_noise_std / peak),
    )


def pooled(parts: Sequence[PixelErrors]) -> PixelErrors:
    """Return the pixels of all scans together; every pixel counts the same."""
    if not parts:
        raise ValueError("There are no errors to pool; give those of at least one scan.")
    return PixelErrors(
        error=np.concatenate([one.error for one in parts]),
        std=np.concatenate([one.std for one in parts]),
        reference_std=np.concatenate([one.reference_std for one in parts]),
    )


def factor_for_coverage(errors: PixelErrors, level: float = FITTED_LEVEL) -> float:
    r"""Return the factor on the standard deviations that makes the coverage of an interval right.

    A pixel lies inside for factors of at least :math:`f`, :math:`f^2 = (e^2 / z^2 - s_r^2) / s^2`; the
    quantile of these at the level is the answer, so no search is needed.

    Raises
    ------
    ValueError
        No factor does: too many standard deviations are zero, or the reference's noise alone covers more.
    """
    needed = (errors.error / _quantile(level)) ** 2 - errors.reference_std**2
    variance = errors.std**2
    never = np.where(needed > 0, np.inf, -np.inf)
    squared = np.divide(needed, variance, out=never, where=variance > 0)
    answer = float(np.quantile(squared, level, method="inverted_cdf"))
    if not 0 < answer < np.inf:
        reason = (
            "the noise of the reference alone explains the errors"
            if answer <= 0
            else f"more than {100 * (1 - level):.0f} % of the standard deviations are zero"
        )
        raise ValueError(f"No factor gives {100 * level:.0f} % coverage: {reason}. Fit on other scans.")
    return float(np.sqrt(answer))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reliability:
    """Errors against what was predicted; float64 (bin,) and (level,)."""

    predicted: Values
    """Root mean square of the predicted standard deviations of a bin."""
    rms_error: Values
    n_pixels: NDArray[np.int64]
    levels: Values
    coverage: Values
    """Share of pixels inside the interval of each level."""


def reliability(errors: PixelErrors, factor: float = 1.0, n_bins: int = N_BINS) -> Reliability:
    """Sort pixels by their predicted standard deviation into bins of equal size, and compare with the errors.

    For an honest map ``rms_error`` equals ``predicted``, and ``coverage`` equals ``levels``.
    """
    width = errors.width(factor)
    bins = [part for part in np.array_split(np.argsort(width, kind="stable"), n_bins) if len(part)]
    return Reliability(
        predicted=np.array([np.sqrt(np.mean(width[part] ** 2)) for part in bins]),
        rms_error=np.array([np.sqrt(np.mean(errors.error[part] ** 2)) for part in bins]),
        n_pixels=np.array([len(part) for part in bins]),
        levels=CURVE_LEVELS,
        coverage=np.array([errors.coverage(float(level), factor) for level in CURVE_LEVELS]),
    )


@dataclass(frozen=True, slots=True)
class StdRatio:
    """Ratio of two maps of standard deviations inside a mask."""

    median: float
    tenth: float
    """The 10th percentile."""
    ninetieth: float


def std_ratio(std: Tensor, other: Tensor, mask: Tensor) -> StdRatio:
    """Return how many times ``std`` is ``other``, real (1, 1, y, x), where the mask is true.

    Such as that of a scan with twice the noise over that of the scan. Pixels in which ``other`` is zero do
    not count.
    """
    inside = mask & (other > 0)
    if std.shape != other.shape or mask.shape != std.shape or not bool(inside.any()):
        raise ValueError(
            f"Standard deviations of shapes {tuple(std.shape)} and {tuple(other.shape)} cannot be compared "
            f"in a mask of shape {tuple(mask.shape)}; they need one shape, and a positive value inside."
        )
    ratio = (std[inside].double() / other[inside].double()).cpu().numpy()
    return StdRatio(*(float(np.percentile(ratio, percent)) for percent in (50, 10, 90)))


def uncertainty_measures(errors: PixelErrors, std_factor: float) -> dict[str, float]:
    """Return the columns of a table: coverages, and mean predicted and actual error (of the maximum).

    ``std_factor`` is the factor of the prior's card that the standard deviations contain.
    """
    row = {f"coverage_{100 * level:.0f}": errors.coverage(level) for level in LEVELS}
    return row | {
        "coverage_90_without_factor": errors.coverage(0.9, 1 / std_factor),
        "mean_std": float(np.mean(errors.std)),
        "rms_error_in_head": errors.rms_error,
    }


def _quantile(level: float) -> float:
    """Return z such that a standard normal lies in (-z, z) with this probability."""
    if not 0 < level < 1:
        raise ValueError(f"The probability of an interval is {level}; it lies between 0 and 1.")
    return float(norm.ppf((1 + level) / 2))
