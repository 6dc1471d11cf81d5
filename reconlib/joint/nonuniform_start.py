r"""The start of the joint estimate where samples lie at any points of k-space.

The coil images :math:`A^H W z`, W the density weights, are noisy and streaked. Maps that start from all of
their k-space, as on the grid, take long to get smooth; so they start from its centre:

.. math:: s_c = L\, (A^H W z)_c \,/\, \sqrt{\textstyle\sum_j |L\, (A^H W z)_j|^2}, \qquad
          x = \sum_c \bar s_c\, (A^H W z)_c

with L a Gaussian of :data:`WIDTH` cycles per field of view. Trajectories that start in the centre measure it
densely, so no calibration is needed.
"""

import torch
from torch import Tensor

from reconlib.operators.sense import root_sum_of_squares

WIDTH = 8.0
"""Cycles per field of view where the Gaussian has fallen to 1/e."""


def smooth_maps(coil_images: Tensor) -> Tensor:
    """Return maps complex64 (slice, coil, y, x) of root-sum-of-squares 1; zero where nothing is."""
    cycles = [torch.fft.fftfreq(n, 1 / n, device=coil_images.device) for n in coil_images.shape[-2:]]
    window = torch.exp(-(cycles[0][:, None].square() + cycles[1].square()) / WIDTH**2)
    low: Tensor = torch.fft.ifft2(torch.fft.fft2(coil_images) * window)
    magnitude = root_sum_of_squares(low)
    return low / magnitude.clamp_min(torch.finfo(magnitude.dtype).tiny)
