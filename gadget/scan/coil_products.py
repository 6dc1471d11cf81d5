"""Products with small matrices of coils, in pieces so small that BLAS keeps to one thread.

More threads would wait for each other, spinning, wherever processors are shared: a product of 0.2 ms then
took 12 ms on average. Assembling is one thread of the program.
"""

import numpy as np
from numpy.typing import NDArray

LARGEST_PIECE = 2**15
"""Multiplications per piece; OpenBLAS starts a second thread at 2**16."""


def combine_coils(matrix: NDArray[np.complex64], samples: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Return ``matrix @ samples`` of samples (..., coil, column)."""
    shape = (*samples.shape[:-2], matrix.shape[0], samples.shape[-1])
    result = np.empty(shape, np.complex64)
    step = max(1, LARGEST_PIECE // matrix.size)
    for first in range(0, shape[-1], step):
        piece = slice(first, first + step)
        np.matmul(matrix, samples[..., piece], out=result[..., piece])
    return result


def coil_covariance_sum(samples: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the sum of n n^H over the samples (coil, sample): complex128 (coil, coil)."""
    n_coils, n_samples = samples.shape
    total = np.zeros((n_coils, n_coils), np.complex128)
    step = max(1, LARGEST_PIECE // n_coils**2)
    for first in range(0, n_samples, step):
        piece = samples[:, first : first + step]
        total += piece @ piece.conj().T
    return total
