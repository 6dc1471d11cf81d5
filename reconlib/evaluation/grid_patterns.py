"""Two-dimensional patterns on the Cartesian grid, and the names of all patterns to compare methods on.

The patterns are those of the evaluation of Zach, Knoll and Pock: lines (:mod:`.sampling_patterns`), and
points of the grid along spokes, along a spiral, drawn evenly, and drawn from a Gaussian. A mask is bool
(1, 1, ky, kx). Coordinates are relative to the matrix, so on a matrix that is not square spokes and spiral
run in ellipses.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reconlib.evaluation.sampling_patterns import random_cartesian_mask

GAUSSIAN_WIDTH = 0.25
"""Standard deviation of the Gaussian density, as a share of half the matrix."""


def pseudo_radial_mask(matrix: tuple[int, int], *, n_spokes: int = 45) -> Tensor:
    """Return the grid points nearest to ``n_spokes`` full spokes at equal angles."""
    if n_spokes < 1:
        raise ValueError(f"n_spokes is {n_spokes}; a radial pattern needs at least 1 spoke.")
    _check_matrix(matrix)
    radius = np.linspace(-1.0, 1.0, 4 * max(matrix) + 1)
    angle = np.pi * np.arange(n_spokes)[:, None] / n_spokes
    return _points(matrix, radius * np.sin(angle), radius * np.cos(angle))


def pseudo_spiral_mask(matrix: tuple[int, int], *, acceleration: float | int = 5.0) -> Tensor:
    """Return the grid points nearest to an Archimedean spiral that reaches the edge of the matrix.

    Its number of turns, in steps of 1/4, is the one whose acceleration comes closest to what is asked for.
    """
    _check_acceleration(acceleration)
    _check_matrix(matrix)
    turns = np.arange(1.0, max(matrix) / 2, 0.25)
    wanted = 1 / acceleration
    low, high = 0, len(turns) - 1
    while low < high:  # more turns, more points
        middle = (low + high) // 2
        low, high = (low, middle) if _share(_spiral(matrix, turns[middle])) >= wanted else (middle + 1, high)
    candidates = [_spiral(matrix, float(turns[i])) for i in {max(low - 1, 0), low}]
    return min(candidates, key=lambda mask: abs(_share(mask) - wanted))


def random_points_mask(matrix: tuple[int, int], *, acceleration: float | int = 3.0, seed: int = 42) -> Tensor:
    """Return 1 of ``acceleration`` points, drawn evenly without replacement; the centre is always there."""
    return _drawn(matrix, np.ones(matrix), acceleration, seed)


def gaussian_mask(matrix: tuple[int, int], *, acceleration: float | int = 8.0, seed: int = 42) -> Tensor:
    """Return points drawn without replacement, with a Gaussian density about the centre of k-space."""
    _check_matrix(matrix)
    y, x = (2 * (np.arange(n) - n // 2) / n / GAUSSIAN_WIDTH for n in matrix)
    return _drawn(matrix, np.exp(-(y[:, None] ** 2 + x**2) / 2), acceleration, seed)


def _spiral(matrix: tuple[int, int], turns: float) -> Tensor:
    angle = np.linspace(0.0, 2 * np.pi * turns, int(8 * turns * max(matrix)) + 1)
    radius = np.linspace(0.0, 1.0, len(angle))
    return _points(matrix, radius * np.sin(angle), radius * np.cos(angle))


def _points(matrix: tuple[int, int], y: NDArray[np.float64], x: NDArray[np.float64]) -> Tensor:
    """Mask of the grid points nearest to coordinates in (-1, 1), 1 being the edge of the matrix."""
    (n_y, n_x) = matrix
    rows, columns = np.rint(n_y // 2 + y * n_y / 2).astype(int), np.rint(n_x // 2 + x * n_x / 2).astype(int)
    inside = (rows >= 0) & (rows < n_y) & (columns >= 0) & (columns < n_x)
    mask = torch.zeros(1, 1, n_y, n_x, dtype=torch.bool)
    mask[0, 0, rows[inside], columns[inside]] = True
    return mask


def _drawn(
    matrix: tuple[int, int], density: NDArray[np.float64], acceleration: float | int, seed: int
) -> Tensor:
    """Weighted draw without replacement (Efraimidis and Spirakis, Inf Process Lett 97:181, 2006).

    The centre of k-space is always among the points: without it the mean of the image is unknown.
    """
    _check_acceleration(acceleration)
    _check_matrix(matrix)
    n_points = max(1, round(density.size / acceleration))
    uniform = np.random.default_rng(seed).uniform(size=matrix)
    keys = np.log(uniform) / density
    keys[matrix[0] // 2, matrix[1] // 2] = np.inf
    chosen = np.argsort(keys, axis=None)[-n_points:]
    mask = torch.zeros(density.size, dtype=torch.bool)
    mask[torch.from_numpy(chosen.copy())] = True
    return mask.reshape(1, 1, *matrix)


def _share(mask: Tensor) -> float:
    return float(mask.float().mean())


def _check_matrix(matrix: tuple[int, int]) -> None:
    if min(matrix) < 4:
        raise ValueError(f"The matrix is {matrix}; a pattern needs at least 4 x 4 points.")


def _check_acceleration(acceleration: float | int) -> None:
    if not acceleration >= 1:
        raise ValueError(
            f"acceleration is {acceleration}; it says how many times fewer points are measured, at least 1."
        )


PATTERNS: dict[str, Callable[[tuple[int, int]], Tensor]] = {
    "cartesian-4": lambda matrix: random_cartesian_mask(matrix),
    "cartesian-4-swapped": lambda matrix: random_cartesian_mask(matrix, phase_axis="kx"),
    "cartesian-4-acl4": lambda matrix: random_cartesian_mask(matrix, calibration_fraction=0.04),
    "radial-45": pseudo_radial_mask,
    "gaussian-8": gaussian_mask,
    "random-3": random_points_mask,
    "spiral-5": pseudo_spiral_mask,
}
"""Pattern by name: a matrix (ky, kx) to a mask bool (1, 1, ky, kx). Seeded where random."""

PARALLEL_IMAGING = ("cartesian-4", "cartesian-4-swapped", "cartesian-4-acl4", "radial-45", "gaussian-8")
"""The five patterns of the paper's parallel-imaging study: 8 % calibration lines, the same with the phase
encoding along the other axis, 4 % calibration lines, 45 spokes, 8-fold Gaussian."""

SINGLE_COIL = ("random-3", "cartesian-4", "spiral-5", "radial-45")
"""The four patterns of the paper's single-coil study."""
