"""Smooth random functions of the position in space, from which simulated anatomy and phase are made."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RandomField:
    r"""A smooth random function of the position, zero mean and unit variance: a sum of random plane waves.

    .. math:: f(r) = \sqrt{2 / n} \sum_i \cos(2 \pi k_i \cdot r + \varphi_i)

    It is defined at every point, so one field gives the same structure at any matrix size, and neighbouring
    slices change smoothly.
    """

    wave_vectors: Tensor
    """float64 (wave, dimension), cycles per unit of length."""
    phases: Tensor
    """float64 (wave,)."""

    @classmethod
    def draw(
        cls,
        wavelength: float,
        *,
        generator: torch.Generator,
        n_dimensions: int = 3,
        n_waves: int = 96,
        bandwidth: float = 0.25,
    ) -> "RandomField":
        """Draw a field whose structures repeat about every ``wavelength`` (in units of length).

        ``bandwidth`` is the relative spread of the wavelengths: 0.1 gives labyrinths, 1 gives clouds.
        """
        if not wavelength > 0:
            raise ValueError(
                f"A random field with the wavelength {wavelength} has no scale; it must be positive."
            )
        direction = torch.randn(n_waves, n_dimensions, generator=generator, dtype=torch.float64)
        direction = direction / direction.norm(dim=1, keepdim=True)
        spread = torch.randn(n_waves, 1, generator=generator, dtype=torch.float64)
        frequency = (1.0 + bandwidth * spread).abs().clamp(min=0.05) / wavelength
        phases = 2.0 * math.pi * torch.rand(n_waves, generator=generator, dtype=torch.float64)
        return cls(direction * frequency, phases)

    def __call__(self, *position: Tensor) -> Tensor:
        """Values at the positions, one tensor per dimension with shapes that broadcast; float32."""
        if len(position) != self.wave_vectors.shape[1]:
            raise ValueError(
                f"This field has {self.wave_vectors.shape[1]} dimensions; {len(position)} coordinates came."
            )
        coordinates = [axis.to(torch.float32) for axis in position]
        total = torch.zeros(np.broadcast_shapes(*(axis.shape for axis in position)))
        for wave, phase in zip(
            (2.0 * math.pi * self.wave_vectors).tolist(), self.phases.tolist(), strict=True
        ):
            argument = torch.full_like(total, phase)
            for axis, factor in zip(coordinates, wave, strict=True):
                argument.add_(axis, alpha=factor)
            total.add_(argument.cos_())
        return total * math.sqrt(2.0 / len(self.phases))
