"""What the solvers ask of a linear operator."""

from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class ForwardOperator(Protocol):
    """A linear map with its exact adjoint: ``<A u, v> == <u, A^H v>`` for all u and v."""

    def forward(self, image: Tensor, /) -> Tensor:
        """Image to samples."""
        ...

    def adjoint(self, samples: Tensor, /) -> Tensor:
        """Samples to image."""
        ...
