"""How long it takes to sample a posterior: until the chains agree."""

import math

from gadget.benchmark.machine import load_now
from gadget.benchmark.solvers import FAST, Problem, Watch
from gadget.benchmark.timing import spent_on
from reconlib.evaluation.summary import Row
from reconlib.posterior.run import PosteriorRun
from reconlib.posterior.settings import PosteriorSettings

AGREED = 1.05
"""R-hat below which chains agree."""
CHECK_EVERY = 20
"""Draws from one look at R-hat to the next."""


def time_to_agreement(
    problem: Problem, sampling: PosteriorSettings, *, limit_s: float, watch: Watch = lambda _text: None
) -> Row:
    """Sample one slice until R-hat of all watched statistics is below 1.05, or time is up.

    The search for the step and the steps that are not used are in the time.
    """
    found = problem.solve(FAST)
    run = PosteriorRun(
        problem.kspace,
        found,
        prior=problem.case.prior,
        settings=sampling,
        solver=problem.settings_of(FAST),
        seed=problem.seed,
    )
    seconds = cpu_seconds = 0.0
    rhat = math.inf
    while seconds < limit_s and not rhat < AGREED:
        more: list[bool] = []
        spent = spent_on(lambda: more.append(run.advance()), problem.device)  # noqa: B023 - called at once
        seconds, cpu_seconds = seconds + spent.seconds, cpu_seconds + spent.cpu_seconds
        if not more[0]:
            break
        if run.n_kept and run.n_kept % CHECK_EVERY == 0:
            rhat = run.result().worst_rhat[0]
            watch(f"{problem.case.name}, posterior: R-hat {rhat:.2f} after {seconds:.0f} s")
    result = run.result()
    rhat = result.worst_rhat[0]
    row: Row = {
        "chains": result.n_chains,
        "draws": result.n_draws,
        "R-hat": rhat if math.isfinite(rhat) else "none yet",
        "effective draws": result.smallest_ess[0] if math.isfinite(result.smallest_ess[0]) else "none yet",
        "seconds": seconds,
        "CPU seconds": cpu_seconds,
        "agreed": "yes" if rhat < AGREED else "no",
    }
    return row | {"load": load_now()}
