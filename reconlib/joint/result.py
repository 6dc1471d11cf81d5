"""What the solvers of the joint problem report: progress, trace and result."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from reconlib.joint.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class JointProgress:
    """One iteration, for callers that watch; those of total variation that come first count, too."""

    iteration: int
    iterations: int
    n_active: int
    """Slices that still iterate."""


Watch = Callable[[JointProgress], None]


def between(watch: Watch | None, *, before: int, after: int) -> Watch | None:
    """Return what watches a part of the iterations, where some come before it and some after."""
    if watch is None:
        return None

    def watch_part(progress: JointProgress) -> None:
        watch(
            replace(
                progress,
                iteration=before + progress.iteration,
                iterations=before + progress.iterations + after,
            )
        )

    return watch_part


@dataclass(frozen=True, slots=True, kw_only=True)
class JointTrace:
    """What happened per iteration: float64 (iteration, slice), NaN after a slice stopped."""

    energy: Tensor
    """H + lambda R + mu F at the iterate."""
    image_lipschitz: Tensor
    coil_lipschitz: Tensor
    coil_magnitude: Tensor
    """Mean magnitude of the maps, weighted by the image."""
    relative_change: Tensor
    """Norm of the image's change over the image's norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointResult:
    """Image, maps, and how each slice ended."""

    image: Tensor
    """complex64 (slice, 1, y, x)"""
    coils: Tensor
    """complex64 (slice, coil, y, x)"""
    outcomes: tuple[Outcome, ...]
    n_iterations: tuple[int, ...]
    trace: JointTrace


@dataclass(slots=True)
class Recorder:
    """Collects a :class:`JointTrace`."""

    n_iterations: int
    n_slices: int
    tables: dict[str, Tensor] = field(default_factory=dict)

    def put(self, iteration: int, rows: Tensor, **columns: Tensor) -> None:
        """Note an iteration of the slices ``rows``; each column is (row,)."""
        for name, values in columns.items():
            table = self.tables.setdefault(
                name, torch.full((self.n_iterations, self.n_slices), torch.nan, dtype=torch.float64)
            )
            table[iteration, rows.cpu()] = values.detach().double().cpu()

    def trace(self, used: int) -> JointTrace:
        """Return the first ``used`` iterations."""
        empty = torch.zeros((0, self.n_slices), dtype=torch.float64)
        return JointTrace(**{name: self.tables.get(name, empty)[:used] for name in JointTrace.__slots__})
