"""Charbonnier total variation: an energy without training, and the light prior on the imaginary part."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TotalVariation:
    r"""Smoothed isotropic total variation.

    .. math:: TV_\epsilon(x) = \sum_r \sqrt{|\nabla x(r)|^2 + \epsilon^2} - \epsilon

    with forward differences that are zero across the border (Neumann). ``epsilon`` is in units of the image,
    which the reconstruction scales to about 1. Total variation is no density that real images follow;
    ``temperature`` is the scale b for which exp(-TV / b) gives the best weight on validation scans.
    """

    temperature: float = 1.0
    epsilon: float = 1e-3

    def value(self, image: Tensor, /) -> Tensor:
        """Energy (slice,) of a float image (slice, 1, y, x)."""
        return self._magnitude(*self._differences(image))

    def value_and_gradient(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        """Energy (slice,) and gradient, shaped as the image."""
        d_y, d_x = self._differences(image)
        root = torch.sqrt(d_y.square() + d_x.square() + self.epsilon**2)
        value = (root - self.epsilon).sum(dim=(1, 2, 3), dtype=torch.float64)
        d_y, d_x = d_y / root, d_x / root
        gradient = -d_y - d_x
        gradient[..., 1:, :] += d_y[..., :-1, :]
        gradient[..., :, 1:] += d_x[..., :, :-1]
        return value, gradient

    def curvature(self, image: Tensor, direction: Tensor, /) -> Tensor:
        r"""<p, M p> with M the Hessian of the quadratic that touches the energy at an image and bounds it.

        :math:`\sqrt{u + \epsilon^2}` is concave in :math:`u = |\nabla x|^2`, so its tangent bounds it
        (Geman and Reynolds, IEEE Trans Pattern Anal 14:367, 1992). float64 (slice,).
        """
        d_y, d_x = self._differences(image)
        p_y, p_x = self._differences(direction)
        root = torch.sqrt(d_y.square() + d_x.square() + self.epsilon**2)
        return ((p_y.square() + p_x.square()) / root).sum(dim=(1, 2, 3), dtype=torch.float64)

    def _magnitude(self, d_y: Tensor, d_x: Tensor) -> Tensor:
        root = torch.sqrt(d_y.square() + d_x.square() + self.epsilon**2)
        return (root - self.epsilon).sum(dim=(1, 2, 3), dtype=torch.float64)

    @staticmethod
    def _differences(image: Tensor) -> tuple[Tensor, Tensor]:
        d_y, d_x = torch.zeros_like(image), torch.zeros_like(image)
        torch.sub(image[..., 1:, :], image[..., :-1, :], out=d_y[..., :-1, :])
        torch.sub(image[..., :, 1:], image[..., :, :-1], out=d_x[..., :, :-1])
        return d_y, d_x
