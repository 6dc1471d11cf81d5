"""The joint reconstruction by each solver: time, evaluations, memory, and what was reached with them.

``paper`` is the reference: Algorithms 1 and 2. Every other solver is measured against it in the same run, by
the same objective (:mod:`gadget.benchmark.objective`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import torch

from gadget.benchmark.cases import BenchCase
from gadget.benchmark.counting import counted
from gadget.benchmark.machine import load_now
from gadget.benchmark.objective import Objective
from gadget.benchmark.timing import Spent, peak_mib, spent_on
from reconlib.evaluation.metrics import fit_scale, psnr, ssim
from reconlib.evaluation.summary import Row
from reconlib.joint.solving import Solver
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.priors.library import Prior
from reconlib.reconstruction import (
    Reconstruction,
    ReconstructionSettings,
    iterations_of,
    reconstruct,
)

REFERENCE: Solver = "paper"
FAST: Solver = "fast"
SOLVERS = (REFERENCE, FAST)
MEMORY_ITERATIONS = 3
"""Every iteration takes the same memory."""
ROUNDING = 1e-6
"""Relative: objectives closer than this are equal in float32."""

Watch = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A case on its device, with the settings that all solvers have in common."""

    case: BenchCase
    kspace: KSpace | NonuniformKSpace
    """On the device."""
    settings: ReconstructionSettings
    seed: int = 0

    @staticmethod
    def of(
        case: BenchCase, settings: ReconstructionSettings, device: torch.device, seed: int = 0
    ) -> "Problem":
        """Move a case to a device; where the settings leave iterations open, the case may say them."""
        own = replace(settings, iterations=settings.iterations or case.iterations)
        return Problem(case, case.case.kspace.to(device), own, seed)

    @property
    def device(self) -> torch.device:
        """Where it is solved."""
        return self.kspace.samples.device

    def settings_of(self, solver: Solver) -> ReconstructionSettings:
        """Return the settings for a solver."""
        return replace(self.settings, solver=solver)

    def iterations_of(self, solver: Solver) -> int:
        """Return how many iterations a solver makes at most."""
        return iterations_of(self.settings_of(solver))

    def solve(
        self, solver: Solver, *, iterations: int | None = None, prior: Prior | None = None
    ) -> Reconstruction:
        """Reconstruct; with fewer iterations, or another prior, where given."""
        settings = self.settings_of(solver)
        if iterations is not None:
            settings = replace(settings, iterations=iterations)
        return reconstruct(self.kspace, prior=prior or self.case.prior, settings=settings, seed=self.seed)


def compare_solvers(problem: Problem, *, repeats: int, watch: Watch = lambda _text: None) -> Row:
    """Measure the reference and the default solver one after the other; keys begin with the solver's name."""
    row: Row = {"load": load_now()}
    objective: Objective | None = None
    reference: Reconstruction | None = None
    for solver in SOLVERS:
        watch(f"{problem.case.name}, {solver}")
        prior, count = counted(problem.case.prior)
        result = problem.solve(solver, prior=prior)  # counts, and warms up what is timed below
        gradients, values = count.gradients, count.values
        if objective is None or reference is None:
            reference = result
            objective = Objective.like(
                result, problem.kspace, prior=problem.case.prior, settings=problem.settings
            )
        reached = objective.of(result)[0]
        spent, mib = _times(problem, solver, repeats)
        found: Row = {
            "seconds": spent.seconds,
            "CPU seconds": spent.cpu_seconds,
            "iterations": result.n_iterations[0],
            "network gradients": gradients,
            "network values": values,
            "ms per iteration": 1000 * spent.seconds / max(1, result.n_iterations[0]),
            "objective": reached,
            "outcome": result.outcomes[0].value,
        }
        if mib is not None:
            found["MiB"] = mib
        if problem.case.has_image:
            found |= quality(problem.case, result)
        if result is not reference:
            found["PSNR against paper"] = likeness(result, reference)
            found |= _to_the_objective(problem, solver, objective, objective.of(reference)[0], watch)
        row |= {f"{solver}: {name}": value for name, value in found.items()}
    for times in ("seconds", "CPU seconds"):
        ratio = float(row[f"{REFERENCE}: {times}"]) / float(row[f"{FAST}: {times}"])
        row[f"{FAST}: times faster ({times})"] = ratio
    return row


def quality(case: BenchCase, result: Reconstruction) -> Row:
    """PSNR in dB and SSIM against the truth, after one scale fit."""
    reference, image = case.case.reference, case.case.in_view(result.image).abs().cpu()
    image = image.double() * fit_scale(image, reference)
    return {"PSNR": float(psnr(image, reference)), "SSIM": float(ssim(image, reference))}


def likeness(result: Reconstruction, reference: Reconstruction) -> float:
    """PSNR in dB of one solver's image against the other's; infinite where they are the same."""
    return float(psnr(result.image.abs().cpu(), reference.image.abs().cpu()))


def _times(problem: Problem, solver: Solver, repeats: int) -> tuple[Spent, float | None]:
    """Return the least that some runs took, and the memory of a short one."""
    runs = [spent_on(lambda: problem.solve(solver), problem.device) for _ in range(repeats)]
    few = min(problem.iterations_of(solver), MEMORY_ITERATIONS)
    mib = peak_mib(lambda: problem.solve(solver, iterations=few), problem.device)
    return reduce(Spent.least, runs), mib


def _to_the_objective(
    problem: Problem, solver: Solver, objective: Objective, target: float, watch: Watch
) -> Row:
    """Search for the fewest iterations with which a solver is as low as the reference.

    A run with k iterations is taken to be what a longer one is after k of them, or as good.
    """
    gradients: dict[int, int] = {}

    def reaches(iterations: int) -> bool:
        watch(f"{problem.case.name}, {solver}: {iterations} iterations to the objective?")
        prior, count = counted(problem.case.prior)
        result = problem.solve(solver, iterations=iterations, prior=prior)
        gradients[iterations] = count.gradients
        return objective.of(result)[0] <= target + ROUNDING * abs(target)

    fewest = fewest_that(reaches, problem.iterations_of(solver))
    if fewest is None:
        return {"iterations to paper's objective": "not reached"}
    return {
        "iterations to paper's objective": fewest,
        "gradients to paper's objective": gradients[fewest],
    }


def fewest_that(reaches: Callable[[int], bool], most: int) -> int | None:
    """Return, by halving, the least of 1 to ``most`` that reaches a goal; None where ``most`` does not.

    Whatever is above one that reaches it is taken to reach it, too.
    """
    if not reaches(most):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle + 1, high)
    return high
