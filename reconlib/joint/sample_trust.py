r"""How far samples at any points of k-space can be trusted, where repeated ones contradict each other.

Spokes and spirals measure the centre of k-space over and over: with every readout, hundreds of times as
densely as a grid. If noise were the only error, least squares would rightly count every sample. But gradient
delays, the receiver's filter at the start of a readout, magnetisation on its way to the steady state and
phases that differ between readouts make those samples contradict each other by up to a hundred times the
noise. No image explains them, and by their number they outweigh the rest of k-space: what is left over shows
as lines and shading.

So a first estimate, a few iterations of total variation (:mod:`~reconlib.joint.solving`), tells how far
samples are off, and they get a trust p

.. math::
    v_j = \Big\langle \frac{|A (e x) - z|^2}{2 \sigma^2} \Big\rangle, \qquad
    p_j = \min\Big(1,\ \max\Big(\frac{2}{v_j},\ \frac{W_j}{10}\Big)\Big)

with the mean over all coils and the :data:`RING` samples that are nearest to j in their distance from the
centre. The data term is then :math:`\frac12 \|P^{1/2} (A w - z)\|^2`. W are the density weights, the area of
k-space for which a sample stands: with them in the lower limit, what was measured many times counts for at
least a tenth of one measurement, enough to keep the brightness of large areas in place. Samples that agree to
twice the variance of the noise keep p = 1: where all do, nothing is changed.
"""

import torch
from torch import Tensor

from reconlib.kspace import NonuniformKSpace
from reconlib.operators.nonuniform import NonuniformFourier

RING = 64
"""Samples whose misfit is averaged."""
TOLERATED = 2.0
"""Squared misfit in units of the noise's variance below which samples are trusted fully."""

FLOOR = 0.1
"""Part of one measurement for which what was measured many times counts at least."""


def is_repeated(kspace: NonuniformKSpace) -> bool:
    """Whether some sample stands for less than a cell of the grid: others may contradict it."""
    return bool((kspace.weights < 1).any())


def sample_trust(kspace: NonuniformKSpace, fourier: NonuniformFourier, coil_images: Tensor) -> Tensor | None:
    """Return p of the module's text, float32 (slice, point); None where it is 1 everywhere.

    Parameters
    ----------
    fourier
        A, planned for the points of ``kspace``.
    coil_images
        The first estimate, complex64 (slice, coil, y, x), in the units of the samples.
    """
    residual = fourier.forward(coil_images).sub_(kspace.samples)
    misfit = torch.view_as_real(residual).square().sum(dim=-1).mean(dim=1) / (2 * kspace.noise_std**2)
    radius = kspace.trajectory.double().mul(torch.tensor(kspace.shape, device=misfit.device)).norm(dim=-1)
    order = radius.argsort(dim=-1, stable=True).expand_as(misfit)
    ringwise = torch.empty_like(misfit).scatter_(1, order, _running_mean(misfit.gather(1, order)))
    trust = torch.maximum(TOLERATED / ringwise, FLOOR * kspace.weights.to(misfit.dtype)).clamp_max(1.0)
    trust = torch.where(torch.isfinite(ringwise), trust, 1.0)
    return None if bool((trust == 1).all()) else trust


def _running_mean(values: Tensor) -> Tensor:
    """Mean over :data:`RING` neighbours along the last axis, fewer at its ends."""
    width = min(RING, values.shape[-1])
    mean: Tensor = torch.nn.functional.avg_pool1d(
        values[:, None], width + 1 - width % 2, stride=1, padding=width // 2, count_include_pad=False
    )[:, 0]
    return mean
