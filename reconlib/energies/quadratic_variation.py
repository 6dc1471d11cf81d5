r"""The quadratic that touches total variation at a given image.

.. math::
    Q(x) = \frac12 \sum_r \frac{|\nabla x(r)|^2}{\sqrt{|\nabla x_0(r)|^2 + \epsilon^2}}

Its gradient at :math:`x_0` is that of :math:`TV_\epsilon`. Where total variation has a minimum in a sum with
a quadratic data term, the sum with Q has the same one, and exp(-sum) is a Gaussian about it (lagged
diffusivity: Vogel and Oman, SIAM J Sci Comput 17:227, 1996).
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class QuadraticVariation:
    """Q of the module's text, for images float32 (slice, 1, y, x)."""

    weight: Tensor
    r""":math:`1 / \sqrt{|\nabla x_0|^2 + \epsilon^2}`, float32 (slice, 1, y, x)."""

    @staticmethod
    def around(image: Tensor, epsilon: Tensor) -> "QuadraticVariation":
        """Return the quadratic that touches at ``image`` (slice, 1, y, x), with ``epsilon`` (slice,)."""
        d_y, d_x = _differences(image)
        floor = epsilon.float()[:, None, None, None].square()
        return QuadraticVariation(torch.rsqrt(d_y.square() + d_x.square() + floor))

    def value(self, image: Tensor) -> Tensor:
        """Q (slice,) in float64."""
        d_y, d_x = _differences(image)
        total = self.weight * (d_y.square() + d_x.square())
        return total.sum(dim=(1, 2, 3), dtype=torch.float64) / 2

    def value_and_gradient(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Q (slice,) in float64, and its gradient."""
        d_y, d_x = _differences(image)
        pull_y, pull_x = self.weight * d_y, self.weight * d_x
        value = (pull_y * d_y + pull_x * d_x).sum(dim=(1, 2, 3), dtype=torch.float64) / 2
        gradient = -pull_y - pull_x
        gradient[..., 1:, :] += pull_y[..., :-1, :]
        gradient[..., :, 1:] += pull_x[..., :, :-1]
        return value, gradient

    def select(self, rows: Tensor) -> "QuadraticVariation":
        """Return the quadratic of some of the slices."""
        return QuadraticVariation(self.weight[rows])


def _differences(image: Tensor) -> tuple[Tensor, Tensor]:
    """Forward differences along y and x, zero across the border."""
    d_y, d_x = torch.zeros_like(image), torch.zeros_like(image)
    d_y[..., :-1, :] = image[..., 1:, :] - image[..., :-1, :]
    d_x[..., :, :-1] = image[..., :, 1:] - image[..., :, :-1]
    return d_y, d_x
