r"""The largest curvature of E near a point: the Lipschitz constant that bounds the samplers' steps.

Power iteration on differences of gradients, :math:`d \leftarrow \nabla E(x + d) - \nabla E(x)`, with d scaled
to a largest entry of a fraction of the noise: the length of a sampler's step. A Hessian at one point would
not do, since total variation is much stiffer where the image is flat than a step away from it.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from reconlib.operators.inner_product import half_square
from reconlib.posterior.target import Target

ITERATIONS = 12
SAFETY = 1.2
"""Power iteration comes from below."""
_LENGTH = 0.5
"""Largest entry of d, in units of sigma."""


def largest_curvature(
    target: Target, image: Tensor, sigma: Tensor, generator: torch.Generator
) -> Iterator[Tensor]:
    """Yield L (row,), float64, after each of ``ITERATIONS`` iterations at images (row, 1, y, x).

    ``sigma`` (row,) is the noise; L is never below 1 / sigma^2, the data term's own.
    """
    floor = 1 / sigma.double().square()
    lipschitz = floor
    gradient = target.evaluate(image).gradient
    direction = target.noise(generator)
    for _ in range(ITERATIONS):
        largest = direction.abs().amax(dim=(1, 2, 3), keepdim=True)
        step = direction * (_LENGTH * sigma.float()[:, None, None, None] / largest)
        direction = target.evaluate(image + step).gradient - gradient
        ratio = torch.sqrt(half_square(direction) / half_square(step))
        lipschitz = torch.maximum(SAFETY * ratio.nan_to_num(0.0, posinf=0.0), floor)
        yield lipschitz
