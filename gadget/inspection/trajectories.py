"""The k-space points that are stored with readouts."""

import numpy as np
from numpy.typing import NDArray

from gadget.inspection.content import TrajectoryRange

POINTS_SHOWN = 20_000
"""Points kept for the picture."""


class TrajectoryTally:
    """Range of the points, by number of dimensions, and some of them."""

    def __init__(self) -> None:
        self._ranges: dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
        self._points: list[NDArray[np.float32]] = []
        self._n_points = 0

    def add(self, points: NDArray[np.float32]) -> None:
        """Add the trajectory of a readout, (sample, dimension)."""
        if not points.size:
            return
        low, high = points.min(axis=0), points.max(axis=0)
        n_dims = points.shape[1]
        if n_dims in self._ranges:
            earlier = self._ranges[n_dims]
            low, high = np.minimum(low, earlier[0]), np.maximum(high, earlier[1])
        self._ranges[n_dims] = low, high
        if self._n_points < POINTS_SHOWN and n_dims >= 2:
            self._points.append(points[:, :2].copy())
            self._n_points += len(points)

    def ranges(self) -> tuple[TrajectoryRange, ...]:
        """Return the range by number of dimensions."""
        return tuple(
            TrajectoryRange(dimensions=n_dims, minimum=tuple(low.tolist()), maximum=tuple(high.tolist()))
            for n_dims, (low, high) in sorted(self._ranges.items())
        )

    def points(self) -> NDArray[np.float32] | None:
        """Return the first two coordinates of the first points, (point, 2); None without any."""
        return np.concatenate(self._points)[:POINTS_SHOWN] if self._points else None
