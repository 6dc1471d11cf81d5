"""How the learning rate and the length of the chains depend on the update."""

import math

from reconlib.training.settings import MaximumLikelihoodSettings, OptimiserSettings


def learning_rate(settings: OptimiserSettings, update: int, n_updates: int) -> float:
    """Learning rate of an update (0, 1, ...): a linear rise, then cosine, milestones or a constant."""
    rate = settings.learning_rate
    if update < settings.warmup_updates:
        return rate * (update + 1) / settings.warmup_updates
    if settings.schedule == "cosine":
        done = (update - settings.warmup_updates) / max(1, n_updates - settings.warmup_updates)
        return rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    passed = sum(milestone <= update for milestone in settings.milestones)
    return float(rate * settings.milestone_factor**passed)


def langevin_steps(settings: MaximumLikelihoodSettings, update: int) -> int:
    """Length of the chains at an update: ``ceil(most (1 - exp(-update / growth)))``, at least ``least``."""
    grown = math.ceil(settings.most_steps * -math.expm1(-update / settings.growth_updates))
    return max(settings.least_steps, grown)
