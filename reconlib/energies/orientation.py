"""An energy that sees the image turned."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy


@dataclass(frozen=True, slots=True, eq=False)
class OrientedEnergy:
    r"""``R(P x)``, where P exchanges x and y (if ``transpose``) and then turns by quarter turns.

    P permutes pixels, so the gradient is :math:`P^T \nabla R(P x)`. A quarter turn is that of
    ``torch.rot90`` over (y, x): counter-clockwise where y points down.
    """

    energy: Energy
    quarter_turns: int = 0
    transpose: bool = False

    @property
    def temperature(self) -> float:
        """T in the density ``exp(-R / T)``."""
        return self.energy.temperature

    def value(self, image: Tensor, /) -> Tensor:
        """Energy (slice,) of a float32 image (slice, 1, y, x)."""
        return self.energy.value(self._turned(image))

    def value_and_gradient(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        """Energy (slice,) and gradient, shaped as the image."""
        value, gradient = self.energy.value_and_gradient(self._turned(image))
        gradient = torch.rot90(gradient, -self.quarter_turns, dims=(-2, -1))
        return value, (gradient.mT if self.transpose else gradient).contiguous()

    def _turned(self, image: Tensor) -> Tensor:
        image = image.mT if self.transpose else image
        return torch.rot90(image, self.quarter_turns, dims=(-2, -1)).contiguous()
