"""``prior fit-width``: the factor on a prior's posterior standard deviations, from simulated scans."""

from pathlib import Path
from typing import Annotated

import typer

from gadget.commands.evaluation_cases import N_COILS, NOISE, NOISE_FACTOR, CaseOptions
from gadget.commands.options import Config, Device, Set, settings_of, use_threads

N_SCANS = 20


def fit_width(
    name: Annotated[str, typer.Argument(metavar="PRIOR", help="Name or folder of the prior; tv, too.")],
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGES...",
            help="Magnitude images, .npz, .npy (image, y, x) or fastMRI .h5; those that validate, where they "
            "are marked.",
            exists=True,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write a copy of the prior there. Needed for the shipped priors."
        ),
    ] = None,
    slices: Annotated[
        int,
        typer.Option(metavar="N", help="Fit on N images of each file, and report on N others.", min=1),
    ] = N_SCANS,
    patterns: Annotated[
        str, typer.Option(metavar="NAME,...", help="Sampling patterns, as for 'evaluate'.")
    ] = "cartesian-4",
    coils: Annotated[int, typer.Option(metavar="N", help="Simulated coils.", min=2)] = N_COILS,
    add_noise: Annotated[
        float, typer.Option(metavar="SHARE", help="Noise, as a share of the maximum.", min=1e-6, max=1)
    ] = NOISE,
    noise_factor: Annotated[
        float, typer.Option(help="Least noise, over the image's own.", min=1)
    ] = NOISE_FACTOR,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep finished samplings there; the same fit then goes on."),
    ] = None,
    config: Config = None,
    set_: Set = None,
    device: Device = None,
) -> None:
    """Fit the factor that makes 90 % intervals hold the truth in 90 % of the head, and write it to the card.

    Scans are simulated as by 'evaluate --study simulated', from every second one of evenly spread images,
    and the posterior is sampled by the settings posterior.*, without a time limit. Prints how often intervals
    hold the truth before and after, in scans of the other images.
    """
    settings = settings_of(config, set_=set_, device=device)
    if out is not None and out.exists():
        raise typer.BadParameter(f"{out} exists; name a new folder for the copy of the prior.")

    from gadget import width_fitting as fitting
    from gadget.commands.step_progress import steps_on_terminal
    from gadget.configs import prior_folders
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.reconstructor import find_device, reconstruction_settings, sampling_settings
    from gadget.weight_fitting import is_fixed, write_fitted
    from reconlib.priors.library import find_prior, load_prior

    parts = {
        part: CaseOptions(
            study="simulated",
            settings=settings,
            patterns=patterns,
            slices=slices,
            part=part,
            coils=coils,
            add_noise=add_noise,
            noise_factor=noise_factor,
        )
        for part in ("even", "odd")
    }
    chosen = parts["even"].pattern_names()
    use_threads(settings)
    with prior_faults_as_settings_faults():
        folder = find_prior(name, prior_folders())
        if out is None and is_fixed(folder):
            raise typer.BadParameter(
                f"{folder} is a shipped prior or cannot be written; name a folder for a copy of it (--out)."
            )
        place = find_device(settings.device)
        prior = load_prior(folder, place)
    fit_on, report_on = (options.cases_of(images) for options in parts.values())
    sampling = sampling_settings(settings)
    with steps_on_terminal("sampling", len(fit_on) + len(report_on)) as on_case:
        fit = fitting.fit_width(
            prior,
            fit_on,
            report_on,
            reconstruction_settings(settings),
            sampling,
            seed=settings.seed,
            device=place,
            keep=keep,
            on_case=on_case,
        )
    typer.echo(fitting.coverage_table(fit).markdown(fitting.DIGITS))
    for note in fit.notes:
        typer.echo(f"Note: {note}", err=True)
    card = fitting.with_factor(prior.card, fit, fitting.in_words(fit_on, chosen, coils, sampling))
    written = write_fitted(folder, card, out)
    typer.echo(f"factor on the standard deviation: {fit.factor:.3f}")
    typer.echo(f"Written to the card of {written}.")
