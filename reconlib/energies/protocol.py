"""What the solvers ask of an energy."""

from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Energy(Protocol):
    """A differentiable energy of a batch of real images, one value per slice.

    ``temperature`` T says what the energy means: ``exp(-value / T)`` is the (unnormalised) density of images.
    """

    @property
    def temperature(self) -> float:
        """T in the density ``exp(-R / T)``."""
        ...

    def value(self, image: Tensor, /) -> Tensor:
        """Energy of a float32 image (slice, 1, y, x); returns (slice,)."""
        ...

    def value_and_gradient(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        """Energy (slice,) and its gradient, shaped as the image."""
        ...


@runtime_checkable
class ProximableEnergy(Protocol):
    """An energy of the coil maps whose proximal map has a closed form."""

    def value(self, point: Tensor, /) -> Tensor:
        """Energy of complex maps (slice, coil, y, x); returns (slice,)."""
        ...

    def prox(self, point: Tensor, step: Tensor, /) -> Tensor:
        """Minimise ``step * value(x) + |x - point|^2 / 2`` for each slice; ``step`` has shape (slice,)."""
        ...
