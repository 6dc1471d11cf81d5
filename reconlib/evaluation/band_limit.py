r"""How much of an image's spectrum was measured, and the image on the matrix that holds just that.

Scanners and archives often interpolate images by filling k-space with zeros. Beyond the measured part the
spectrum falls at once to the noise of rounding. Simulating a scan on such an image flatters every
reconstruction, for there is nothing to reconstruct out there; so the image is cut to what was measured.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reconlib.operators.fourier import fft2c, ifft2c

SMALLEST_DROP = 0.45
"""Decades of mean power by which the spectrum has to fall at an edge. Without one it falls by 0.1 to
0.4 over the lines that are compared."""
WINDOW = 6
"""Lines that are averaged on either side. An edge so close to that of the matrix is not seen."""
GAP = 2
"""Lines between them: edges are a little blurred by the magnitude, which was taken after interpolation."""
CORNER_SHARE = 1 / 16
"""Side of a corner of the spectrum, as a share of the matrix."""


def measured_extent(image: Tensor) -> tuple[int, int]:
    """Return the matrix (y, x) that holds the measured part of the spectrum of an image (1, 1, y, x).

    Both numbers are even where something is cut. An axis without an edge in its spectrum keeps its size. An
    edge is looked for outside the central half of the spectrum.
    """
    power = fft2c(image.to(torch.complex128)).abs().square()[0, 0].numpy()
    return _extent(power.mean(axis=1)), _extent(power.mean(axis=0))


def cut_to_measured(image: Tensor) -> Tensor:
    """Return the image float32 (1, 1, y, x), not negative, on the matrix of :func:`measured_extent`.

    Its k-space is cropped to that; intensities stay as they are.
    """
    n_y, n_x = image.shape[-2:]
    m_y, m_x = measured_extent(image)
    if (m_y, m_x) == (n_y, n_x):
        return image.float()
    kspace = fft2c(image.to(torch.complex128))
    top, left = n_y // 2 - m_y // 2, n_x // 2 - m_x // 2
    small: Tensor = ifft2c(kspace[..., top : top + m_y, left : left + m_x])
    scale = (m_y * m_x / (n_y * n_x)) ** 0.5
    cut: Tensor = (small.real * scale).clamp_min(0).float()
    return cut


def own_noise_std(image: Tensor) -> float:
    r"""Estimate the noise of an image (1, 1, y, x) from the four corners of its spectrum.

    Objects have hardly any signal there, so the squared magnitudes are exponentially distributed with the
    mean :math:`\sigma^2`; their median is :math:`\sigma^2 \ln 2`. Too small where a filter has taken the
    corners away, so cut an interpolated image first.
    """
    power = fft2c(image.to(torch.complex128)).abs().square()[0, 0]
    n_y, n_x = (max(1, round(CORNER_SHARE * n)) for n in power.shape)
    edge_y, edge_x = [*range(n_y), *range(-n_y, 0)], [*range(n_x), *range(-n_x, 0)]
    return math.sqrt(float(power[edge_y][:, edge_x].median()) / math.log(2))


def _extent(power: NDArray[np.float64]) -> int:
    """Size of the part of a power spectrum (centred, along one axis) before its largest fall for good."""
    n = len(power)
    centre = n // 2
    reach = min(centre, n - 1 - centre) + 1
    # both sides together: index j is the distance from the centre
    outwards, inwards = power[centre : centre + reach], power[::-1][n - 1 - centre : n - 1 - centre + reach]
    profile = np.log10((outwards + inwards) / 2 + 1e-300)
    if reach < 2 * WINDOW + GAP:
        return n
    level = np.convolve(profile, np.full(WINDOW, 1 / WINDOW), mode="valid")
    best, where = SMALLEST_DROP, n
    for edge in range(max(n // 4, WINDOW), len(level) - GAP):
        drop = float(level[edge - WINDOW] - level[edge + GAP :].max())
        if drop > best:
            best, where = drop, 2 * edge
    return where
