"""Watches a run and says when it diverges."""

import math
import statistics
from dataclasses import dataclass
from typing import Any

from reconlib.training.settings import GuardSettings


class TrainingDiverged(ArithmeticError):
    """A run diverges whatever the step; the text says what was seen and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSeen:
    """What one update shows before its step is taken."""

    gradient_norm: float
    """Before clipping."""
    loss: float | None = None
    """Score-matching loss; a constant energy has 1."""
    gap: float | None = None
    """Mean R of the data minus mean R of the samples, per pixel, in units of T."""
    sample_range: tuple[float, float] | None = None
    """Smallest and largest pixel of the samples."""


class Guard:
    """Compares each update with fixed limits, and with the recent updates that were fine."""

    _memory = 100
    _needed = 20
    """So many updates make a median to compare with."""

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._recent: dict[str, list[float]] = {"gradient norm": [], "loss": []}

    def trouble(self, seen: UpdateSeen) -> str | None:
        """Return what is wrong, in words, or nothing; what is fine is remembered."""
        limits = self._settings
        values = {"gradient norm": seen.gradient_norm, "loss": seen.loss, "energy gap": seen.gap}
        for name, value in values.items():
            if value is not None and not math.isfinite(value):
                return f"the {name} is {value}"
        if seen.gap is not None:
            low, high = limits.gap_range
            if not low <= seen.gap <= high:
                return (
                    f"the energy gap is {seen.gap:.3g} T per pixel "
                    f"(guard.gap_range allows {low:g} to {high:g})"
                )
        if seen.sample_range is not None:
            low, high = limits.sample_range
            if not (low <= seen.sample_range[0] and seen.sample_range[1] <= high):
                return (
                    f"samples range from {seen.sample_range[0]:.3g} to {seen.sample_range[1]:.3g} "
                    f"(guard.sample_range allows {low:g} to {high:g})"
                )
        for name, recent in self._recent.items():
            value = values[name]
            if value is None or len(recent) < self._needed:
                continue
            median = statistics.median(recent)
            if value > limits.max_growth * median:
                return (
                    f"the {name} is {value:.3g}, {value / median:.3g} times its recent median "
                    f"(guard.max_growth allows {limits.max_growth:g})"
                )
        for name, recent in self._recent.items():
            value = values[name]
            if value is not None:
                recent.append(value)
                del recent[: -self._memory]
        return None

    def state(self) -> dict[str, Any]:
        """What :meth:`restore` needs."""
        return {name: list(recent) for name, recent in self._recent.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._recent = {name: list(recent) for name, recent in state.items()}
