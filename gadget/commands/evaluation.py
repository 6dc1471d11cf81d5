"""``evaluate``: how good the images are."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gadget.commands.evaluation_cases import (
    N_COILS,
    N_IMAGES,
    NOISE,
    NOISE_FACTOR,
    CaseOptions,
    Reference,
    Study,
    about,
    parts_of,
    refuse_common,
)
from gadget.commands.options import Config, Device, Set, recorded, settings_of, use_threads


def evaluate(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCAN...",
            help="Fully sampled scans: ISMRMRD .h5 (radial and spiral ones, too), fastMRI .h5, or k-space "
            ".npy (coil, ky, kx). For the simulated studies: magnitude images, .npz, .npy (image, y, x) or "
            "fastMRI .h5.",
            callback=lambda scans: [recorded(scan) for scan in scans],
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where rows, tables and pictures are kept.")
    ] = Path("evaluation"),
    study: Annotated[
        Study,
        typer.Option(
            help="single-coil: the paper's simulation study, one coil fixed at 1 and a real image. "
            "simulated: scans of several coils."
        ),
    ] = "parallel-imaging",
    prior: Annotated[
        list[str] | None,
        typer.Option("--prior", metavar="NAME|FOLDER", help="Prior of 'map' and 'posterior'. Repeatable."),
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="On the grid: cartesian-4, cartesian-4-swapped, cartesian-4-acl4, radial-45, gaussian-8 "
            "(together: parallel), random-3, spiral-5. Off it: true-radial-45, true-golden-34, true-spiral-3 "
            "(together: off-grid). 'single-coil': those of the paper's study. Of radial and spiral scans: "
            "every-K, one readout in K (default every-3). Default: the study's.",
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Of zero-filled, cg-sense, tv, tv-best, map, map-best, posterior, bart; -best: at the best "
            "weight, cg-sense: at the best number of iterations (oracle). posterior: mean and standard "
            "deviation, by the settings posterior.*; without a time limit unless one is set.",
        ),
    ] = "zero-filled,tv,map",
    slices: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Only the N slices in the middle of each scan; simulated studies: N images, evenly spread "
            f"(default {N_IMAGES}).",
            min=1,
        ),
    ] = None,
    part: Annotated[
        Literal["all", "even", "odd"],
        typer.Option(
            help="Simulated studies: even and odd share no image, to fit on one and test on the other."
        ),
    ] = "all",
    reference: Annotated[
        Reference,
        typer.Option(
            help="rss: root sum of squares of the full samples (of radial and spiral scans CG-SENSE of all "
            "readouts); corrected: rss less its noise floor, by the scan's noise level, of Cartesian scans "
            "only; truth: the one stored with simulated scans."
        ),
    ] = "rss",
    coil_maps: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Keep these maps, complex (coil, y, x), fixed.", exists=True),
    ] = None,
    image_phase: Annotated[
        Literal["real", "soft"] | None,
        typer.Option(help="Of all methods. Default: the settings', else that of the first prior."),
    ] = None,
    coils: Annotated[
        int | None, typer.Option(metavar="N", help=f"Study simulated: coils (default {N_COILS}).", min=2)
    ] = None,
    add_noise: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Add noise to the samples, until its standard deviation per real component is this share of "
            f"the image's maximum. Study simulated: default {NOISE}.",
            min=1e-6,
            max=1,
        ),
    ] = None,
    noise_factor: Annotated[
        float,
        typer.Option(
            help="Simulated studies: the noise that is added, over the image's own; beside --add-noise the "
            "larger one holds.",
            min=1,
        ),
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

    Prints PSNR by case and a table of means; the folder gets every row (table.md, table.csv) and pictures,
    for the posterior with the coverage of its intervals and its errors against what it predicts.
    Finished rows are kept in rows.jsonl and not computed again. Methods that are told the reference to choose
    their weight are called oracle.
    """
    single = study == "single-coil"
    settings = settings_of(config, set_=[*(set_ or ()), *_phase(image_phase, set_, single)], device=device)
    options = CaseOptions(
        study=study,
        settings=settings,
        patterns=patterns,
        slices=slices,
        part=part,
        reference=reference,
        coil_maps=coil_maps,
        coils=coils,
        add_noise=add_noise,
        noise_factor=noise_factor,
    )

    from gadget.commands.evaluation_progress import rows_on_terminal
    from gadget.evaluation import run_evaluation
    from gadget.evaluation_methods import ALL_METHODS, named_methods, with_calibrated
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.evaluation.bart import Bart
    from reconlib.evaluation.summary import DIGITS

    use_threads(settings)
    options.pattern_names()
    chosen = parts_of(methods)
    for name in chosen:
        if name not in ALL_METHODS:
            raise typer.BadParameter(f"there is no method {name!r}; choose from {', '.join(ALL_METHODS)}.")
    cases, calibration = options.cases_of(inputs), options.cases_of(calibrate_on or ())
    refuse_common(cases, calibration)
    bart = Bart.find()
    if bart is None and "bart" in chosen:
        typer.echo("bart is not on the PATH: its rows are left out.", err=True)
    with rows_on_terminal() as progress:
        with prior_faults_as_settings_faults():
            runs = named_methods(
                chosen,
                prior or [settings.prior],
                settings,
                bart=bart,
                on_iteration=progress.iteration,
                on_step=progress.step,
            )
        if calibration:
            runs = with_calibrated(runs, calibration)
        progress.start(len(cases) * len(runs))
        result = run_evaluation(
            out, cases, runs, on_row=progress.row, pictures=pictures, about=about(study, reference, cases)
        )
    typer.echo(result.psnr.markdown(DIGITS))
    typer.echo(result.means.markdown(DIGITS))
    for row in result.rows:
        if "failed" in row:
            typer.echo(f"{row['scan']}, {row['pattern']}, {row['method']}: {row['failed']}", err=True)
    typer.echo(f"Every case is in {out / 'table.md'} and {out / 'table.csv'}.")
    if result.rows and all("failed" in row for row in result.rows):
        raise typer.Exit(1)


def _phase(image_phase: str | None, set_: list[str] | None, single: bool) -> list[str]:
    """Return the setting of the image phase; the single-coil study has a real image unless told otherwise."""
    if image_phase is None and single and not any(one.startswith("image_phase") for one in set_ or ()):
        image_phase = "real"
    return [] if image_phase is None else [f"image_phase={image_phase}"]
