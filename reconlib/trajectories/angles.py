r"""Angles of radial spokes and of rotated interleaves, in closed form.

With the golden ratio :math:`\tau = (1 + \sqrt 5) / 2`, the golden angle of full spokes is
:math:`\pi / \tau \approx 111.246^\circ`, and the tiny golden angles are

.. math:: \psi_N = \frac{\pi}{\tau + N - 1}, \qquad N = 1, 2, 3, \dots

so N = 1 is the golden angle itself, N = 2 gives :math:`\pi (3 - \sqrt 5) / 2 \approx 68.754^\circ` (the
smaller of the two angles that Gadgetron knows) and N = 7 gives :math:`23.628^\circ`.

References
----------
Winkelmann et al., "An optimal radial profile order based on the golden ratio for time-resolved MRI", IEEE
Trans Med Imaging 26:68 (2007).
Wundrak et al., "Golden ratio sparse MRI using tiny golden angles", Magn Reson Med 75:2372 (2016).
"""

import math

import numpy as np
from numpy.typing import NDArray

GOLDEN_RATIO = (1.0 + math.sqrt(5.0)) / 2.0


def golden_angle(number: int = 1) -> float:
    """Return the tiny golden angle of this number in rad; 1 is the golden angle of full spokes."""
    if number < 1:
        raise ValueError(f"There is no tiny golden angle {number}; they are counted from 1.")
    return math.pi / (GOLDEN_RATIO + number - 1)


def uniform_angles(n_spokes: int, *, full_circle: bool = False) -> NDArray[np.float64]:
    """Return angles spread evenly over half a circle (or all of it), from 0 on, in rad."""
    if n_spokes < 1:
        raise ValueError(f"{n_spokes} spokes have no angles; give at least 1.")
    step = (2.0 if full_circle else 1.0) * math.pi / n_spokes
    angles: NDArray[np.float64] = step * np.arange(n_spokes, dtype=np.float64)
    return angles


def stepped_angles(
    spokes: NDArray[np.integer] | int, step_rad: float | int, first_rad: float | int = 0.0
) -> NDArray[np.float64]:
    """Return ``first + spoke * step`` in [0, 2 pi), for these spoke numbers or the first so many."""
    numbers = np.arange(spokes) if isinstance(spokes, int) else spokes
    angles: NDArray[np.float64] = np.mod(first_rad + numbers.astype(np.float64) * step_rad, 2.0 * math.pi)
    return angles


def shares_of_half_circle(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return the part of :math:`\pi` that belongs to each full spoke (spoke,); they add up to pi.

    Half the gaps to the neighbours on either side, modulo pi: a spoke and its opposite cover the same
    points. Spokes at one angle share what is theirs.
    """
    folded = np.mod(angles, math.pi)
    distinct, group, counts = np.unique(np.round(folded, 9), return_inverse=True, return_counts=True)
    if distinct.size == 1:
        return np.full(angles.shape, math.pi / angles.size)
    gaps = np.diff(distinct, append=distinct[0] + math.pi)
    shares: NDArray[np.float64] = (0.5 * (gaps + np.roll(gaps, 1)) / counts)[group]
    return shares
