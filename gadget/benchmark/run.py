"""A benchmark from start to end: rows that are kept as they are finished, then tables and pictures.

A row is kept under a key that holds all that it depends on: case, sizes, settings, prior, machine, threads,
versions and code. A run that was interrupted goes on; on another machine everything is measured anew.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch

from gadget.benchmark import parts, posterior, scaling, solvers
from gadget.benchmark.cases import BenchCase, CaseName, measured_case, simulated_case
from gadget.benchmark.machine import Facts, machine_facts
from gadget.benchmark.peers import Peer, bart_peers, measure_peer, missing_peers, sigpy_peers
from gadget.benchmark.report import Report, save_curves, write_report
from gadget.benchmark.sizes import Sizes
from gadget.benchmark.solvers import Problem
from gadget.kept_rows import SAMPLING, KeptRows, identity_of, identity_of_case, identity_of_code
from reconlib.evaluation.bart import Bart
from reconlib.evaluation.study import FullScan
from reconlib.evaluation.summary import Row
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import Prior
from reconlib.reconstruction import ReconstructionSettings

PART_REPEATS = 5
GROWTH = "growth"
CODE = (*SAMPLING, "simulation")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure."""

    sizes: Sizes
    cases: Sequence[CaseName]
    scans: Sequence[FullScan] = ()
    """Fully sampled ones; each is a case more, like ``brain``."""
    settings: ReconstructionSettings
    sampling: PosteriorSettings
    prior: Prior
    """Of all cases but ``paper``; on the device."""
    device: torch.device
    seed: int = 0
    with_peers: bool = False
    bart: Bart | None = None
    """Where it is installed."""

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """The cases, on the device."""
        made: list[BenchCase] = [
            simulated_case(name, self.sizes, self.prior, self.device) for name in self.cases
        ]
        made += [measured_case(scan, self.sizes, self.prior) for scan in self.scans]
        return {case.name: Problem.of(case, self.settings, self.device, self.seed) for case in made}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row: what it is about, what it depends on, and how it is measured."""

    section: str
    case: str
    about: str = ""
    depends_on: tuple[object, ...] = ()
    measure: Callable[[], Row]


def run_bench(
    folder: Path,
    plan: Plan,
    *,
    on_start: Callable[[int], None] = lambda _n: None,
    on_row: Callable[[Row], None] = lambda _row: None,
    watch: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Measure all of a plan; the folder gets ``results.md``, ``results.json``, ``scaling.png`` and the rows.

    What there is, is written after each row, so that nothing is lost where time runs out.
    ``watch`` is told what is being done, in words. A peer that fails leaves a row with the reason, and is
    tried again in the next run.
    """
    kept = KeptRows(folder)
    facts = machine_facts(plan.device)
    peers, missing = _peers(plan) if plan.with_peers else ([], [])
    tasks = list(_tasks(plan, peers, watch))
    on_start(len(tasks))
    about = {name: problem.case.about for name, problem in plan.problems.items()}
    report = Report(machine=facts, sizes=plan.sizes.name, cases=about, notes=tuple(missing))
    for done, task in enumerate(tasks, start=1):
        watch(f"{task.case}, {task.section} {task.about}".strip())
        row = kept.get(_key(plan, facts, task), partial(_measured, task))
        report = replace(report, rows=(*report.rows, row), unfinished=len(tasks) - done)
        write_report(folder, report)
        on_row(row)
    save_curves(folder, report)
    return report


def _tasks(plan: Plan, peers: Sequence[Peer], watch: Callable[[str], None]) -> Iterator[Task]:
    """Yield one case after another, then how cost grows; what matters most comes first."""
    sizes = plan.sizes
    for name, problem in plan.problems.items():
        yield Task(
            section="solvers",
            case=name,
            measure=partial(solvers.compare_solvers, problem, repeats=sizes.repeats, watch=watch),
        )
        for peer in peers if problem.case.has_image else ():
            yield Task(
                section="peers",
                case=name,
                about=peer.name,
                depends_on=(peer.identity,),
                measure=partial(measure_peer, peer, problem.case.case, repeats=sizes.repeats),
            )
        yield Task(
            section="parts",
            case=name,
            measure=partial(parts.time_parts, problem, repeats=PART_REPEATS * sizes.repeats),
        )
        for point in scaling.batches_of(problem, sizes):
            yield Task(section=point.axis, case=name, about=str(point.at), measure=point.measure)
        if problem.case.has_image and problem.case.case.at_points is None:
            yield Task(
                section="posterior",
                case=name,
                depends_on=(plan.sampling,),
                measure=partial(
                    posterior.time_to_agreement,
                    problem,
                    plan.sampling,
                    limit_s=sizes.posterior_limit_s,
                    watch=watch,
                ),
            )
    growth = scaling.growth_of(plan.settings, plan.prior, sizes, plan.device, seed=plan.seed)
    for point in growth:
        yield Task(section=point.axis, case=GROWTH, about=str(point.at), measure=point.measure)


def _peers(plan: Plan) -> tuple[list[Peer], list[str]]:
    """Return the peers that are here, and what to say about those that are not."""
    sigpy = sigpy_peers()
    found = [*(bart_peers(plan.bart) if plan.bart is not None else ()), *sigpy]
    return found, missing_peers(plan.bart, sigpy)


def _measured(task: Task) -> Row:
    return {"section": task.section, "case": task.case, "about": task.about} | task.measure()


def _key(plan: Plan, facts: Facts, task: Task) -> str:
    problem = plan.problems.get(task.case)
    case = None if problem is None else identity_of_case(problem.case.case)
    prior = plan.prior if problem is None else problem.case.prior
    identity = identity_of(
        case,
        prior.card,
        plan.sizes,
        plan.settings,
        plan.seed,
        facts,
        task.depends_on,
        identity_of_code(CODE),
        _own_code(),
    )
    return f"{task.section} {task.case} {task.about} {identity}"


def _own_code() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
