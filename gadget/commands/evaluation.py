"""``evaluate``: how good the images are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gadget.commands.options import Config, Device, Set, settings_of, use_threads

if TYPE_CHECKING:
    from gadget.settings import Settings
    from reconlib.evaluation.study import Method

ALL_METHODS = ("zero-filled", "tv", "tv-best", "map", "map-best", "bart")


def evaluate(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCAN...",
            help="Fully sampled scans: ISMRMRD .h5, fastMRI .h5, or k-space .npy (coil, ky, kx).",
            exists=True,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where tables and pictures go.")],
    prior: Annotated[
        list[str] | None,
        typer.Option("--prior", metavar="NAME|FOLDER", help="Prior of the method 'map'. Repeatable."),
    ] = None,
    patterns: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help="Patterns, or 'parallel' or 'single-coil' for those of the paper."
        ),
    ] = "parallel",
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Of zero-filled, tv, tv-best, map, map-best, bart; -best: best of 7 weights (oracle).",
        ),
    ] = "zero-filled,tv,map",
    slices: Annotated[
        int | None, typer.Option(metavar="N", help="Only the N slices in the middle of each scan.", min=1)
    ] = None,
    reference: Annotated[
        Literal["rss", "truth"],
        typer.Option(help="rss: of the full samples; truth: the one stored with simulated scans."),
    ] = "rss",
    coil_maps: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Keep these maps, complex (coil, y, x), fixed.", exists=True),
    ] = None,
    config: Config = None,
    set_: Set = None,
    device: Device = None,
    pictures: Annotated[bool, typer.Option(help="Save PNG panels.")] = True,
) -> None:
    """Leave samples out of fully sampled scans, reconstruct, and compare with the whole.

    Prints a table of means; the folder gets every row (table.md, table.csv) and pictures. Finished rows are
    kept in rows.jsonl and not computed again.
    """
    settings = settings_of(config, set_=set_, device=device)

    from gadget.commands.evaluation_progress import rows_on_terminal
    from gadget.evaluation import DIGITS, run_evaluation
    from gadget.evaluation_inputs import read_full_scans, with_coil_maps
    from reconlib.evaluation.grid_patterns import PARALLEL_IMAGING, PATTERNS, SINGLE_COIL
    from reconlib.evaluation.study import Case

    use_threads(settings)
    sets = {"parallel": PARALLEL_IMAGING, "single-coil": SINGLE_COIL}
    names = [name for part in _parts(patterns) for name in sets.get(part, (part,))]
    for name in names:
        if name not in PATTERNS:
            raise typer.BadParameter(
                f"there is no pattern {name!r}; choose from {', '.join([*PATTERNS, *sets])}."
            )
    chosen = _parts(methods)
    for name in chosen:
        if name not in ALL_METHODS:
            raise typer.BadParameter(f"there is no method {name!r}; choose from {', '.join(ALL_METHODS)}.")
    scans = [
        scan
        for path in inputs
        for scan in read_full_scans(path, settings, n_slices=slices, use_truth=reference == "truth")
    ]
    if coil_maps is not None:
        scans = [with_coil_maps(scan, coil_maps) for scan in scans]
    for scan in scans:
        typer.echo(f"{scan.name}: noise level {scan.noise_std:.4g}, {scan.noise_source}", err=True)
    cases = [
        Case(scan=scan, pattern=name, mask=PATTERNS[name](scan.matrix)) for scan in scans for name in names
    ]
    runs, identity = methods_of(chosen, prior or [settings.prior], settings)
    with rows_on_terminal(len(cases) * len(runs)) as on_row:
        result = run_evaluation(out, cases, runs, identity=identity, on_row=on_row, pictures=pictures)
    typer.echo(result.means.markdown(DIGITS), nl=False)
    for row in result.rows:
        if "failed" in row:
            typer.echo(f"{row['scan']}, {row['pattern']}: {row['failed']}", err=True)
    typer.echo(f"Every case is in {out / 'table.md'} and {out / 'table.csv'}.")


def methods_of(
    chosen: list[str], priors: list[str], settings: "Settings"
) -> tuple[dict[str, "Method"], dict[str, str]]:
    """Return methods by name, and what each depends on besides the case."""
    from dataclasses import replace

    from gadget.evaluation import identity_of, torch_version
    from gadget.reconstructor import Reconstructor, reconstruction_settings
    from gadget.settings import with_overrides
    from reconlib.evaluation.bart import Bart
    from reconlib.evaluation.study import at_best_weight, bart_methods, joint, zero_filling

    reconstructor = Reconstructor(settings.device)
    runs: dict[str, Method] = {}
    identity: dict[str, str] = {}

    def add(name: str, prior: str, *, best: bool) -> None:
        own = with_overrides(settings, [("prior", prior)])
        loaded, solver = reconstructor.load(own), reconstruction_settings(own)

        def at_factor(factor: float) -> "Method":
            scaled = replace(solver, prior_weight_factor=factor * solver.prior_weight_factor)
            return joint(loaded, scaled, seed=settings.seed)

        runs[name] = at_best_weight(at_factor) if best else at_factor(1.0)
        identity[name] = identity_of(best, solver, loaded.card, settings.seed, torch_version())

    for method in chosen:
        if method == "zero-filled":
            runs["zero-filled"], identity["zero-filled"] = zero_filling, ""
        elif method in ("tv", "tv-best"):
            best = method == "tv-best"
            add("total variation" + (" (oracle)" if best else ""), "tv", best=best)
        elif method in ("map", "map-best"):
            best = method == "map-best"
            for prior in priors:
                add(f"MAP {Path(prior).name}" + (" (oracle)" if best else ""), prior, best=best)
        else:
            bart = Bart.find()
            if bart is None:
                typer.echo("bart is not on the PATH: its rows are left out.", err=True)
                continue
            runs |= bart_methods(bart)
    return runs, identity


def _parts(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
