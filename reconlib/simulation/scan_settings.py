"""What is scanned and how: the settings of a simulated scan."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reconlib.evaluation.sampling_patterns import random_lines, uniform_lines
from reconlib.simulation.anatomy import Contrast

Pattern = Literal["random", "uniform", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings:
    """What is scanned and how. Lengths in mm, angles in rad."""

    matrix: tuple[int, int] = (192, 160)
    """Lines (ky) and samples per line (kx)."""
    fov_mm: tuple[float, float] = (228.0, 190.0)
    """Field of view (y, x)."""
    n_slices: int = 1
    slice_spacing_mm: float | int = 5.0
    """From centre to centre."""
    first_slice_mm: float | int = 6.0
    """Height of the first slice above the level of the thalami (head only)."""
    contrast: Contrast = "t1"
    n_coils: int = 8
    pattern: Pattern = "random"
    acceleration: float | int = 4.0
    """How many times fewer lines are measured; a whole number for the pattern 'uniform'."""
    calibration_fraction: float | int = 0.08
    mask_seed: int = 42
    noise: float | int = 0.004
    """Standard deviation per real component, as a share of the maximum of the noise-free image."""
    noise_correlation: float | int = 0.0
    """0: white noise, equal in all coils. Above 0: unequal coils with correlated noise."""
    smooth_phase_rad: float | int = 0.8
    rough_phase_rad: float | int = 0.6
    """Phase that smooth coil maps cannot take up, in scarce patches; 0 for a spin echo."""
    fat_phase_rad: float | int = 0.6
    """Phase of fat against water (head only)."""
    seed: int = 0
    """Of head, coils and phase."""
    noise_seed: int = 0
    """Of the noise, so that a scan can be repeated with other noise."""

    def __post_init__(self) -> None:
        faults = []
        if self.n_slices < 1:
            faults.append(f"n_slices is {self.n_slices}, needs at least 1")
        if self.n_coils < 1:
            faults.append(f"n_coils is {self.n_coils}, needs at least 1")
        if min(self.matrix) < 2:
            faults.append(f"matrix is {self.matrix}, needs at least 2 x 2")
        if not min(self.fov_mm) > 0:
            faults.append(f"fov_mm is {self.fov_mm}, needs positive lengths")
        if not self.noise > 0:
            faults.append(f"noise is {self.noise}, needs to be positive")
        if not 0 <= self.noise_correlation < 1:
            faults.append(f"noise_correlation is {self.noise_correlation}, needs 0 <= value < 1")
        if self.pattern == "uniform" and self.acceleration != int(self.acceleration):
            faults.append(
                f"acceleration is {self.acceleration}, needs a whole number for the pattern 'uniform'"
            )
        if faults:
            raise ValueError("These scan settings cannot be: " + "; ".join(faults) + ".")

    @property
    def slice_positions_mm(self) -> tuple[float, ...]:
        """Height of every slice."""
        return tuple(self.first_slice_mm + i * self.slice_spacing_mm for i in range(self.n_slices))

    def lines(self, n_lines: int) -> NDArray[np.bool_]:
        """Measured lines out of ``n_lines``."""
        if self.pattern == "full":
            return np.ones(n_lines, dtype=np.bool_)
        if self.pattern == "uniform":
            return uniform_lines(
                n_lines, acceleration=int(self.acceleration), calibration_fraction=self.calibration_fraction
            )
        return random_lines(
            n_lines,
            acceleration=self.acceleration,
            calibration_fraction=self.calibration_fraction,
            seed=self.mask_seed,
        )
