"""Coil smoothness against sparse matrices that are written out."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.protocol import ProximableEnergy

GRIDS = [(6, 8), (5, 8), (7, 9)]


def differences(n: int) -> scipy.sparse.csr_array:
    """The n + 1 differences of a line padded with one zero on both sides."""
    rows = []
    for i in range(n + 1):
        row = np.zeros(n)
        if i < n:
            row[i] = 1.0
        if i > 0:
            row[i - 1] = -1.0
        rows.append(row)
    return scipy.sparse.csr_array(np.stack(rows))


def gradient_matrix(grid: tuple[int, int]) -> scipy.sparse.csr_array:
    """D for an image flattened row by row."""
    n_y, n_x = grid
    along_y = scipy.sparse.kron(differences(n_y), scipy.sparse.eye_array(n_x))
    along_x = scipy.sparse.kron(scipy.sparse.eye_array(n_y), differences(n_x))
    return scipy.sparse.csr_array(scipy.sparse.vstack([along_y, along_x]))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_value_is_that_of_the_written_out_differences(grid, generator):
    maps = torch.randn(2, 3, *grid, dtype=torch.complex128, generator=generator)
    d = gradient_matrix(grid)
    energy = CoilSmoothness(0.7)
    assert isinstance(energy, ProximableEnergy)
    expected = [
        0.35 * sum(np.sum(np.abs(d @ one.numpy().ravel()) ** 2) for one in of_slice) for of_slice in maps
    ]
    np.testing.assert_allclose(energy.value(maps).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(energy.value(maps.to(torch.complex64)).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("grid", [*GRIDS, (1, 4)], ids=str)
def test_the_gradient_is_that_of_the_written_out_differences(grid, generator):
    maps = torch.randn(2, 3, *grid, dtype=torch.complex128, generator=generator)
    d = gradient_matrix(grid)
    found = CoilSmoothness(0.7).gradient(maps)
    for row, coil in np.ndindex(2, 3):
        expected = 0.7 * (d.T @ (d @ maps[row, coil].numpy().ravel()))
        np.testing.assert_allclose(found[row, coil].numpy().ravel(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_prox_solves_the_sparse_system_of_each_slice_with_its_own_step(grid, generator):
    point = torch.randn(2, 3, *grid, dtype=torch.complex128, generator=generator)
    steps = torch.tensor([0.4, 2.5], dtype=torch.float64)
    d = gradient_matrix(grid)
    found = CoilSmoothness(0.7).prox(point, steps).numpy()
    for row, step in enumerate(steps.tolist()):
        system = scipy.sparse.csc_array(scipy.sparse.eye_array(d.shape[1]) + step * 0.7 * (d.T @ d))
        solve = scipy.sparse.linalg.factorized(system)
        for coil in range(3):
            y = point[row, coil].numpy().ravel()
            expected = (solve(y.real.copy()) + 1j * solve(y.imag.copy())).reshape(grid)
            np.testing.assert_allclose(found[row, coil], expected, atol=1e-10)


def test_the_prox_keeps_the_precision_of_its_argument(generator):
    point = torch.randn(1, 2, 5, 8, dtype=torch.complex64, generator=generator)
    steps = torch.ones(1, dtype=torch.float64)
    smooth = CoilSmoothness(1.0).prox(point, steps)
    assert smooth.dtype == torch.complex64
    exact = CoilSmoothness(1.0).prox(point.to(torch.complex128), steps)
    torch.testing.assert_close(smooth.to(torch.complex128), exact, atol=1e-6, rtol=0)
