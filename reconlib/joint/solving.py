r"""Solving a joint problem from its start, by either solver.

**The start of total variation.** A prior that learned what noise looks like at one level knows little of the
aliasing of a first image, which is far larger: its gradient takes dozens of steps to remove it, each of them
a network's gradient. Total variation of the same image removes most of it in a few steps that cost next to
nothing, so the ``fast`` solver begins with :data:`START_ITERATIONS` of them. On four simulated scans of heads
with 4-fold sampling, 16 iterations from there ended 3 to 7 dB higher than 16 from the first image, and 0 to
2.3 dB higher than 32, which take as long. After 6 of total variation some aliasing of bright scalp stayed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.data_consistency import DataTerm
from reconlib.joint.image_model import ImageModel
from reconlib.joint.ipalm import IpalmSettings, ipalm
from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointResult, Watch, between
from reconlib.joint.split_solver import SplitSettings, split_solve

Solver = Literal["fast", "paper"]
ITERATIONS: dict[Solver, int] = {"fast": 24, "paper": 100}
START_ITERATIONS = 10
START_COIL_STEPS = 2
"""Of conjugate gradients, in each coil step of the start. In place of 3: 7 % of the whole time, and 0.00 and
0.01 dB on eight simulated scans each with Cartesian 4-fold and Gaussian 8-fold sampling."""
START_WEIGHT = 0.1
"""lambda of total variation in the start, times the noise level: that of the prior ``total-variation``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointProblem:
    """All of a joint problem but the data, which may change (:mod:`~reconlib.joint.sample_trust`)."""

    solver: Solver
    model: ImageModel
    smoothness: CoilSmoothness
    noise_level: Tensor
    """sigma: float64 (slice,)"""
    image: Tensor
    """The start, scaled to about 1."""
    coils: Tensor
    is_close: bool
    """The start is near the result."""
    estimate_coils: bool
    gradient_noise_std: float
    symmetric_views: bool
    tolerance: float
    seed: int
    out_of_time: Callable[[], bool]

    @property
    def n_start(self) -> int:
        """Iterations of total variation that come first."""
        needs = self.solver == "fast" and not self.is_close
        return START_ITERATIONS if needs and not isinstance(self.model.energy, TotalVariation) else 0

    def started(self, first: JointResult) -> "JointProblem":
        """Return the problem with its start solved."""
        return replace(self, image=first.image, coils=first.coils, is_close=True)

    def solve(
        self,
        data: DataTerm,
        iterations: int,
        on_iteration: Watch | None = None,
    ) -> JointResult:
        """Solve; an estimate that ran out of time in its start has made no iteration."""
        if self.n_start:
            first = self.start(data, between(on_iteration, before=0, after=iterations))
            if Outcome.OUT_OF_TIME in first.outcomes:
                return first
            watch = between(on_iteration, before=self.n_start, after=0)
            return self.started(first).solve(data, iterations, watch)
        common: dict[str, Any] = {
            "iterations": iterations,
            "tolerance": self.tolerance,
            "estimate_coils": self.estimate_coils,
            "gradient_noise_std": self.gradient_noise_std,
            "symmetric_views": self.symmetric_views,
        }
        start: dict[str, Any] = {
            "initial_image": self.image,
            "initial_coils": self.coils,
            "generator": torch.Generator().manual_seed(self.seed),
            "out_of_time": self.out_of_time,
            "on_iteration": on_iteration,
        }
        problem = data, self.model, self.smoothness
        if self.solver == "fast":
            return split_solve(*problem, settings=SplitSettings(**common), **start)
        return ipalm(*problem, settings=IpalmSettings(**common), **start)

    def start(self, data: DataTerm, on_iteration: Watch | None = None) -> JointResult:
        """Return the estimate after :data:`START_ITERATIONS` of total variation, which count as none."""
        first = split_solve(
            data,
            replace(self.model, energy=TotalVariation(), weight=START_WEIGHT * self.noise_level, signed=True),
            self.smoothness,
            initial_image=self.image,
            initial_coils=self.coils,
            settings=SplitSettings(
                iterations=START_ITERATIONS,
                coil_steps=START_COIL_STEPS,
                averaged=0.0,
                estimate_coils=self.estimate_coils,
            ),
            generator=torch.Generator(),
            out_of_time=self.out_of_time,
            on_iteration=on_iteration,
        )
        return replace(first, n_iterations=(0,) * len(first.n_iterations))
