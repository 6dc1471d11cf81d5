"""The parts of an iteration, each timed alone: what a whole iteration can at best cost."""

from collections.abc import Callable
from functools import partial

import torch

from gadget.benchmark.machine import load_now
from gadget.benchmark.objective import data_term
from gadget.benchmark.solvers import FAST, SOLVERS, Problem
from gadget.benchmark.timing import Spent, least_spent
from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.view import draw_view
from reconlib.evaluation.summary import Row
from reconlib.joint.image_model import ImageModel
from reconlib.joint.solving import Solver
from reconlib.reconstruction import coil_smoothness

GRADIENT, VALUE = "network gradient", "network value"
TRANSFORM, PROX, LINE_SEARCH = "coil transform", "coil prox", "line search"
TO_DEVICE, FROM_DEVICE = "to the device", "from the device"
TRANSFORMS_PER_ITERATION = 6
"""FFTs of all coils in an iteration of Algorithm 1: two for the gradient and one for the decrease test, of
each block."""
SUM = "sum of an iteration, ms"
START_ITERATIONS = 3
ITERATIONS = 4, 20
"""Of the two reconstructions whose difference gives the time of an iteration."""
ROUNDS = 3
"""In each of which all parts and all reconstructions are timed: a machine is not as fast at all times."""


def time_parts(problem: Problem, *, repeats: int) -> Row:
    """Time the parts and whole iterations in turns, milliseconds each.

    ``network gradient`` comes with the value, ``network value`` is that alone; ``coil transform`` is one FFT
    of all coils (off the grid half of A^H A); ``line search`` is one attempt at a step of the image: network
    value, coil transform, norms. Copies are measured where there is a device to copy to.
    """
    prior, kspace, device = problem.case.prior, problem.kspace, problem.device
    start = problem.solve(FAST, iterations=START_ITERATIONS)
    image, coils = start.image * start.scale[0], start.coils
    card = prior.card
    view = draw_view(
        (image.shape[-2], image.shape[-1]),
        torch.Generator().manual_seed(0),
        device,
        noise_std=card.gradient_noise_std,
        symmetric=card.symmetric_views,
    )
    model = ImageModel(
        start.image_phase,
        prior.energy,
        torch.tensor(start.prior_weight, dtype=torch.float64, device=device),
        torch.tensor(start.noise_level, dtype=torch.float64, device=device),
        signed=card.input.values == "signed",
    )
    data = data_term(kspace)
    smoothness = CoilSmoothness(coil_smoothness(problem.settings, card, image.shape))
    seen, coil_images, step = image.real.contiguous(), coils * image, torch.ones(1, device=device)
    runs: dict[str, Callable[[], object]] = {
        GRADIENT: lambda: prior.energy.value_and_gradient(seen),
        VALUE: lambda: prior.energy.value(seen),
        TRANSFORM: lambda: data.gradient(coil_images),
        PROX: lambda: smoothness.prox(coils, step),
        LINE_SEARCH: lambda: (model.value(image, view), data.half_norm(coils * image)),
    }
    if device.type != "cpu":
        waiting = problem.case.case.kspace
        runs[TO_DEVICE] = lambda: waiting.to(device)
        runs[FROM_DEVICE] = lambda: (start.image.cpu(), start.coils.cpu())
    whole = _reconstructions(problem)
    spent: dict[str, Spent] = {}
    for _ in range(ROUNDS):
        found = least_spent(runs, device, repeats=repeats) | least_spent(whole, device, repeats=1)
        spent = {name: one.least(spent.get(name, one)) for name, one in found.items()}
    spent[TRANSFORM] = Spent(spent[TRANSFORM].seconds / 2, spent[TRANSFORM].cpu_seconds / 2)  # there and back
    row: Row = {f"{name}, ms": 1000 * spent[name].seconds for name in runs}
    least = sum_of_iteration(spent)
    row |= {SUM: 1000 * least.seconds, f"{SUM} (CPU)": 1000 * least.cpu_seconds}
    for solver in SOLVERS:
        shorter, longer = _iterations(problem, solver)
        if longer > shorter:
            short, long = (spent[_name(solver, n)] for n in (shorter, longer))
            wall = (long.seconds - short.seconds) / (longer - shorter)
            cpu = (long.cpu_seconds - short.cpu_seconds) / (longer - shorter)
            row |= {
                f"{solver}: iteration, ms": 1000 * wall,
                f"{solver}: iteration, ms (CPU)": 1000 * cpu,
                f"{solver}: iteration over the sum": wall / least.seconds,
                f"{solver}: iteration over the sum (CPU)": cpu / least.cpu_seconds,
            }
    return row | {"load": load_now()}


def sum_of_iteration(spent: dict[str, Spent]) -> Spent:
    """Return what an iteration needs at least: R and its gradient, R once more, transforms, a coil prox."""
    needed = {GRADIENT: 1, VALUE: 1, TRANSFORM: TRANSFORMS_PER_ITERATION, PROX: 1}
    return Spent(
        sum(n * spent[name].seconds for name, n in needed.items()),
        sum(n * spent[name].cpu_seconds for name, n in needed.items()),
    )


def _reconstructions(problem: Problem) -> dict[str, Callable[[], object]]:
    """Return a shorter and a longer reconstruction by each solver."""
    return {
        _name(solver, n): partial(problem.solve, solver, iterations=n)
        for solver in SOLVERS
        for n in _iterations(problem, solver)
    }


def _iterations(problem: Problem, solver: Solver) -> tuple[int, int]:
    shorter, longer = (min(n, problem.iterations_of(solver)) for n in ITERATIONS)
    return shorter, longer


def _name(solver: Solver, iterations: int) -> str:
    return f"{solver}, {iterations} iterations"
