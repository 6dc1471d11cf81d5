"""Calibration lines that are not the image's own k-space: for the coils' sensitivities, never image data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationLines:
    """K-space of a calibration of another encoding, matrix, contrast or dwell time than the image's.

    Whitened by the same matrix as the slice that it belongs to (so the coils are the same), its readout
    oversampling removed where that can be done exactly. Its intensity is not that of the image.
    """

    samples: NDArray[np.complex64]
    """complex64 (coil, ky, kx) or, of a volume, (coil, kz, ky, kx): centred (zero frequency at n // 2),
    unitary, zero where not measured."""
    mask: NDArray[np.bool_]
    """bool (ky, kx) or (kz, ky, kx)."""
    fov_mm: tuple[float, ...]
    """Field of view along x and y, of a volume also z: that of these samples' grid."""
