"""``evaluate``: how good the images are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gadget.commands.options import Config, Device, Set, settings_of, use_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gadget.settings import Settings
    from reconlib.evaluation.study import Case, FullScan

NOISE_FACTOR = 2.0
N_IMAGES = 10


def evaluate(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCAN...",
            help="Fully sampled scans: ISMRMRD .h5, fastMRI .h5, or k-space .npy (coil, ky, kx). For the "
            "single-coil study: magnitude images, .npz, .npy (image, y, x) or fastMRI .h5.",
            exists=True,
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where rows, tables and pictures are kept.")
    ] = Path("evaluation"),
    study: Annotated[
        Literal["parallel-imaging", "single-coil"],
        typer.Option(help="single-coil: the paper's simulation study, one coil fixed at 1 and a real image."),
    ] = "parallel-imaging",
    prior: Annotated[
        list[str] | None,
        typer.Option("--prior", metavar="NAME|FOLDER", help="Prior of the method 'map'. Repeatable."),
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Patterns, or 'parallel' or 'single-coil' for those of the paper. Default: the study's.",
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Of zero-filled, tv, tv-best, map, map-best, bart; -best: at the best weight (oracle).",
        ),
    ] = "zero-filled,tv,map",
    slices: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Only the N slices in the middle of each scan; single-coil study: N images, evenly spread "
            f"(default {N_IMAGES}).",
            min=1,
        ),
    ] = None,
    reference: Annotated[
        Literal["rss", "truth"],
        typer.Option(help="rss: of the full samples; truth: the one stored with simulated scans."),
    ] = "rss",
    coil_maps: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Keep these maps, complex (coil, y, x), fixed.", exists=True),
    ] = None,
    image_phase: Annotated[
        Literal["real", "soft"] | None,
        typer.Option(help="Of all methods. Default: the settings', else that of the first prior."),
    ] = None,
    noise_factor: Annotated[
        float,
        typer.Option(help="Single-coil study: the noise that is added, over the image's own.", min=1),
    ] = NOISE_FACTOR,
    calibrate_on: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="SCAN",
            help="Also show each method with its intensities corrected by a spline that is fitted on this "
            "other scan. Repeatable.",
            exists=True,
        ),
    ] = None,
    config: Config = None,
    set_: Set = None,
    device: Device = None,
    pictures: Annotated[bool, typer.Option(help="Save PNG panels.")] = True,
) -> None:
    """Leave samples out of fully sampled scans, reconstruct, and compare with the whole.

    Prints PSNR by case and a table of means; the folder gets every row (table.md, table.csv) and pictures.
    Finished rows are kept in rows.jsonl and not computed again. Methods that are told the reference to choose
    their weight are called oracle.
    """
    single = study == "single-coil"
    if single and (reference == "truth" or coil_maps is not None):
        raise typer.BadParameter("--reference and --coil-maps do not go with --study single-coil.")
    settings = settings_of(config, set_=[*(set_ or ()), *_phase(image_phase, set_, single)], device=device)

    from gadget.commands.evaluation_progress import rows_on_terminal
    from gadget.evaluation import run_evaluation
    from gadget.evaluation_methods import ALL_METHODS, named_methods, with_calibrated
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.evaluation.bart import Bart
    from reconlib.evaluation.summary import DIGITS

    use_threads(settings)
    names = _pattern_names(patterns or ("single-coil" if single else "parallel"))
    chosen = _parts(methods)
    for name in chosen:
        if name not in ALL_METHODS:
            raise typer.BadParameter(f"there is no method {name!r}; choose from {', '.join(ALL_METHODS)}.")

    def cases_of(paths: "Sequence[Path]") -> "list[Case]":
        if single:
            scans = _single_coil_scans(paths, slices or N_IMAGES, noise_factor)
        else:
            scans = _scans(paths, settings, slices, reference, coil_maps)
        for scan in scans:
            typer.echo(f"{scan.name}: noise level {scan.noise_std:.4g}, {scan.noise_source}", err=True)
        return _cases(scans, names)

    cases, calibration = cases_of(inputs), cases_of(calibrate_on or ())
    _refuse_common(cases, calibration)
    bart = Bart.find()
    if bart is None and "bart" in chosen:
        typer.echo("bart is not on the PATH: its rows are left out.", err=True)
    with rows_on_terminal() as progress:
        with prior_faults_as_settings_faults():
            runs = named_methods(
                chosen, prior or [settings.prior], settings, bart=bart, on_iteration=progress.iteration
            )
        if calibration:
            runs = with_calibrated(runs, calibration)
        progress.start(len(cases) * len(runs))
        result = run_evaluation(
            out, cases, runs, on_row=progress.row, pictures=pictures, about=_about(single, cases)
        )
    typer.echo(result.psnr.markdown(DIGITS))
    typer.echo(result.means.markdown(DIGITS))
    for row in result.rows:
        if "failed" in row:
            typer.echo(f"{row['scan']}, {row['pattern']}, {row['method']}: {row['failed']}", err=True)
    typer.echo(f"Every case is in {out / 'table.md'} and {out / 'table.csv'}.")


def _phase(image_phase: str | None, set_: list[str] | None, single: bool) -> list[str]:
    """Return the setting of the image phase; the single-coil study has a real image unless told otherwise."""
    if image_phase is None and single and not any(one.startswith("image_phase") for one in set_ or ()):
        image_phase = "real"
    return [] if image_phase is None else [f"image_phase={image_phase}"]


def _pattern_names(text: str) -> list[str]:
    from reconlib.evaluation.grid_patterns import PARALLEL_IMAGING, PATTERNS, SINGLE_COIL

    sets = {"parallel": PARALLEL_IMAGING, "single-coil": SINGLE_COIL}
    names = list(dict.fromkeys(name for part in _parts(text) for name in sets.get(part, (part,))))
    for name in names:
        if name not in PATTERNS:
            raise typer.BadParameter(
                f"there is no pattern {name!r}; choose from {', '.join([*PATTERNS, *sets])}."
            )
    if not names:
        raise typer.BadParameter("no pattern is named.")
    return names


def _scans(
    paths: "Sequence[Path]", settings: "Settings", slices: int | None, reference: str, coil_maps: Path | None
) -> "list[FullScan]":
    from gadget.evaluation_inputs import (
        read_full_scans,
        with_coil_maps,
        with_coil_of_one,
        with_names_of_their_own,
    )

    scans = [
        scan
        for path in paths
        for scan in read_full_scans(path, settings, n_slices=slices, use_truth=reference == "truth")
    ]
    if coil_maps is not None:
        scans = [with_coil_maps(scan, coil_maps) for scan in scans]
    elif settings.coils == "fixed":
        scans = [with_coil_of_one(scan) for scan in scans]
    return with_names_of_their_own(scans)


def _single_coil_scans(paths: "Sequence[Path]", n_images: int, noise_factor: float) -> "list[FullScan]":
    from gadget.evaluation_images import read_single_coil_scans
    from gadget.evaluation_inputs import with_names_of_their_own

    scans = [
        scan
        for path in paths
        for scan in read_single_coil_scans(path, n_images=n_images, noise_factor=noise_factor)
    ]
    return with_names_of_their_own(scans)


def _cases(scans: "list[FullScan]", patterns: list[str]) -> "list[Case]":
    from reconlib.evaluation.grid_patterns import PATTERNS
    from reconlib.evaluation.study import Case

    cases = []
    for scan in scans:
        for name in patterns:
            try:
                mask = PATTERNS[name](scan.matrix)
            except ValueError as error:
                raise typer.BadParameter(f"{scan.name}, pattern {name}: {error}") from error
            cases.append(Case(scan=scan, pattern=name, mask=mask))
    return cases


def _refuse_common(cases: "list[Case]", calibration: "list[Case]") -> None:
    """Refuse to calibrate on what is evaluated."""
    import torch

    for case in cases:
        for other in calibration:
            mine, its = case.scan.samples, other.scan.samples
            if mine.shape == its.shape and torch.equal(mine, its):
                raise typer.BadParameter(
                    f"--calibrate-on has {case.scan.name}, which is evaluated; calibrate on other scans."
                )


def _about(single: bool, cases: "list[Case]") -> str:
    """Say above the tables what they show."""
    what = (
        "Simulated scans: one coil of sensitivity 1 that is known, a real image, magnitude images that "
        "others reconstructed, cut to what was measured, and noise added. They compare methods; they do not "
        "say how good an image is on a scanner. Measures after one scale fit, against the image without the "
        "noise that was added."
        if single
        else "Measures after one scale fit per image, against the root sum of squares of all samples, or the "
        "stored truth. Oracle: the weight was chosen with the reference in hand."
    )
    lines = (f"* {case.scan.name}: noise level {case.scan.noise_source}" for case in cases)
    return what + "\n\n" + "\n".join(dict.fromkeys(lines))


def _parts(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
