"""Inner products and squared norms of each slice, accumulated in float64."""

import torch
from torch import Tensor


def half_square(values: Tensor) -> Tensor:
    """Half the squared norm of each slice, float64 (slice,)."""
    flat = torch.view_as_real(values) if values.is_complex() else values
    return flat.square().sum(dim=tuple(range(2, flat.ndim)), dtype=torch.float64).sum(dim=1) / 2


def real_dot(a: Tensor, b: Tensor) -> Tensor:
    """Real part of the inner product of each slice, float64 (slice,)."""
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    return (a * b).sum(dim=tuple(range(2, a.ndim)), dtype=torch.float64).sum(dim=1)
