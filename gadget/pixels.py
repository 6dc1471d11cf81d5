"""How the values of an image become pixels: floating-point numbers, or 12 bits and a rescaling.

Integer pixels are 0 to 4095, as in scanners' own images, and ``pixel * RescaleSlope + RescaleIntercept``
gives the values back to half a slope:

* a **magnitude** from 0 on, intercept 0;
* a **real** part about 2048, so that a pixel of 2048 is exactly 0;
* a **phase** as on Siemens scanners: slope pi / 2048 and intercept -pi, so that 0 is -pi and 2048 exactly 0;
  pi, which is the same angle as -pi, becomes 0.

A complex image has no integer pixels.
"""

import math
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget.errors import OwnProtocolError
from gadget.settings import ImageComponent

LARGEST_INTEGER_PIXEL = 4095
"""The largest pixel of integer images: 12 bits, as scanners' own images have."""
ZERO_PIXEL = 2048
"""The pixel that stands for 0 where values have a sign."""
LARGEST_SIGNED_PIXEL = LARGEST_INTEGER_PIXEL - ZERO_PIXEL
PHASE_SLOPE = math.pi / ZERO_PIXEL
"""Radians per integer pixel."""


class PixelType(Enum):
    """How pixels are sent. Gadgetron's external nodes must never send int16: it ends the chain."""

    FLOAT32 = "float32"
    UINT16 = "uint16"
    INT16 = "int16"

    def code(self, component: ImageComponent) -> int:
        """Return the ``data_type`` of the image header; complex images of floats are complex64."""
        if component == "complex":
            return 7
        return {"uint16": 1, "int16": 2, "float32": 5}[self.value]


def component_of(
    image: NDArray[np.complex64] | NDArray[np.float32], component: ImageComponent
) -> NDArray[np.complex64] | NDArray[np.float32]:
    """Return the values of a component of an image; the phase in radians, -pi to pi."""
    match component:
        case "magnitude":
            return np.abs(image).astype(np.float32)
        case "phase":
            return np.angle(image).astype(np.float32)
        case "real":
            return np.ascontiguousarray(image.real, np.float32)
        case "complex":
            return image.astype(np.complex64)


def integer_pixels(
    values: NDArray[np.float32],
    component: ImageComponent,
    pixel_type: PixelType,
    slope: float | None = None,
) -> tuple[NDArray[Any], dict[str, float]]:
    """Return integer pixels of real values, and the meta attributes that undo the scaling.

    Values that a given ``slope`` makes too large are clipped, to the type's range for magnitudes and to 0 and
    4095 for real parts, and ``ClippedPixels`` says how many. Without one the brightest becomes the largest
    pixel. Phases have a slope of their own.
    """
    if component == "complex":
        raise OwnProtocolError(
            f"A complex image was to be sent as {pixel_type.value}; complex images have no integer pixels. "
            "Send them as floats."
        )
    dtype = np.dtype(pixel_type.value)
    exact = values.astype(np.float64)
    if component == "phase":
        pixels = np.rint((exact + math.pi) / PHASE_SLOPE) % (LARGEST_INTEGER_PIXEL + 1)
        return pixels.astype(dtype), {"RescaleSlope": PHASE_SLOPE, "RescaleIntercept": -math.pi}
    zero, largest = (0, int(np.iinfo(dtype).max)) if component == "magnitude" else (ZERO_PIXEL, 4095)
    if slope is None:
        top = float(np.abs(exact).max(initial=0.0))
        slope = top / (LARGEST_INTEGER_PIXEL - zero) if top > 0 else 1.0
    if not (np.isfinite(slope) and slope > 0):
        raise OwnProtocolError(f"The slope of integer pixels is {slope}; it must be positive.")
    scaled = np.rint(exact / slope) + zero
    meta = {"RescaleSlope": slope, "RescaleIntercept": -slope * zero}
    if n_clipped := int(((scaled > largest) | (scaled < 0)).sum()):
        meta["ClippedPixels"] = n_clipped
    return np.clip(scaled, 0, largest).astype(dtype), meta
