"""The sine transform against scipy."""

import numpy as np
import pytest
import scipy.fft
import torch

from reconlib.operators.sine_transform import dirichlet_eigenvalues, dst2, sine_matrix

GRIDS = [(6, 8), (5, 8), (7, 9), (1, 4), (33, 20)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_dst_is_scipys_orthonormal_type_one(grid, generator):
    parts = torch.randn(2, 3, *grid, dtype=torch.float64, generator=generator)
    expected = scipy.fft.dstn(parts.numpy(), type=1, norm="ortho", axes=(-2, -1))
    np.testing.assert_allclose(dst2(parts).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(dst2(parts.float()).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_dst_is_its_own_inverse(grid, generator):
    parts = torch.randn(2, *grid, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(dst2(dst2(parts)), parts, atol=1e-12, rtol=0)


@pytest.mark.parametrize("n", [1, 5, 8])
def test_the_sine_matrix_diagonalises_the_dirichlet_laplacian(n):
    laplacian = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    matrix = sine_matrix(n, torch.device("cpu"), torch.float64).numpy()
    values = dirichlet_eigenvalues(n, torch.device("cpu"), torch.float64).numpy()
    np.testing.assert_allclose(matrix @ laplacian @ matrix, np.diag(values), atol=1e-12)
