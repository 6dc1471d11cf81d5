r"""A margin round the field of view, for what non-Cartesian readouts measure beyond it.

Along a trajectory that is not a grid of the field of view's spacing, an object beyond the edge does not fold
back into the image as one object: no image within the field of view explains what was measured, and the rest
ends up as bright edges and ringing. So the grid of the reconstruction is an eighth wider (and cut to the
field of view afterwards), along each axis where the points tell a pixel from one a field of view away:

.. math:: \Big| \tfrac1n \sum_j e^{2 \pi i k_j} \Big| < \tfrac12

with k in cycles per field of view. Points on a grid of its spacing (a Cartesian scan that is recorded as a
trajectory) have a mean of 1: with a margin the image would be shared between it and the other side.

On a spiral scan of a phantom that sticks out of the field of view, 40 iterations with total variation, the
correlation with an image of conjugate gradients (SENSE, density-weighted) inside the object was 0.901 without
a margin, 0.997 with one eighth and 0.997 with one quarter.
"""

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from gadget.scan.trajectory_grid import TrajectoryGrid

MARGIN = 1 / 8
"""Of the field of view, half of it on either side."""
MOST_ALIKE = 0.5


def with_margin(grid: TrajectoryGrid, points: NDArray[np.float64]) -> TrajectoryGrid:
    """Return the grid with a margin; ``points`` (..., 2) are in cycles per its field of view.

    Its number of pixels is even along axes with a margin, and one that FFTs like.
    """
    n_x, n_y = (
        _wider(n) if abs(np.exp(2j * np.pi * points[..., axis]).mean()) < MOST_ALIKE else n
        for axis, n in enumerate(grid.matrix)
    )
    pixel_x, pixel_y = grid.pixel_mm
    return TrajectoryGrid((n_x, n_y), (n_x * pixel_x, n_y * pixel_y), grid.notes)


def _wider(n: int) -> int:
    half: int = scipy.fft.next_fast_len(-(-round(n * (1 + MARGIN)) // 2))
    return 2 * half
