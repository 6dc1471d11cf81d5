"""Charbonnier total variation: an energy without training, and the light prior on the imaginary part."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.operators.inner_product import real_dot


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
        root = d_y.square().addcmul_(d_x, d_x).add_(self.epsilon**2).sqrt_()
        gradient = self._adjoint(d_y.div_(root), d_x.div_(root))
        return root.sub_(self.epsilon).sum(dim=(1, 2, 3), dtype=torch.float64), gradient

    def tangent(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        r"""Return the gradient, and the weights of :meth:`curvature` at an image, shaped as it is.

        The weights are :math:`1 / \sqrt{|\nabla x|^2 + \epsilon^2}`.
        """
        d_y, d_x = self._differences(image)
        weights = d_y.square().addcmul_(d_x, d_x).add_(self.epsilon**2).rsqrt_()
        return self._adjoint(d_y.mul_(weights), d_x.mul_(weights)), weights

    @classmethod
    def curvature(cls, weights: Tensor, direction: Tensor, /) -> Tensor:
        r"""<p, M p> with M the Hessian of the quadratic that touches the energy at an image and bounds it.

        :math:`\sqrt{u + \epsilon^2}` is concave in :math:`u = |\nabla x|^2`, so its tangent bounds it
        (Geman and Reynolds, IEEE Trans Pattern Anal 14:367, 1992). float64 (slice,).
        """
        p_y, p_x = cls._differences(direction)
        return real_dot(weights, p_y.square_().addcmul_(p_x, p_x))

    def _magnitude(self, d_y: Tensor, d_x: Tensor) -> Tensor:
        root = d_y.square().addcmul_(d_x, d_x).add_(self.epsilon**2).sqrt_()
        return root.sub_(self.epsilon).sum(dim=(1, 2, 3), dtype=torch.float64)

    @staticmethod
    def _differences(image: Tensor) -> tuple[Tensor, Tensor]:
        d_y, d_x = torch.zeros_like(image), torch.zeros_like(image)
        torch.sub(image[..., 1:, :], image[..., :-1, :], out=d_y[..., :-1, :])
        torch.sub(image[..., :, 1:], image[..., :, :-1], out=d_x[..., :, :-1])
        return d_y, d_x

    @staticmethod
    def _adjoint(p_y: Tensor, p_x: Tensor) -> Tensor:
        """Return what differences (p_y, p_x), zero across the border, are of images: their adjoint."""
        image = (p_y + p_x).neg_()
        image[..., 1:, :] += p_y[..., :-1, :]
        image[..., :, 1:] += p_x[..., :, :-1]
        return image
