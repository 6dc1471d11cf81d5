r"""Show an image of any matrix to an energy that knows one matrix only, without a seam.

A network for ``side`` x ``side`` pixels sees :math:`y = A_y x A_x^T`. Each A works along one axis of n pixels
and is fixed and linear, so value and gradient :math:`A_y^T g A_x` belong together exactly.

* n = side: A is the identity.
* n > side: the middle is cut out. A plain cut would end the network's gradient at its edge, and where the
  prior ends the noise begins: a seam. So next to a cut the network sees an image that gets smoother towards
  the edge,

  .. math:: y(i) = w(i)\, x(i) + (1 - w(i))\, (G x)(i)

  with G a Gaussian of 2 pixels (of the whole image, across the cut) and w a squared sine that rises from 0 to
  1 within 24 pixels. Of the gradient's fine detail only the part w arrives, it fades to nothing at the edge;
  the coarse part runs out over the width of G.
* n < side: zeros are added on both sides. Next to the image they are replaced by its mirror image, faded out
  within 24 pixels by a squared cosine, so that an object that reaches the border of the image has no edge
  there that the network would have to explain.

What the network does not see, total variation takes care of:

.. math:: \sum_r (1 - w_y(r_y) w_x(r_x)) \left(\sqrt{|\nabla x(r)|^2 + \epsilon^2} - \epsilon\right)

with w = 0 outside the cut and w = 1 along axes that are not cut. It is zero where nothing is cut.
"""

import math
from functools import cache

import torch
from torch import Tensor

TAPER = 24
"""Pixels over which the network's part rises from 0 to 1 next to a cut, and a mirror image fades out."""
SMOOTHING = 2.0
"""Standard deviation of G in pixels."""
EPSILON = 1e-3
"""Of the total variation, in units of the image."""


def fit_to_side(image: Tensor, side: int, taper: int = TAPER) -> Tensor:
    """Return images (slice, 1, y, x) as ``side`` x ``side`` pixels; index ``n // 2`` stays in the middle."""
    n_y, n_x = image.shape[-2:]
    if n_y != side:
        image = _fitting(n_y, side, taper, image.dtype, image.device) @ image
    if n_x != side:
        image = image @ _fitting(n_x, side, taper, image.dtype, image.device).mT
    return image


def outside_total_variation(image: Tensor, side: int, taper: int = TAPER) -> Tensor:
    """Total variation (slice,) of what :func:`fit_to_side` cuts off, in the dtype of the image."""
    n_y, n_x = image.shape[-2:]
    if n_y <= side and n_x <= side:
        return image.new_zeros(image.shape[0])
    w_y, w_x = (_share_on(n, side, taper, image.dtype, image.device) for n in (n_y, n_x))
    d_y = torch.diff(image, dim=-2, append=image[..., -1:, :])
    d_x = torch.diff(image, dim=-1, append=image[..., :, -1:])
    root = torch.sqrt(d_y.square() + d_x.square() + EPSILON**2)
    return ((1 - w_y[:, None] * w_x) * (root - EPSILON)).sum(dim=(1, 2, 3))


@cache  # for good: CUDA graphs hold its address
def _fitting(n: int, side: int, taper: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return A (side, n)."""
    indices = torch.arange(side) - side // 2 + n // 2
    if n > side:
        pixels = torch.arange(n, dtype=torch.float64)
        smooth = torch.exp(-((indices[:, None] - pixels) ** 2) / (2 * SMOOTHING**2))
        smooth = smooth / smooth.sum(dim=1, keepdim=True)
        share = _share(n, side, taper)[indices][:, None]
        plain = torch.nn.functional.one_hot(indices, n).double()
        matrix = share * plain + (1 - share) * smooth
    else:
        taper = min(taper, n)
        outside = torch.maximum(-indices, indices - (n - 1)).clamp_min(0)  # 1 next to the image
        mirrored = torch.where(
            indices < 0, -1 - indices, torch.where(indices < n, indices, 2 * n - 1 - indices)
        )
        fade = torch.cos(math.pi / 2 * outside.double() / (taper + 1)).square() * (outside <= taper)
        matrix = torch.nn.functional.one_hot(mirrored.clamp(0, n - 1), n).double() * fade[:, None]
    return matrix.to(device=device, dtype=dtype)


@cache  # as above
def _share_on(n: int, side: int, taper: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return w (n,) in that dtype on that device."""
    return _share(n, side, taper).to(device=device, dtype=dtype)


def _share(n: int, side: int, taper: int) -> Tensor:
    """Return w (n,), float64: the network's share of each pixel along an axis."""
    share = torch.ones(n, dtype=torch.float64)
    if n <= side:
        return share
    start = n // 2 - side // 2
    stop = start + side
    rise = torch.sin(math.pi / 2 * (torch.arange(min(taper, side), dtype=torch.float64) + 0.5) / taper)
    if start > 0:
        share[:start] = 0
        share[start : start + len(rise)] *= rise.square()
    if stop < n:
        share[stop:] = 0
        share[stop - len(rise) : stop] *= rise.square().flip(0)
    return share
