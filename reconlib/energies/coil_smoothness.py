"""Smoothness of coil maps, with the proximal map in closed form."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.operators.inner_product import real_dot
from reconlib.operators.sine_transform import dirichlet_eigenvalues, dst2


@dataclass(frozen=True, slots=True)
class CoilSmoothness:
    r"""Squared differences of real and imaginary parts of the maps, zero outside the image (Dirichlet).

    .. math:: \mu F(S) = \frac{\mu}{2} \sum_c \|D\, \mathrm{Re}\, s_c\|^2 + \|D\, \mathrm{Im}\, s_c\|^2

    Its proximal map solves :math:`(I + \tau \mu D^T D) s = y`, diagonal under the DST-I in both directions.

    References
    ----------
    Zach, Knoll, Pock, IEEE Trans Med Imaging 2023 (the angles printed there belong to another boundary).
    """

    weight: float
    """mu."""

    def value(self, point: Tensor, /) -> Tensor:
        """Return mu F (slice,) of maps complex (slice, coil, y, x): half their product with its gradient."""
        return real_dot(point, self.gradient(point)) / 2

    def gradient(self, point: Tensor, /) -> Tensor:
        """Return mu D^T D of maps, shaped as they are: the gradient by the convention d/dRe + i d/dIm."""
        planes = torch.view_as_real(point)
        pull = 4 * planes
        for axis in (-3, -2):
            n = planes.shape[axis]
            pull.narrow(axis, 1, n - 1).sub_(planes.narrow(axis, 0, n - 1))
            pull.narrow(axis, 0, n - 1).sub_(planes.narrow(axis, 1, n - 1))
        return torch.view_as_complex(pull.mul_(self.weight))

    def prox(self, point: Tensor, step: Tensor, /) -> Tensor:
        """Minimise ``step * value(x) + |x - point|^2 / 2`` for each slice; ``step`` has shape (slice,)."""
        n_y, n_x = point.shape[-2:]
        parts = torch.stack([point.real, point.imag])
        xi = dirichlet_eigenvalues(n_y, point.device, parts.dtype)[:, None]
        xi = xi + dirichlet_eigenvalues(n_x, point.device, parts.dtype)
        damping = 1 / (1 + self.weight * step.to(parts.dtype)[:, None, None, None] * xi)
        smooth = dst2(dst2(parts) * damping)
        return torch.complex(smooth[0], smooth[1])

    def periodic_spectrum(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """Eigenvalues (y, x) of mu D^T D, in FFT order, if the image were continued periodically."""
        waves = [4 * torch.sin(torch.pi * torch.arange(n, device=device) / n).square() for n in shape]
        return self.weight * (waves[0][:, None] + waves[1])
