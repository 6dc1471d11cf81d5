r"""Correct intensities by a curve that was fitted on other scans.

A reconstruction may have a bias that depends on brightness alone. The paper corrects it with a spline from
the intensity of the reconstruction to that of the reference; here it is a cubic least-squares spline over
intensities that are divided by the image's own 99.9th percentile, so that the brightness of a scan does not
matter. It never sees the reference of the scan that it is used on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import BSpline, make_lsq_spline
from torch import Tensor

from reconlib.evaluation.metrics import fit_scale
from reconlib.evaluation.study import Case, Method, MethodImage

PERCENTILE = 99.9
N_INNER_KNOTS = 6
DEGREE = 3


@dataclass(frozen=True, slots=True, eq=False)
class IntensityCurve:
    """A spline from relative intensity to relative intensity; straight on outside the range of the fit."""

    spline: BSpline
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

    Each reference is first brought to the image's scale by one least-squares factor. Knots lie at even
    quantiles of the intensities of the image, zero apart.
    """
    if not pairs:
        raise ValueError("An intensity curve needs at least one pair of image and reference.")
    found, wanted = [], []
    for image, reference in pairs:
        scale = _brightness(image)
        found.append((image.double() / scale).numpy().ravel())
        wanted.append((reference.double() * fit_scale(reference, image) / scale).numpy().ravel())
    x, y = np.concatenate(found), np.concatenate(wanted)
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    levels = np.linspace(0, 1, N_INNER_KNOTS + 2)[1:-1]
    inner: NDArray[np.float64] = np.unique(np.quantile(x[x > 0], levels)) if (x > 0).any() else np.array([])
    inner = inner[(inner > x[0]) & (inner < x[-1])]
    if len(inner) < N_INNER_KNOTS:
        raise ValueError("The images have too few different intensities to fit a curve to.")
    knots = np.r_[(x[0],) * (DEGREE + 1), inner, (x[-1],) * (DEGREE + 1)]
    return IntensityCurve(make_lsq_spline(x, y, knots, DEGREE), float(x[0]), float(x[-1]))


def calibrated(method: Method, others: Callable[[Case], Sequence[Case]]) -> Method:
    """Return the method with its intensities corrected by a curve fitted on other cases.

    ``others`` gives the cases to fit on, such as those with the same pattern. A curve is fitted once per
    pattern, when it is first needed. The maps are those of the method, so they are not repeated.
    """
    curves: dict[str, IntensityCurve] = {}

    def with_curve(case: Case) -> MethodImage:
        result = method(case)
        if case.pattern not in curves:
            pairs = [(method(other).image, other.reference) for other in others(case)]
            curves[case.pattern] = fit_intensity_curve(pairs)
        return replace(result, image=curves[case.pattern](result.image), coils=None)

    return with_curve


def _brightness(image: Tensor) -> float:
    return max(float(np.percentile(image.numpy(), PERCENTILE)), 1e-30)
