"""Inner products and squared norms of each slice.

Lines of an image are summed in float32 (torch adds up pairs of partial sums, whose rounding stays near 1e-7),
their sums in float64: several times as fast on a CPU as float64 throughout.
"""

import torch
from torch import Tensor


def half_square(values: Tensor) -> Tensor:
    """Half the squared norm of each slice, float64 (slice,)."""
    return _total((torch.view_as_real(values).flatten(-2) if values.is_complex() else values).square()) / 2


def real_dot(a: Tensor, b: Tensor) -> Tensor:
    """Real part of the inner product of each slice, float64 (slice,)."""
    if a.is_complex():
        a, b = torch.view_as_real(a).flatten(-2), torch.view_as_real(b).flatten(-2)
    return _total(a * b)


def _total(products: Tensor) -> Tensor:
    lines = products.sum(dim=-1)
    return lines.sum(dim=tuple(range(1, lines.ndim)), dtype=torch.float64)
