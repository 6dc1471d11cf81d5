"""How the cost of a slice grows: with slices at once, slices of a scan, coils, matrix and spokes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from gadget.benchmark.cases import BenchCase, head, measured_case, spokes_of
from gadget.benchmark.machine import load_now
from gadget.benchmark.sizes import Sizes
from gadget.benchmark.solvers import FAST, MEMORY_ITERATIONS, Problem
from gadget.benchmark.timing import peak_mib, spent_on
from reconlib.evaluation.summary import Row
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.priors.library import Prior
from reconlib.reconstruction import ReconstructionSettings

BATCH = "slices at once"
SCAN = "slices of a scan"
COILS, MATRIX, SPOKES = "coils", "matrix", "spokes"
AXES = (BATCH, SCAN, COILS, MATRIX, SPOKES)
SECONDS, MIB = "seconds per slice", "MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a curve."""

    axis: str
    at: int
    measure: Callable[[], Row]


def batches_of(problem: Problem, sizes: Sizes) -> Iterator[Point]:
    """Yield the case in batches: copies of its slice, side by side."""
    for n_slices in sizes.batches:
        yield Point(axis=BATCH, at=n_slices, measure=partial(_batch, problem, sizes, n_slices, 1))


def growth_of(
    settings: ReconstructionSettings,
    prior: Prior,
    sizes: Sizes,
    device: torch.device,
    *,
    seed: int,
) -> Iterator[Point]:
    """Yield points of all other curves, with the simulated head of the case ``brain`` and ``radial``."""
    n_y, n_x, n_coils = sizes.brain

    def on_grid(matrix: tuple[int, int], coils: int, n_slices: int, batch: int) -> Row:
        case = measured_case(head(matrix, coils), sizes, prior)
        return _batch(Problem.of(case, settings, device, seed), sizes, batch, n_slices)

    def radial(n_spokes: int) -> Row:
        case = BenchCase(
            name="radial",
            case=spokes_of(head(sizes.radial[:2], sizes.radial[2]), n_spokes),
            prior=prior,
            iterations=sizes.iterations,
        )
        return _batch(Problem.of(case, settings, device, seed), sizes, 1, 1)

    for n in sizes.slices:
        batch = min(n, sizes.scan_batch)
        yield Point(axis=SCAN, at=n, measure=partial(on_grid, (n_y, n_x), n_coils, n // batch, batch))
    for n in sizes.coils:
        yield Point(axis=COILS, at=n, measure=partial(on_grid, (n_y, n_x), n, 1, 1))
    for n in sizes.matrices:
        yield Point(axis=MATRIX, at=n, measure=partial(on_grid, (n, n), n_coils, 1, 1))
    for n in sizes.spokes:
        yield Point(axis=SPOKES, at=n, measure=partial(radial, n))


def _batch(problem: Problem, sizes: Sizes, batch: int, n_batches: int) -> Row:
    """Time some batches, one after another; the first of all warms up."""
    at_most = problem.iterations_of(FAST)
    iterations = min(sizes.batch_iterations or at_most, at_most)
    many = replace(problem, kspace=side_by_side(problem.kspace, batch))

    def run(iterations: int) -> None:
        for _ in range(n_batches):
            result = many.solve(FAST, iterations=iterations)
            result.image.cpu()

    few = min(MEMORY_ITERATIONS, iterations)
    many.solve(FAST, iterations=few)
    spent = spent_on(partial(run, iterations), many.device)
    mib = peak_mib(partial(run, few), many.device)
    n_slices = batch * n_batches
    row: Row = {
        "iterations": iterations,
        SECONDS: spent.seconds / n_slices,
        "CPU seconds per slice": spent.cpu_seconds / n_slices,
        "load": load_now(),
    }
    return row if mib is None else row | {MIB: mib}


def side_by_side(kspace: KSpace | NonuniformKSpace, n: int) -> KSpace | NonuniformKSpace:
    """Return n copies of a slice as a batch."""
    samples = kspace.samples.repeat(n, 1, *(1 for _ in kspace.samples.shape[2:]))
    if isinstance(kspace, KSpace):
        return replace(kspace, samples=samples, mask=kspace.mask.repeat(n, 1, 1, 1))
    return replace(kspace, samples=samples)
