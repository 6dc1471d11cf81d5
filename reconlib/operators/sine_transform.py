r"""The discrete sine transform of type I, which diagonalises the Dirichlet Laplacian.

For a line of n points padded with one zero on both sides, :math:`D^T D = \mathrm{tridiag}(-1, 2, -1)` has the
eigenvectors :math:`\sqrt{2/(n+1)} \sin(\pi j k / (n + 1))` and eigenvalues :math:`2 - 2 \cos(\pi j/(n+1))`,
j = 1..n. The orthonormal transform is symmetric and its own inverse. It is applied as a matrix product: the
equivalent FFT has length 2 (n + 1), an unlucky size for the usual matrices (2 * 257 for n = 256).
"""

import math
from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=32)
def sine_matrix(n: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Orthonormal DST-I matrix (n, n)."""
    index = torch.arange(1, n + 1, dtype=torch.int64)
    product = torch.outer(index, index) % (2 * (n + 1))
    matrix = math.sqrt(2 / (n + 1)) * torch.sin(math.pi * product.double() / (n + 1))
    return matrix.to(device=device, dtype=dtype)


def dirichlet_eigenvalues(n: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Eigenvalues (n,) of tridiag(-1, 2, -1), in the order of :func:`sine_matrix`."""
    j = torch.arange(1, n + 1, dtype=torch.float64)
    return (4 * torch.sin(math.pi * j / (2 * (n + 1))).square()).to(device=device, dtype=dtype)


def dst2(parts: Tensor) -> Tensor:
    """Orthonormal two-dimensional DST-I of the last two axes of a real tensor."""
    n_y, n_x = parts.shape[-2:]
    rows = sine_matrix(n_y, parts.device, parts.dtype)
    columns = sine_matrix(n_x, parts.device, parts.dtype)
    return rows @ (parts @ columns)
