"""The norm of a linear operator, from which the solver's first step follows."""

from collections.abc import Callable

import torch
from torch import Tensor

from reconlib.operators.inner_product import half_square, real_dot


def largest_eigenvalue(
    normal: Callable[[Tensor], Tensor],
    shape: tuple[int, ...],
    *,
    generator: torch.Generator,
    dtype: torch.dtype = torch.complex64,
    iterations: int = 10,
) -> Tensor:
    """Estimate the largest eigenvalue of A^H A, which is the square of A's norm, for each slice.

    Power iteration from a random image of ``shape`` (slice, ...) that ``normal`` maps to its like, on the
    generator's device. The Rayleigh quotient, float64 (slice,), comes from below; for radial trajectories 5
    iterations bring it within 1 % and 10 within 0.1 %, a flatter spectrum takes more. It is zero for a slice
    whose operator is zero.
    """
    image = torch.randn(shape, generator=generator, device=generator.device, dtype=dtype)
    for _ in range(iterations):
        image = _normalised(normal(_normalised(image)))
    return real_dot(image, normal(image)).clamp_min(0)


def _normalised(image: Tensor) -> Tensor:
    """Scale every slice to a norm of 1; zero stays zero."""
    norm = (2 * half_square(image)).sqrt().clamp_min(torch.finfo(image.dtype).tiny)
    scale = (1 / norm).to(image.real.dtype)
    return image * scale.reshape(-1, *(1,) * (image.ndim - 1))
