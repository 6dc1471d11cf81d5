"""How often a solver asks its prior: the energy, wrapped."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.priors.library import Prior


@dataclass(slots=True)
class Count:
    """Evaluations of a prior's network, each of all slices of a batch."""

    gradients: int = 0
    """With the value, which comes with it."""
    values: int = 0
    """Of the value alone."""


class CountingEnergy:
    """An energy that counts; whatever else an energy may have is passed on."""

    def __init__(self, energy: Energy, count: Count) -> None:
        self._energy = energy
        self._count = count

    @property
    def temperature(self) -> float:
        """That of the energy."""
        return self._energy.temperature

    def value(self, image: Tensor, /) -> Tensor:
        """Count, and return the value."""
        self._count.values += 1
        return self._energy.value(image)

    def value_and_gradient(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        """Count, and return value and gradient."""
        self._count.gradients += 1
        return self._energy.value_and_gradient(image)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._energy, name)


def counted(prior: Prior) -> tuple[Prior, Count]:
    """Return the prior with an energy that counts, and its count."""
    count = Count()
    return replace(prior, energy=CountingEnergy(prior.energy, count)), count
