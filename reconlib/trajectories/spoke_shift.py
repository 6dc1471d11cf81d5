r"""Find where radial spokes really lie, from where they cross: the correction of gradient delays.

The method is RING (Rosenzweig et al.): two spokes at different angles cross at one point of k-space, where
their samples agree in all coils. With spokes assumed at :math:`o_i + a\, n_i` (offset, sample times spacing,
direction) and really shifted by :math:`S n_i`, a crossing found at the samples a of spoke i and b of spoke j
says

.. math:: S (n_i - n_j) = o_j + b\, n_j - o_i - a\, n_i

two equations in the three numbers of the symmetric S. Many crossings of spokes that are about at right
angles give S by least squares, weighted anew by Huber's rule, as a few crossings are mistaken. Opposed spokes
are not needed, and one model fits any set of angles. A phase that differs between spokes plays no part.

References
----------
Rosenzweig, Holme, Uecker, "Simple auto-calibrated gradient delay estimation from few spokes using radial
intersections (RING)", Magn Reson Med 81:1898 (2019).
Block and Uecker, "Simple method for adaptive gradient-delay compensation in radial MRI", Proc ISMRM 19:2816
(2011): the same from opposed spokes.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reconlib.trajectories.radial import SpokeGeometry, SpokeShift

MOST_CROSSINGS = 400
SEARCH_SAMPLES = 4.0
"""Crossings are looked for up to so many Nyquist samples from where they are expected."""
FINENESS = 8
"""Points per sample in the search; a parabola then refines."""
FEWEST_SIGNALS = 3
SMALLEST_SIGNAL = 0.01
"""Of the largest singular value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftEstimate:
    """A shift and how sure it is."""

    shift: SpokeShift
    standard_error: float
    """Of the shift's components, in samples."""
    misfit: float
    """Median distance between crossings and where the shifted spokes cross, in samples."""
    n_crossings: int
    n_signals: int
    """Different signals that the coils saw near the centre: singular values above 1 % of the largest."""

    @property
    def is_sure(self) -> bool:
        """Whether to correct by it: the crossings agree to a third of a sample, from at least 8 of them.

        And from at least three different signals. An object of one spot, or of two, looks alike at many
        places of k-space; crossings found there can agree well and be wrong together.
        """
        agree = self.n_crossings >= 8 and self.misfit < 1 / 3 and self.standard_error < 0.1
        return agree and self.n_signals >= FEWEST_SIGNALS

    @property
    def size(self) -> float:
        """The largest shift of any spoke, in samples."""
        return float(np.abs(np.linalg.eigvalsh(self.shift.matrix)).max())


def estimate_shift(samples: NDArray[np.complexfloating], geometry: SpokeGeometry) -> ShiftEstimate | None:
    """Estimate the shift of spokes.

    Parameters
    ----------
    samples
        complex (coil, spoke, sample), in the order of the geometry's points.

    Returns
    -------
    ShiftEstimate or None
        None where no two spokes are at an angle between 45 and 135 degrees.
    """
    if samples.ndim != 3 or samples.shape[1] != len(geometry.directions):
        raise ValueError(
            f"Samples of shape {samples.shape} do not belong to {len(geometry.directions)} spokes; they are "
            "(coil, spoke, sample)."
        )
    pairs = _pairs(geometry.angles)
    reach = SEARCH_SAMPLES / min(1.0, geometry.spacing)
    places = np.arange(-round(reach * FINENESS), round(reach * FINENESS) + 1) / FINENESS
    centres = interpolated(samples.astype(np.complex128), geometry.nearest[:, None] + places)
    equations, values = [], []
    n, feet = geometry.directions, _feet(geometry)
    for i, j in pairs:
        crossing = _crossing(centres[:, i], centres[:, j])
        if crossing is None:
            continue
        a, b = (places[0] + place / FINENESS for place in crossing)
        x, y = n[i] - n[j]
        equations += [[x, 0.0, y], [0.0, y, x]]
        values += list(feet[j] + b * n[j] - feet[i] - a * n[i])
    if len(values) < 4:
        return None
    return _robust_fit(np.array(equations), np.array(values), _count_signals(centres))


def _feet(geometry: SpokeGeometry) -> NDArray[np.float64]:
    """Where each spoke comes nearest to the centre, (spoke, 2) in samples."""
    right = np.stack([geometry.directions[:, 1], -geometry.directions[:, 0]], axis=-1)
    feet: NDArray[np.float64] = right * (geometry.offsets / geometry.spacing)[:, None]
    return feet


def _pairs(angles: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs of spokes within 45 degrees of a right angle, the nearest to it first; not too many."""
    first, second = np.triu_indices(len(angles), k=1)
    askew = np.abs(np.cos(angles[first] - angles[second]))
    # A spoke is in few pairs, so that all of them count alike.
    most = max(1, math.ceil(2 * MOST_CROSSINGS / len(angles)))
    counts = np.zeros(len(angles), np.int64)
    pairs: list[tuple[int, int]] = []
    for place in np.argsort(askew, kind="stable"):
        if askew[place] > math.sqrt(0.5) or len(pairs) == MOST_CROSSINGS:
            break
        i, j = int(first[place]), int(second[place])
        if counts[i] < most and counts[j] < most:
            counts[[i, j]] += 1
            pairs.append((i, j))
    return pairs


def interpolated(samples: NDArray[np.complex128], places: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Values (coil, spoke, place) at fractional samples (spoke, place), by the discrete Fourier transform."""
    n = samples.shape[-1]
    frequencies = np.arange(n) - n // 2
    projections = np.fft.fftshift(np.fft.fft(samples, axis=-1), axes=-1) / n
    waves = np.exp((2j * math.pi / n) * frequencies[:, None] * places[:, None, :])
    values: NDArray[np.complex128] = np.matmul(projections.swapaxes(0, 1), waves).swapaxes(0, 1)
    return values


def _crossing(one: NDArray[np.complex128], other: NDArray[np.complex128]) -> tuple[float, float] | None:
    """Fractional indices where two stretches (coil, place) agree best; None where that is at an end."""
    power = np.square(np.abs(one)).sum(0)[:, None] + np.square(np.abs(other)).sum(0)
    agreement = 2 * np.abs(one.conj().T @ other) / np.where(power > 0, power, np.inf)
    i, j = np.unravel_index(int(agreement.argmax()), agreement.shape)
    if not (0 < i < agreement.shape[0] - 1 and 0 < j < agreement.shape[1] - 1):
        return None
    around = agreement[i - 1 : i + 2, j - 1 : j + 2]
    slope = 0.5 * np.array([around[2, 1] - around[0, 1], around[1, 2] - around[1, 0]])
    across = 0.25 * (around[2, 2] - around[2, 0] - around[0, 2] + around[0, 0])
    along = [around[2, 1] + around[0, 1] - 2 * around[1, 1], around[1, 2] + around[1, 0] - 2 * around[1, 1]]
    curvature = np.array([[along[0], across], [across, along[1]]])
    if not np.linalg.det(curvature) > 0:
        return None
    step = np.clip(-np.linalg.solve(curvature, slope), -1.0, 1.0)
    return float(i + step[0]), float(j + step[1])


def _count_signals(centres: NDArray[np.complex128]) -> int:
    """Count the different signals in stretches (coil, spoke, place)."""
    sizes = np.linalg.svd(centres.reshape(len(centres), -1), compute_uv=False)
    return int((sizes > SMALLEST_SIGNAL * sizes[0]).sum())


def _robust_fit(equations: NDArray[np.float64], values: NDArray[np.float64], n_signals: int) -> ShiftEstimate:
    """Least squares for (xx, yy, xy), the two equations of a crossing weighted by Huber's rule."""
    weights: NDArray[np.float64] = np.ones(len(values) // 2)
    fit: NDArray[np.floating] = np.zeros(3)
    scale = misfit = 0.0
    for _ in range(20):
        root = np.repeat(np.sqrt(weights), 2)
        fit = np.linalg.lstsq(root[:, None] * equations, root * values, rcond=None)[0]
        residual = (values - equations @ fit).reshape(-1, 2)
        distances = np.hypot(residual[:, 0], residual[:, 1])
        misfit = float(np.median(distances))
        scale = max(misfit, 1e-9)
        weights = np.minimum(1.0, 1.5 * scale / np.maximum(distances, 1e-12))
    normal = (np.repeat(weights, 2)[:, None] * equations).T @ equations
    # A distance's median is 1.18 standard deviations of each of its two components.
    errors = np.sqrt(np.diag(np.linalg.pinv(normal))) * scale / 1.18
    return ShiftEstimate(
        shift=SpokeShift(xx=float(fit[0]), yy=float(fit[1]), xy=float(fit[2])),
        standard_error=float(errors.max()),
        misfit=misfit,
        n_crossings=len(weights),
        n_signals=n_signals,
    )
