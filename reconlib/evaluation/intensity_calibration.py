r"""Correct intensities by a curve that was fitted on other scans.

A reconstruction may have a bias that depends on brightness alone. The paper corrects it with a spline from
the intensity of the reconstruction to that of the reference; here it is a monotone cubic one, so that no two
intensities change places, over intensities that are divided by the image's own 99.9th percentile, so that
the brightness of a scan does not matter. It never sees the reference of the scan that it is used on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from torch import Tensor

from reconlib.evaluation.metrics import fit_scale
from reconlib.evaluation.study import Case, Method, MethodImage

PERCENTILE = 99.9
N_BINS = 24
"""Even steps of intensity up to the brightest pixel."""
FEWEST_PIXELS = 10
"""In a step that counts."""
FEWEST_KNOTS = 4


class CalibrationError(ValueError):
    """No curve can be fitted; the text says why."""


@dataclass(frozen=True, slots=True, eq=False)
class IntensityCurve:
    """A spline from relative intensity to relative intensity; straight on outside the range of the fit."""

    spline: PchipInterpolator
    lowest: float
    highest: float

    def __call__(self, image: Tensor) -> Tensor:
        """Return the corrected image, float32 (slice, 1, y, x), not negative."""
        scale = _brightness(image)
        relative = (image.double() / scale).numpy()
        inside = np.clip(relative, self.lowest, self.highest)
        corrected = self.spline(inside) + (relative - inside)
        return (torch.from_numpy(corrected) * scale).clamp_min(0).float()


def fit_intensity_curve(pairs: Sequence[tuple[Tensor, Tensor]]) -> IntensityCurve:
    """Fit the curve to images and their references, real (1, 1, y, x) each, at least one pair.

    Each reference is first brought to the image's scale by one least-squares factor. The knots are the means
    of image and reference in even steps of the image's intensity; where the means of the reference fall,
    neighbours are pooled until they do not (isotonic regression), and a monotone cubic spline goes through
    them.

    Raises
    ------
    CalibrationError
        There is no pair, or the intensities differ too little.

    References
    ----------
    Fritsch and Butland, SIAM J Sci Stat Comput 5:300 (1984).
    """
    found, wanted = [np.zeros(0)], [np.zeros(0)]
    for image, reference in pairs:
        if not bool(torch.isfinite(image).all()) or not bool((image > 0).any()):
            raise CalibrationError("An intensity curve cannot be fitted to an image of zeros or NaNs.")
        scale = _brightness(image)
        found.append((image.double() / scale).numpy().ravel())
        wanted.append((reference.double() * fit_scale(reference, image) / scale).numpy().ravel())
    x, y = np.concatenate(found), np.concatenate(wanted)
    steps = np.linspace(0.0, x.max(initial=1e-30), N_BINS + 1)[1:-1]
    bins = np.digitize(x, steps)
    counts = np.bincount(bins, minlength=N_BINS)
    used = counts >= FEWEST_PIXELS
    if int(used.sum()) < FEWEST_KNOTS:
        raise CalibrationError(
            f"An intensity curve needs pixels at {FEWEST_KNOTS} levels of intensity or more; these images "
            f"have them at {int(used.sum())}. Calibrate on scans with a full range."
        )
    knots, values = (np.bincount(bins, z, N_BINS)[used] / counts[used] for z in (x, y))
    return IntensityCurve(
        PchipInterpolator(knots, _rising(values, counts[used])), float(knots[0]), float(knots[-1])
    )


def _rising(values: NDArray[np.float64], weights: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the closest values, in weighted squares, that do not fall: neighbours are pooled."""
    pools: list[tuple[float, int, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, length = value, weight, 1
        while pools and pools[-1][0] >= mean:
            before, its_weight, its_length = pools.pop()
            mean = (before * its_weight + mean * total) / (its_weight + total)
            total, length = total + its_weight, length + its_length
        pools.append((mean, total, length))
    return np.concatenate([np.full(length, mean) for mean, _, length in pools])


def calibrated(method: Method, others: Callable[[Case], Sequence[Case]]) -> Method:
    """Return the method with its intensities corrected by a curve fitted on other cases.

    ``others`` gives the cases to fit on, such as those with the same pattern. A curve is fitted once per
    pattern, when it is first needed. The maps are those of the method, so they are not repeated; standard
    deviations would no longer fit.
    """
    curves: dict[str, IntensityCurve] = {}

    def with_curve(case: Case) -> MethodImage:
        result = method(case)
        if case.pattern not in curves:
            pairs = [(method(other).image, other.reference) for other in others(case)]
            curves[case.pattern] = fit_intensity_curve(pairs)
        return replace(result, image=curves[case.pattern](result.image), coils=None, std=None)

    return with_curve


def _brightness(image: Tensor) -> float:
    return max(float(np.percentile(image.numpy(), PERCENTILE)), 1e-30)
