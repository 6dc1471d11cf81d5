"""Products with matrices of coils, in pieces."""

import numpy as np
import pytest

from gadget.scan.coil_products import LARGEST_PIECE, coil_covariance_sum, combine_coils


def complex_normal(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


@pytest.mark.parametrize("n_coils", [1, 16, 200])
def test_the_pieces_make_the_whole_product(n_coils):
    """With 16 coils 300 columns take three pieces; with 200 coils each column is one."""
    rng = np.random.default_rng(1)
    matrix = complex_normal(rng, max(1, n_coils - 1), n_coils)
    samples = complex_normal(rng, 2, n_coils, 300)

    found = combine_coils(matrix.astype(np.complex64), samples.astype(np.complex64))

    assert found.dtype == np.complex64
    np.testing.assert_allclose(found, np.einsum("vc,rck->rvk", matrix, samples), atol=1e-5 * n_coils, rtol=0)
    assert n_coils == 1 or matrix.size * 300 > LARGEST_PIECE


@pytest.mark.parametrize("n_samples", [1, 128, 500])
def test_the_covariance_is_the_sum_over_all_samples(n_samples):
    samples = complex_normal(np.random.default_rng(2), 16, n_samples)
    np.testing.assert_allclose(
        coil_covariance_sum(samples), np.einsum("ak,bk->ab", samples, samples.conj()), rtol=1e-12
    )
