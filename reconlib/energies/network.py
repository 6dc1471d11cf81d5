"""A network as an energy: value and gradient, nothing computed twice."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, eq=False)
class NetworkEnergy:
    """An energy whose value is a network's output; the gradient is automatic differentiation's.

    ``network`` maps float32 images (slice, 1, y, x) to energies (slice,). Its weights are frozen: gradients
    are taken with respect to the image only.
    """

    network: nn.Module
    temperature: float

    def __post_init__(self) -> None:
        self.network.eval().requires_grad_(False)

    def value(self, image: Tensor, /) -> Tensor:
        """Energy (slice,) of a float32 image (slice, 1, y, x)."""
        with torch.no_grad():
            energy: Tensor = self.network(image)
        return energy

    def value_and_gradient(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        """Energy (slice,) and gradient, shaped as the image."""
        with torch.enable_grad():
            point = image.detach().requires_grad_(True)
            energy = self.network(point)
            (gradient,) = torch.autograd.grad(energy.sum(), point)
        return energy.detach(), gradient
