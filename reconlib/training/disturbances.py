r"""Larger disturbances than the noise: what keeps an energy honest away from its training images.

White noise of a level :math:`\sigma` never takes an image far: along any one pattern that spreads over N
pixels it moves the image by about :math:`\sigma`, that is :math:`\sigma / \sqrt N` per pixel. What the energy
does further out, score matching at that level cannot see, and a reconstruction may find patterns there (such
as stripes in a region) that no image ever had and that the energy prefers. So in a share of the images a
disturbance s is added, besides the noise, which the energy has to push back as noise of its size would be:

.. math:: y = x + \sigma n + s, \qquad \sigma \nabla R(y; \sigma) / T \to n + \sigma s / A^2

with A the standard deviation of s where it is. s is a superposition of two plane waves or another training
image, faded in and out by a smooth window, or white noise; for white noise, which cannot be told from n, the
target is :math:`\sigma (\sigma n + s) / (\sigma^2 + A^2)`, the score of both together.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from reconlib.training.patches import smooth_fields

LARGEST = 0.3
SMALLEST = 0.008
"""Range of A, drawn log-uniformly and at least the noise level."""
WAVES, OTHER_IMAGE = 0.46, 0.77
"""Cumulative shares of the kinds among the disturbed images; the rest is white noise."""


def disturbed(
    clean: Tensor, noise: Tensor, noise_level: Tensor, share: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    r"""Return ``clean`` and ``noise`` of the score-matching loss, such that it sees y and has its target.

    Parameters
    ----------
    clean, noise
        float32 (image, 1, y, x): images, and white noise of standard deviation 1.
    noise_level
        float32 (image,): sigma.
    share
        Of the images that are disturbed, 0 to 1.
    generator
        On the device of the images.

    Returns
    -------
    The pair (c, t) with :math:`c + \sigma t = y` and t the target; see the module's text.
    """
    n, device = len(clean), clean.device

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand((n, 1, 1, 1), generator=generator, device=device)

    sigma = noise_level[:, None, None, None]
    size = torch.maximum(torch.exp(uniform(math.log(SMALLEST), math.log(LARGEST))), sigma)
    chosen, kind = uniform(0.0, 1.0) < share, uniform(0.0, 1.0)
    waves = _waves(clean, uniform)
    other = torch.roll(clean, 1, dims=0)
    pattern = torch.where(kind < WAVES, _standard(waves), _standard(other))
    lengths = uniform(4.0, 20.0).flatten()
    matrix = (int(clean.shape[-2]), int(clean.shape[-1]))
    window = torch.sigmoid(3 * (smooth_fields(matrix, lengths, generator) + uniform(-0.5, 1.5)))
    local = size * window * pattern
    white = size * torch.randn(clean.shape, generator=generator, device=device)
    is_white = kind >= OTHER_IMAGE
    moved = sigma * noise + torch.where(is_white, white, local)
    target = torch.where(
        is_white, sigma * moved / (sigma.square() + size.square()), noise + sigma * local / size.square()
    )
    moved = torch.where(chosen, moved, sigma * noise)
    target = torch.where(chosen, target, noise)
    return clean + moved - sigma * target, target


def _waves(like: Tensor, uniform: Callable[[float, float], Tensor]) -> Tensor:
    """Two plane waves of any direction, 0.04 to 0.5 cycles per pixel."""
    y, x = (torch.arange(size, device=like.device, dtype=like.dtype) for size in like.shape[-2:])
    total = torch.zeros_like(like)
    for _ in range(2):
        frequency, direction = 2 * math.pi * uniform(0.04, 0.5), uniform(0.0, 2 * math.pi)
        phase, amplitude = uniform(0.0, 2 * math.pi), uniform(0.0, 1.0)
        along = torch.cos(direction) * y[:, None] + torch.sin(direction) * x[None, :]
        total = total + amplitude * torch.cos(frequency * along + phase)
    return total


def _standard(pattern: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1, or 0 where the pattern is flat."""
    pattern = pattern - pattern.mean(dim=(2, 3), keepdim=True)
    std: Tensor = pattern.std(dim=(2, 3), keepdim=True, correction=0)
    return torch.where(std > 1e-3, pattern / std.clamp_min(1e-3), torch.zeros_like(pattern))
