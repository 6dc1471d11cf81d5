r"""Radial spokes: straight, evenly spaced lines through (or nearly through) the centre of k-space.

Points are (kx, ky) in cycles per field of view. Sample j of a spoke at the angle :math:`\theta` lies at

.. math:: k_j = (j - c)\, \Delta\, (\cos\theta, \sin\theta) + S\,(\cos\theta, \sin\theta)\, \Delta

with the centre c, the spacing :math:`\Delta` (1 over the oversampling), and a shift by the symmetric matrix S
of :class:`SpokeShift`, in samples, which gradient delays leave.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokeShift:
    r"""Where spokes really lie: shifted by :math:`S n` samples, n their direction.

    Delays of the gradients along x and y shift a spoke along either axis in proportion to that gradient;
    delays of gradients that lie askew to the image's axes add ``xy``. A positive value means that samples
    lie further along the direction of reading than assumed.
    """

    xx: float | int = 0.0
    yy: float | int = 0.0
    xy: float | int = 0.0

    @property
    def matrix(self) -> NDArray[np.float64]:
        """S, (2, 2)."""
        return np.array([[self.xx, self.xy], [self.xy, self.yy]], np.float64)


NO_SHIFT = SpokeShift()


def radial_points(
    angles: NDArray[np.float64],
    n_samples: int,
    *,
    centre: float | int | None = None,
    spacing: float | int = 1.0,
    shift: SpokeShift = NO_SHIFT,
) -> NDArray[np.float64]:
    """Return the points (spoke, sample, 2) of spokes at these angles (spoke,).

    ``centre`` is the sample at the centre of k-space, by default ``n_samples // 2``, for odd and even numbers
    alike; ``spacing`` is in cycles per field of view.
    """
    if n_samples < 1:
        raise ValueError(f"A spoke of {n_samples} samples has no points; give at least 1.")
    middle = n_samples // 2 if centre is None else centre
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    along = (np.arange(n_samples) - middle) * spacing
    points: NDArray[np.float64] = along[:, None] * directions[:, None]
    return points + spacing * (directions @ shift.matrix)[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class SpokeGeometry:
    """What is common to the points of spokes."""

    directions: NDArray[np.float64]
    """(spoke, 2), unit vectors along which the samples go."""
    spacing: float
    """Between samples, in cycles per field of view."""
    nearest: NDArray[np.float64]
    """(spoke,): the (fractional) sample that lies nearest to the centre of k-space."""
    offsets: NDArray[np.float64]
    """(spoke,): how far to the left of the spoke the centre lies, in cycles per field of view."""

    @property
    def angles(self) -> NDArray[np.float64]:
        """Of the directions, in rad, from -pi to pi."""
        angles: NDArray[np.float64] = np.arctan2(self.directions[:, 1], self.directions[:, 0])
        return angles


def spoke_geometry(points: NDArray[np.float64], tolerance: float | int = 0.05) -> SpokeGeometry | None:
    """Recognise full spokes in points (spoke, sample, 2); None where they are none.

    Points are in cycles per the field of view of a square: where the field of view is none, scale them to
    one. Spokes are straight and evenly spaced to ``tolerance``, have one spacing, pass the centre within one
    cycle per field of view, and have it inside, not at an end: half spokes are none.
    """
    n_samples = points.shape[1]
    if n_samples < 4:
        return None
    steps = (points[:, -1] - points[:, 0]) / (n_samples - 1)
    spacings = np.linalg.norm(steps, axis=-1)
    spacing = float(np.median(spacings))
    if not spacing > 0 or np.abs(spacings - spacing).max() * (n_samples - 1) > 2 * tolerance:
        return None
    straight = points[:, :1] + np.arange(n_samples)[None, :, None] * steps[:, None]
    if np.abs(points - straight).max() > tolerance:
        return None
    directions = steps / spacings[:, None]
    nearest = -np.einsum("sd,sd->s", points[:, 0], directions) / spacing
    offsets = points[:, 0, 0] * directions[:, 1] - points[:, 0, 1] * directions[:, 0]
    inside = (nearest > 0.1 * n_samples) & (nearest < 0.9 * n_samples)
    if not inside.all() or np.abs(offsets).max() > 1.0:
        return None
    return SpokeGeometry(directions, spacing, nearest, offsets)
