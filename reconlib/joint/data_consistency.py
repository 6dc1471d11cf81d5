r"""The data term of the joint problem, in closed form.

.. math::
    H(x, S) = \tfrac12 \sum_c \| M F (e_c x) - z_c \|^2, \qquad
    e_c = s_c / n, \quad n = \sqrt{\textstyle\sum_c |s_c|^2 + \delta^2}

The division makes the image the root-sum-of-squares image and H independent of the scale of the maps.
Gradients follow the convention d/dRe + i d/dIm. With :math:`r_c = M F (e_c x) - z_c` and :math:`g_c = F^H M
r_c`:

.. math::
    \nabla_x H = \sum_c \bar e_c g_c, \qquad
    \nabla_{s_c} H = \frac1n \Big( \bar x g_c - e_c\, \mathrm{Re} \sum_j \bar e_j \bar x g_j \Big)

:math:`\delta` only keeps the division defined where all coils vanish.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.operators.fourier import SampledFourier
from reconlib.operators.sense import root_sum_of_squares

COIL_FLOOR = 1e-4
"""delta: far below the maps' magnitude, which is held at about 1."""


def normalise_coils(coils: Tensor) -> tuple[Tensor, Tensor]:
    """Return e = s / n (slice, coil, y, x) and n (slice, 1, y, x) of the module's text."""
    magnitude = torch.sqrt(root_sum_of_squares(coils).square() + COIL_FLOOR**2)
    return coils / magnitude, magnitude


@dataclass(frozen=True, slots=True, eq=False)
class DataConsistency:
    """Residuals and gradients of H for a batch of slices; see the module's text."""

    fourier: SampledFourier
    samples: Tensor
    """complex64 (slice, coil, ky, kx), in the layout of ``fourier``."""

    def residual(self, image: Tensor, directions: Tensor) -> Tensor:
        """Return r of the image (slice, 1, y, x) for normalised maps e."""
        return self.fourier.forward(directions * image).sub_(self.samples)

    def image_gradient(self, directions: Tensor, backprojection: Tensor) -> Tensor:
        """Gradient in the image from g = F^H M r."""
        return torch.einsum("scyx,scyx->syx", directions.conj(), backprojection)[:, None]

    def coil_gradient(
        self, image: Tensor, directions: Tensor, magnitude: Tensor, backprojection: Tensor
    ) -> Tensor:
        """Gradient in the maps from g = F^H M r."""
        pull = image.conj() * backprojection
        radial = torch.einsum("scyx,scyx->syx", directions.conj(), pull).real[:, None]
        return pull.sub_(directions * radial).div_(magnitude)


def half_square(values: Tensor) -> Tensor:
    """Half the squared norm of each slice, accumulated in float64; returns (slice,)."""
    flat = torch.view_as_real(values) if values.is_complex() else values
    return flat.square().sum(dim=tuple(range(2, flat.ndim)), dtype=torch.float64).sum(dim=1) / 2


def real_dot(a: Tensor, b: Tensor) -> Tensor:
    """Real part of the inner product of each slice, accumulated in float64; returns (slice,)."""
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    return (a * b).sum(dim=tuple(range(2, a.ndim)), dtype=torch.float64).sum(dim=1)
