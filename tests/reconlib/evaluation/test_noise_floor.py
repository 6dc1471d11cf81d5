"""The root sum of squares less its noise floor, against draws and against the chi-squared distribution."""

import math

import numpy as np
import pytest
import torch

from reconlib.evaluation.noise_floor import root_sum_of_squares_without_floor

SIGMA = 0.3
PIXELS = (300, 401)


def squares_of_draws(n_coils: int, truth: float) -> np.ndarray:
    """Squares of the corrected images of coil images with that root sum of squares and noise: (2, y, x)."""
    rng = np.random.default_rng(n_coils)
    coils = rng.normal(size=(1, n_coils, 1, 1)) + 1j * rng.normal(size=(1, n_coils, 1, 1))
    coils *= truth / np.sqrt((np.abs(coils) ** 2).sum())
    noise = rng.normal(size=(2, 2, n_coils, *PIXELS))
    images = coils + SIGMA * (noise[0] + 1j * noise[1])
    corrected = root_sum_of_squares_without_floor(torch.from_numpy(images.astype(np.complex64)), SIGMA)
    assert corrected.shape == (2, 1, *PIXELS)
    assert corrected.dtype == torch.float32
    return corrected[:, 0].double().numpy() ** 2


@pytest.mark.parametrize("n_coils", [1, 4, 11])
def test_the_square_of_a_signal_is_right_on_average(n_coils):
    truth = 9 * SIGMA  # so far above the floor that nothing is clamped
    squares = squares_of_draws(n_coils, truth)
    assert squares.min() > 0
    # sum |x|^2 / sigma^2 is noncentral chi-squared, of variance 2 (2 N + 2 truth^2 / sigma^2)
    std = SIGMA**2 * math.sqrt(4 * n_coils + 4 * truth**2 / SIGMA**2)
    assert abs(squares.mean() - truth**2) < 5 * std / math.sqrt(squares.size)
    # the floor that was taken away is many times this tolerance
    assert 2 * n_coils * SIGMA**2 > 30 * std / math.sqrt(squares.size)


@pytest.mark.parametrize("n_coils", [1, 4, 11])
def test_noise_alone_leaves_what_a_chi_squared_variable_has_above_its_mean(n_coils):
    n, squares = n_coils, squares_of_draws(n_coils, 0.0) / SIGMA**2
    # 2 N degrees of freedom: P(X < 2 N), and E max(X - 2 N, 0) by parts
    below = 1 - math.exp(-n) * sum(n**j / math.factorial(j) for j in range(n))
    above = 2 * n * n**n * math.exp(-n) / math.factorial(n)
    assert (squares == 0).mean() == pytest.approx(below, abs=5 * 0.5 / math.sqrt(squares.size))
    assert squares.mean() == pytest.approx(above, abs=5 * squares.std() / math.sqrt(squares.size))


def test_slices_are_corrected_one_by_one_and_without_noise_nothing_is_taken_away():
    images = torch.tensor([[3.0, 4.0j], [0.6, 0.8]], dtype=torch.complex64)[..., None, None]
    assert root_sum_of_squares_without_floor(images, 0.0).flatten().tolist() == pytest.approx([5.0, 1.0])
    # 25 - 2 * 2 * 4 = 9, and 1 - 16 is clamped
    assert root_sum_of_squares_without_floor(images, 2.0).flatten().tolist() == pytest.approx([3.0, 0.0])
