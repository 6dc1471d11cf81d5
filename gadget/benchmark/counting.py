"""How often a solver asks its prior."""

import copy
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.priors.library import Prior


@dataclass(slots=True)
class Count:
    """Evaluations of a prior's energy, each of all slices of a batch."""

    gradients: int = 0
    """With the value, which comes with it."""
    values: int = 0
    """Of the value alone."""


def counted(prior: Prior) -> tuple[Prior, Count]:
    """Return the prior with an energy that counts, and its count."""
    count = Count()
    return replace(prior, energy=_counting(prior.energy, count)), count


def _counting(energy: Energy, count: Count) -> Energy:
    """Return a copy that counts, of a class below the energy's own: solvers tell kinds of energy apart."""
    kind: type[Any] = type(energy)

    def value(_self: Energy, image: Tensor, /) -> Tensor:
        count.values += 1
        return energy.value(image)

    def value_and_gradient(_self: Energy, image: Tensor, /) -> tuple[Tensor, Tensor]:
        count.gradients += 1
        return energy.value_and_gradient(image)

    methods = {"__slots__": (), "value": value, "value_and_gradient": value_and_gradient}
    twin: Energy = copy.copy(energy)
    object.__setattr__(twin, "__class__", type(kind.__name__, (kind,), methods))
    return twin
