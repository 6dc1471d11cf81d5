"""The result of sampling: mean and standard deviation, and how far they can be trusted."""

from dataclasses import dataclass

from torch import Tensor

from reconlib.posterior.outcome import PosteriorOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Moments of the posterior of a batch of slices; tuples hold one entry per slice.

    Mean and std hold NaN in slices with fewer than two draws per chain and in those that ended not finite;
    zero in all-zero slices.
    """

    mean: Tensor
    """complex64 (slice, 1, y, x) on the output grid, in the units of the samples; show its magnitude."""
    std: Tensor
    """float32 (slice, 1, y, x), same units: standard deviation of the part of the image that has the phase of
    the mean, times ``std_factor``."""
    outcomes: tuple[PosteriorOutcome, ...]
    n_chains: int
    n_draws: int
    """Kept images per chain."""
    worst_rhat: tuple[float, ...]
    """Largest split R-hat of the statistics that are watched; NaN where unknown."""
    smallest_ess: tuple[float, ...]
    """Smallest effective number of draws, all chains together; NaN where unknown."""
    sigma: tuple[float, ...]
    """Noise per real component, in scaled units (the samples times the reconstruction's scale)."""
    effective_temperature: tuple[float, ...]
    """sigma^2 / lambda: the prior's temperature, unless a factor or a floor of lambda was active."""
    std_factor: float
    """The card's correction of the width; it is in ``std``."""
    sampler: str
    seconds: float
    """Spent sampling, pauses not counted."""
    acceptance: tuple[float, ...] | None
    """Share of accepted proposals after the warm-up; None for samplers that accept all."""
