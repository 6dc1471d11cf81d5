"""From an image on the wire to a small picture of it: eight bits, a window, a palette."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget.operations.png import PALETTES, encode_png
from gadget.wire.messages import Image

LARGEST_SIDE = 1024
"""Pixels; of larger images every second, third, ... row and column is shown."""
_WHITE_PERCENTILE = 99.9


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """What a browser is shown of one image."""

    name: str
    """What it is a picture of: 'image', 'posterior mean', ..."""
    levels: NDArray[np.uint8]
    """(y, x), 0 to 255."""
    window: tuple[float, float]
    """Values, in the units of the image, of the levels 0 and 255."""
    palette: str
    aspect: float
    """Width over height of the field of view."""

    def png(self) -> bytes:
        """Return it as a file; made when somebody asks for it."""
        return encode_png(self.levels, PALETTES[self.palette])


def picture_of(
    image: Image, meta: dict[str, str], name: str, window: tuple[float, float] | None = None
) -> Picture | None:
    """Make a picture of the middle partition of the first channel; None where there is no pixel to show.

    Parameters
    ----------
    meta
        Attributes of the image: rescaling, component, kind.
    window
        Of another image that it shall be compared with; None: its own. A magnitude from 0 to its 99.9th
        percentile, a real part as far to both sides, a phase from -pi to pi.
    """
    if 0 in image.data.shape:
        return None
    plane = image.data[0, image.data.shape[1] // 2]
    step = -(-max(plane.shape) // LARGEST_SIDE)
    plane = plane[::step, ::step]
    component = meta.get("EBM_Component", "magnitude")
    if np.iscomplexobj(plane):
        plane = np.abs(plane)
    slope, intercept = _number(meta, "RescaleSlope", 1.0), _number(meta, "RescaleIntercept", 0.0)
    values = np.nan_to_num(plane.astype(np.float64) * slope + intercept, nan=0.0, posinf=0.0, neginf=0.0)
    black, white = window or _window(values, component)
    grey = np.clip((values - black) / (white - black), 0.0, 1.0)
    return Picture(
        name=name,
        levels=np.rint(255 * grey).astype(np.uint8),
        window=(black, white),
        palette="magma" if meta.get("EBM_Image") == "POSTERIOR_STD" else "grey",
        aspect=_aspect(image),
    )


def _window(values: NDArray[np.float64], component: str) -> tuple[float, float]:
    if component == "phase":
        return -np.pi, np.pi
    top = float(np.percentile(np.abs(values), _WHITE_PERCENTILE)) or float(np.abs(values).max()) or 1.0
    return (-top, top) if component == "real" else (0.0, top)


def _number(meta: dict[str, str], name: str, default: float) -> float:
    try:
        value = float(meta.get(name, default))
    except ValueError:
        return default
    return value if np.isfinite(value) else default


def _aspect(image: Image) -> float:
    """Return width over height; of the matrix where the header has no field of view."""
    for name in ("field_of_view", "matrix_size"):
        width, height, _ = (float(size) for size in image.header[name])
        if 0 < width < np.inf and 0 < height < np.inf:
            return min(max(width / height, 0.1), 10.0)
    return 1.0
