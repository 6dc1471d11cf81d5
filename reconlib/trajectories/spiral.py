r"""Archimedean spirals of constant or variable density, with rotated interleaves.

An interleave runs outwards from the centre of k-space as

.. math:: k(s) = k_{max}\, s^{\alpha}\, (\cos\phi, \sin\phi), \qquad \phi = \omega s + \theta

for s from 0 to 1, with :math:`\alpha = 1` for constant density; larger :math:`\alpha` samples the centre more
densely (Kim et al.). Samples lie evenly spaced along the path, except near the centre: there they advance by
at most 2 / n in s, as a scanner's slew rate limits the speed of turning.

References
----------
Kim, Adalsteinsson, Spielman, "Simple analytic variable density spiral design", Magn Reson Med 50:214 (2003).
"""

import math

import numpy as np
from numpy.typing import NDArray

_FINE = 64
"""Points of the fine path per turn."""


def spiral_points(
    n_interleaves: int,
    n_samples: int,
    *,
    k_max: float | int,
    n_turns: float | int,
    density: float | int = 1.0,
    angles: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return points (interleave, sample, 2), (kx, ky) in cycles per field of view.

    Parameters
    ----------
    k_max
        Radius that the last sample reaches; half the matrix for full resolution.
    n_turns
        Of one interleave. At constant density neighbouring turns of all interleaves are
        ``k_max / (n_turns * n_interleaves)`` apart; 1 is Nyquist's limit.
    density
        The exponent alpha.
    angles
        Of the interleaves (interleave,), by default spread evenly over the circle.
    """
    faults = []
    if n_interleaves < 1 or n_samples < 2:
        faults.append(f"{n_interleaves} interleaves of {n_samples} samples (at least 1 of 2)")
    if not (k_max > 0 and n_turns > 0 and density > 0):
        faults.append(f"k_max {k_max}, n_turns {n_turns} and density {density} (all positive)")
    if angles is not None and angles.shape != (n_interleaves,):
        faults.append(f"angles of shape {angles.shape} (one for each of {n_interleaves} interleaves)")
    if faults:
        raise ValueError("No spiral can be made of " + "; ".join(faults) + ".")
    turned = 2.0 * math.pi * np.arange(n_interleaves) / n_interleaves if angles is None else angles
    s = np.linspace(0.0, 1.0, max(4 * n_samples, math.ceil(_FINE * n_turns)) + 1)
    path = _path(s, k_max, n_turns, density)
    # "Time" of every point of the fine path: its length, but at least the time that s itself takes.
    length = np.abs(np.diff(path))
    time = np.concatenate([[0.0], np.cumsum(np.maximum(length / length.sum(), np.diff(s) / 2.0))])
    samples = np.interp(np.linspace(0.0, time[-1], n_samples), time, s)
    spiral = _path(samples, k_max, n_turns, density) * np.exp(1j * turned)[:, None]
    points: NDArray[np.float64] = np.stack([spiral.real, spiral.imag], axis=-1)
    return points


def _path(
    s: NDArray[np.float64], k_max: float | int, n_turns: float | int, density: float | int
) -> NDArray[np.complex128]:
    path: NDArray[np.complex128] = k_max * s**density * np.exp(2j * math.pi * n_turns * s)
    return path
