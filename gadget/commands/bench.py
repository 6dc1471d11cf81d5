"""``bench``: where the time goes, what it buys, and what others need for the same image."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gadget.commands.options import Config, Device, PriorName, Seed, Set, settings_of, use_threads

if TYPE_CHECKING:
    from gadget.benchmark.cases import CaseName


def bench(
    scans: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SCAN]...",
            help="Fully sampled scans (as of `evaluate`), each a case of its own: 4-fold lines of its middle "
            "slice. Default: simulated heads only.",
            exists=True,
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            metavar="paper|brain|radial",
            help="paper: 640 x 372, 15 coils, the paper's network with random weights; brain: 256 x 256, 8 "
            "coils; radial: the same off the grid. Repeatable. Default: all, or none beside SCAN.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where rows, tables and the picture are kept.")
    ] = Path("bench"),
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: some minutes on two cores.")] = False,
    peers: Annotated[
        bool,
        typer.Option("--peers", help="Also time BART and sigpy, where they are installed."),
    ] = False,
    config: Config = None,
    prior: PriorName = None,
    set_: Set = None,
    device: Device = None,
    seed: Seed = None,
) -> None:
    """Time the reconstruction, its parts and its solvers; compare what they reach, and what others do.

    Prints tables; the folder gets results.md, results.json and scaling.png. Rows are kept in rows.jsonl: a
    run that was interrupted goes on where it stopped. Times are of this machine: leave it alone while it
    runs. Peers have their best weight, chosen with the truth in hand ("oracle"); that choice is not in their
    time.
    """
    names = _named(case or [])
    settings = settings_of(config, prior=prior, set_=set_, device=device, seed=seed)

    from gadget.benchmark.cases import CASES
    from gadget.benchmark.run import Plan, run_bench
    from gadget.benchmark.sizes import CPU, GPU, QUICK
    from gadget.commands.bench_progress import rows_on_terminal
    from gadget.evaluation_inputs import read_full_scans, with_names_of_their_own
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.reconstructor import Reconstructor, reconstruction_settings, sampling_settings
    from reconlib.evaluation.bart import Bart

    use_threads(settings)
    with prior_faults_as_settings_faults():
        reconstructor = Reconstructor(settings.device)
        loaded = reconstructor.load(settings)
    found = [scan for path in scans or () for scan in read_full_scans(path, settings, n_slices=1)]
    sizes = QUICK if quick else GPU if reconstructor.device.type == "cuda" else CPU
    plan = Plan(
        sizes=sizes,
        cases=names or ([] if found else list(CASES)),
        scans=with_names_of_their_own(found),
        settings=reconstruction_settings(settings),
        sampling=sampling_settings(settings),
        prior=loaded,
        device=reconstructor.device,
        seed=settings.seed,
        with_peers=peers,
        bart=Bart.find() if peers else None,
    )
    with rows_on_terminal() as progress:
        report = run_bench(out, plan, on_start=progress.start, on_row=progress.row, watch=progress.watch)
    typer.echo(report.markdown(), nl=False)
    typer.echo(f"\nAll of it is in {out / 'results.md'}, {out / 'results.json'} and {out / 'scaling.png'}.")


def _named(names: list[str]) -> "list[CaseName]":
    """Return the cases by their names, each once."""
    from gadget.benchmark.cases import CASES

    for name in names:
        if name not in CASES:
            raise typer.BadParameter(f"--case: there is no case {name!r}; choose from {', '.join(CASES)}.")
    return [name for name in CASES if name in names]
