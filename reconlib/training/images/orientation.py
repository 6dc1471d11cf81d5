"""Words for how an image lies in the patient."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Direction = Sequence[float] | NDArray[Any]

_ENDS = (("right", "left"), ("anterior", "posterior"), ("inferior", "superior"))
_PLANES = ("sagittal", "coronal", "axial")


def orientation_in_words(along_x: Direction, along_y: Direction) -> str | None:
    """Name the plane, and where y and x (array rows and columns) lead, to the nearest axis of the patient.

    Both directions are in DICOM's patient coordinates: positive to the left, to posterior, to superior
    (DICOM PS3.3, C.7.6.2.1.1). An axial image as radiologists look at it is "axial (y to posterior, x to
    left)". None for directions that span no plane.
    """
    x, y = np.asarray(along_x, dtype=np.float64), np.asarray(along_y, dtype=np.float64)
    if x.shape != (3,) or y.shape != (3,) or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    normal = np.cross(x, y)
    lengths = float(np.linalg.norm(x)) * float(np.linalg.norm(y))
    if lengths == 0 or float(np.linalg.norm(normal)) < 1e-3 * lengths:
        return None
    plane = _PLANES[int(np.argmax(np.abs(normal)))]
    return f"{plane} (y to {_end(y)}, x to {_end(x)})"


def _end(direction: NDArray[np.float64]) -> str:
    axis = int(np.argmax(np.abs(direction)))
    return _ENDS[axis][int(direction[axis] > 0)]
