"""Mean and standard deviation of complex draws."""

import numpy as np
import pytest
import torch

from reconlib.posterior.moments import Moments


def test_batches_are_merged_into_numpys_moments(generator):
    """Far from zero, where sums of squares in float32 would lose everything."""
    parts = torch.randn(2, 3, 7, 5, 4, generator=generator)  # slice, batch, chain, y, x in turn below
    offset = 1000 * torch.exp(1j * torch.linspace(0, 6, 20)).reshape(5, 4)
    draws = (torch.complex(parts[0], parts[1]) + offset).to(torch.complex64).reshape(3, 7, 1, 5, 4)
    moments = Moments()
    for batch in range(3):
        moments.add(draws[batch].transpose(0, 1))  # one slice, seven chains
    rows = draws.reshape(21, 5, 4).numpy().astype(np.complex128)
    mean = rows.mean(axis=0)
    along = (rows * np.conj(mean) / np.abs(mean)).real
    np.testing.assert_allclose(moments.mean()[0].numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(moments.std()[0].numpy(), along.std(axis=0, ddof=1), rtol=1e-9)
    assert moments.n_draws == 21
    assert moments.std().dtype == torch.float64


def test_where_the_mean_is_zero_both_parts_count_the_same():
    draws = torch.tensor([3 + 1j, -3 - 1j]).reshape(1, 2, 1, 1)
    moments = Moments()
    moments.add(draws)
    # variances 18 and 2: half their sum is 10
    assert float(moments.std()) == pytest.approx(np.sqrt(10))


def test_slices_are_kept_apart(generator):
    draws = torch.complex(*torch.randn(2, 2, 9, 3, 4, generator=generator))
    both, second = Moments(), Moments()
    both.add(draws)
    second.add(draws[1:])
    torch.testing.assert_close(both.std()[1:], second.std())


def test_too_few_draws_are_refused():
    moments = Moments()
    with pytest.raises(ValueError, match="no draws to take moments of"):
        moments.mean()
    moments.add(torch.ones(1, 1, 2, 2, dtype=torch.complex64))
    with pytest.raises(ValueError, match="needs two draws or more, not 1"):
        moments.std()
