"""What a user may choose about the sampling of the posterior."""

from dataclasses import dataclass
from typing import Literal, get_args

SamplerName = Literal["kinetic", "langevin", "mala", "sk-rock"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorSettings:
    """How to sample; every chain makes ``warmup + draws * thin`` steps."""

    sampler: SamplerName = "kinetic"
    chains: int = 2
    """Chains per slice; with several, chains that have not met show in R-hat."""
    warmup: int = 40
    """Steps of each chain that are not used."""
    draws: int = 1000
    """Images that are kept of each chain."""
    thin: int = 1
    """Steps from one kept image to the next."""

    def __post_init__(self) -> None:
        if self.sampler not in get_args(SamplerName):
            raise ValueError(
                f"there is no sampler {self.sampler!r}; take one of {', '.join(get_args(SamplerName))}."
            )
        for name, smallest in (("chains", 1), ("warmup", 0), ("draws", 1), ("thin", 1)):
            if getattr(self, name) < smallest:
                raise ValueError(
                    f"PosteriorSettings.{name} is {getattr(self, name)}; it must be at least {smallest}."
                )
