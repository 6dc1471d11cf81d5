"""From points as scans have them, (kx, ky) in cycles per field of view, to those of the transform."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def transform_points(points: NDArray[np.float64], matrix: tuple[int, int]) -> Tensor:
    """Return the trajectory (1, point, 2) of :class:`reconlib.operators.nonuniform.NonuniformFourier`.

    That is (ky, kx) in cycles per pixel of a ``matrix`` (y, x), float64, from points (..., 2) in cycles per
    field of view: half the matrix becomes 0.5.
    """
    if points.shape[-1] != 2:
        raise ValueError(f"Points of shape {points.shape} are not two-dimensional; they are (..., 2).")
    per_pixel = points.reshape(1, -1, 2)[..., ::-1] / np.array(matrix, np.float64)
    return torch.from_numpy(np.ascontiguousarray(per_pixel))
