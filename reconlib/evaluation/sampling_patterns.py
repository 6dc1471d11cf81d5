"""Which lines of Cartesian k-space a scan measures: the patterns that methods are compared on.

A pattern of lines is a boolean vector over the phase-encoding direction; :func:`mask_from_lines` spreads it
over the grid. Randomness is numpy's ``default_rng(seed)``, so that a pattern can be named by its numbers in
a table and drawn again by anyone.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PhaseAxis = Literal["ky", "kx"]


def n_calibration_lines(n_lines: int, calibration_fraction: float | int) -> int:
    """Number of adjacent centre lines that a fraction of all lines amounts to."""
    if n_lines < 1:
        raise ValueError(f"A pattern of {n_lines} lines is empty; give at least 1 line.")
    if not 0.0 <= calibration_fraction <= 1.0:
        raise ValueError(
            f"calibration_fraction is {calibration_fraction}; it is a share of all lines, "
            "between 0 and 1 (0.08 for 8 %)."
        )
    return round(calibration_fraction * n_lines)


def calibration_lines(n_lines: int, n_centre: int) -> NDArray[np.bool_]:
    """Mark ``n_centre`` lines round the centre, from the index ``(n_lines - n_centre + 1) // 2`` on."""
    if not 0 <= n_centre <= n_lines:
        raise ValueError(f"{n_centre} calibration lines do not fit into {n_lines} lines of k-space.")
    first = (n_lines - n_centre + 1) // 2
    lines = np.zeros(n_lines, dtype=np.bool_)
    lines[first : first + n_centre] = True
    return lines


def random_lines(
    n_lines: int, *, acceleration: float | int = 4.0, calibration_fraction: float | int = 0.08, seed: int = 42
) -> NDArray[np.bool_]:
    r"""Draw lines at random with a fully sampled centre.

    With :math:`n` calibration lines out of :math:`N`, every other line is kept with the probability
    :math:`(N / R - n) / (N - n)`, so that :math:`N / R` lines are expected in all.
    """
    n_centre = n_calibration_lines(n_lines, calibration_fraction)
    lines = calibration_lines(n_lines, n_centre)
    _check_acceleration(acceleration)
    if n_lines / acceleration < n_centre:
        raise ValueError(
            f"{n_centre} calibration lines are more than the {n_lines / acceleration:.1f} lines "
            f"that acceleration {acceleration:g} leaves of {n_lines}; lower one of the two."
        )
    if n_centre == n_lines:
        return lines
    keep = (n_lines / acceleration - n_centre) / (n_lines - n_centre)
    return lines | (np.random.default_rng(seed).uniform(size=n_lines) < keep)


def uniform_lines(
    n_lines: int,
    *,
    acceleration: int = 4,
    calibration_fraction: float | int = 0.08,
    offset: int | None = None,
) -> NDArray[np.bool_]:
    """Take every ``acceleration``-th line, and all calibration lines.

    The centre line is always one of them; ``offset`` shifts the others instead (its value is the first line).
    """
    if acceleration < 1:
        raise ValueError(
            f"acceleration is {acceleration}; every n-th line needs a whole number of at least 1."
        )
    if offset is not None and not 0 <= offset < acceleration:
        raise ValueError(
            f"offset is {offset}; with acceleration {acceleration} it lies between 0 and {acceleration - 1}."
        )
    lines = calibration_lines(n_lines, n_calibration_lines(n_lines, calibration_fraction))
    lines[(n_lines // 2) % acceleration if offset is None else offset :: acceleration] = True
    return lines


def mask_from_lines(lines: NDArray[np.bool_], n_readout: int, *, phase_axis: PhaseAxis = "ky") -> Tensor:
    """Spread a pattern of lines over the grid: a bool mask (1, 1, ky, kx), as k-space has it.

    ``n_readout`` is the size of the other axis, which is sampled completely.
    """
    if lines.ndim != 1 or lines.dtype != np.bool_:
        raise ValueError(
            f"A pattern of lines is a bool vector; this is {lines.dtype} of shape {lines.shape}."
        )
    if phase_axis not in ("ky", "kx"):
        raise ValueError(f"phase_axis is {phase_axis!r}; choose 'ky' or 'kx'.")
    pattern = torch.from_numpy(lines.copy())
    grid = (
        pattern[:, None].expand(-1, n_readout)
        if phase_axis == "ky"
        else pattern[None, :].expand(n_readout, -1)
    )
    return grid[None, None].clone()


def random_cartesian_mask(
    matrix: tuple[int, int],
    *,
    acceleration: float | int = 4.0,
    calibration_fraction: float | int = 0.08,
    seed: int = 42,
    phase_axis: PhaseAxis = "ky",
) -> Tensor:
    """Return the random Cartesian mask (1, 1, ky, kx) of :func:`random_lines` for a matrix (ky, kx)."""
    n_ky, n_kx = matrix
    n_lines, n_readout = (n_ky, n_kx) if phase_axis == "ky" else (n_kx, n_ky)
    lines = random_lines(
        n_lines, acceleration=acceleration, calibration_fraction=calibration_fraction, seed=seed
    )
    return mask_from_lines(lines, n_readout, phase_axis=phase_axis)


def uniform_cartesian_mask(
    matrix: tuple[int, int],
    *,
    acceleration: int = 4,
    calibration_fraction: float | int = 0.08,
    phase_axis: PhaseAxis = "ky",
) -> Tensor:
    """Return the regular Cartesian mask (1, 1, ky, kx) of :func:`uniform_lines` for a matrix (ky, kx)."""
    n_ky, n_kx = matrix
    n_lines, n_readout = (n_ky, n_kx) if phase_axis == "ky" else (n_kx, n_ky)
    lines = uniform_lines(n_lines, acceleration=acceleration, calibration_fraction=calibration_fraction)
    return mask_from_lines(lines, n_readout, phase_axis=phase_axis)


def _check_acceleration(acceleration: float | int) -> None:
    if not acceleration >= 1.0:
        raise ValueError(
            f"acceleration is {acceleration}; it says how many times fewer lines are measured, at least 1."
        )
