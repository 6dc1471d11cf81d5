"""K-space of one slab of a Cartesian scan with two phase-encoding directions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget.scan.calibration import CalibrationLines
from gadget.scan.context import ScanContext


@dataclass(frozen=True, slots=True)
class AssembledVolume:
    """A slab (of one contrast, repetition, ...) as it was measured, prewhitened.

    Centred (``n // 2`` of each axis), for the unitary Fourier transform along all three axes.
    """

    context: ScanContext
    """Of the slab: its position is that of the slab's centre, ``recon_matrix`` has all three axes."""
    samples: NDArray[np.complex64]
    """complex64 (coil, kz, ky, kx); zero where not measured."""
    mask: NDArray[np.bool_]
    """bool (kz, ky, kx)."""
    noise_std: float
    """Standard deviation of the noise per real component, in the units of ``samples``."""
    calibration: CalibrationLines | None = None
    """Separate calibration lines: for coil maps, never image data."""
