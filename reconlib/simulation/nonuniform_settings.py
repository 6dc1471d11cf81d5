"""Along which lines a simulated scan runs through k-space: radial spokes or spirals."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reconlib.trajectories.angles import golden_angle, stepped_angles, uniform_angles
from reconlib.trajectories.radial import NO_SHIFT, SpokeShift, radial_points
from reconlib.trajectories.spiral import spiral_points

Shape = Literal["radial", "spiral"]
Order = Literal["uniform", "golden"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NonuniformSettings:
    """Readouts of a non-Cartesian scan. They cover the disc that touches the matrix's shorter range of k."""

    shape: Shape = "radial"
    n_readouts: int = 64
    """Spokes or interleaves that are measured."""
    order: Order = "uniform"
    """Angles spread evenly (over half a circle for spokes, a whole one for spirals), or golden ones."""
    golden_number: int = 1
    """Which of the tiny golden angles; 1 is the golden angle itself."""
    oversampling: float | int = 2.0
    """Samples per cycle per field of view along the readout."""
    n_full: int = 32
    """Interleaves (spirals only) that would sample k-space completely; fewer are an accelerated scan."""
    density: float | int = 1.0
    """Exponent of spirals, see :mod:`reconlib.trajectories.spiral`."""
    shift: SpokeShift = NO_SHIFT
    """Of spokes by gradient delays, in samples: what the scan's own points do not say (radial only)."""

    def __post_init__(self) -> None:
        faults = []
        if self.n_readouts < 1:
            faults.append(f"n_readouts is {self.n_readouts}, needs at least 1")
        if self.golden_number < 1:
            faults.append(f"golden_number is {self.golden_number}, needs at least 1")
        if not self.oversampling >= 1:
            faults.append(f"oversampling is {self.oversampling}, needs at least 1")
        if self.n_full < 1:
            faults.append(f"n_full is {self.n_full}, needs at least 1")
        if not self.density > 0:
            faults.append(f"density is {self.density}, needs to be positive")
        if self.shape == "spiral" and self.shift != NO_SHIFT:
            faults.append("shift is that of spokes, but the shape is 'spiral'")
        if faults:
            raise ValueError("These readouts cannot be: " + "; ".join(faults) + ".")

    @property
    def angles(self) -> NDArray[np.float64]:
        """Of the readouts, in rad."""
        if self.order == "golden":
            # A spoke is its own opposite, an interleave is not: it has the whole circle to itself.
            circle = 2.0 if self.shape == "spiral" else 1.0
            return stepped_angles(self.n_readouts, circle * golden_angle(self.golden_number))
        return uniform_angles(self.n_readouts, full_circle=self.shape == "spiral")

    def full_readouts(self, matrix: tuple[int, int]) -> int:
        r"""Readouts that sample k-space completely: for spokes :math:`\pi / 2` times the matrix."""
        return self.n_full if self.shape == "spiral" else math.ceil(0.5 * math.pi * max(matrix))

    def points(
        self, matrix: tuple[int, int], fov_mm: tuple[float, float], *, shifted: bool = False
    ) -> NDArray[np.float64]:
        """Return (readout, sample, 2), (kx, ky) in cycles per field of view; ``shifted``: as they really lie.

        Lines are straight, and circles round, in cycles per mm.
        """
        smallest = min(n / fov for n, fov in zip(matrix, fov_mm, strict=True))
        # All in cycles per field of view along x, along which a spoke is as oversampled as asked.
        side = fov_mm[1]
        k_max = 0.5 * smallest * side
        if self.shape == "radial":
            n_samples = max(2, 2 * math.floor(self.oversampling * k_max + 1e-6))
            points = radial_points(
                self.angles,
                n_samples,
                spacing=1.0 / self.oversampling,
                shift=self.shift if shifted else NO_SHIFT,
            )
        else:
            n_turns = k_max / self.n_full
            n_samples = max(2, math.ceil(self.oversampling * math.pi * n_turns * k_max))
            points = spiral_points(
                self.n_readouts,
                n_samples,
                k_max=k_max,
                n_turns=n_turns,
                density=self.density,
                angles=self.angles,
            )
        scaled: NDArray[np.float64] = points * (np.array([fov_mm[1], fov_mm[0]]) / side)
        return scaled
