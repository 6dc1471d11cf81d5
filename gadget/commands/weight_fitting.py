"""``prior fit-weight``: the weight of a prior, from validation scans."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gadget.commands.options import Config, Device, Set, settings_of, use_threads


def fit_weight(
    name: Annotated[str, typer.Argument(metavar="PRIOR", help="Name or folder of the prior; tv, too.")],
    scans: Annotated[
        list[Path],
        typer.Argument(
            metavar="SCAN...",
            help="Fully sampled validation scans: ISMRMRD .h5, fastMRI .h5, or k-space .npy.",
            exists=True,
        ),
    ],
    report_on: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="SCAN",
            help="Report on this scan, which the fit does not use. Repeatable. Else one is left out in turn.",
            exists=True,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Write a copy of the prior there. Needed for the shipped priors."
        ),
    ] = None,
    rule: Annotated[
        Literal["prior", "noise", "fit"],
        typer.Option(help="noise: a factor on sigma^2 / T; fit: a + b sigma; prior: the one of the card."),
    ] = "prior",
    mu: Annotated[
        str, typer.Option(metavar="NUMBER,...", help="Smoothnesses of the coil maps to try.")
    ] = "0.1,0.3,1,3",
    patterns: Annotated[
        str, typer.Option(metavar="NAME,...", help="Sampling patterns, as for 'evaluate'.")
    ] = "cartesian-4",
    slices: Annotated[
        int | None, typer.Option(metavar="N", help="Only the N slices in the middle of each scan.", min=1)
    ] = None,
    reference: Annotated[
        Literal["rss", "truth"],
        typer.Option(help="rss: of the full samples; truth: the one stored with simulated scans."),
    ] = "rss",
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep finished reconstructions there; the same search then goes on."
        ),
    ] = None,
    config: Config = None,
    set_: Set = None,
    device: Device = None,
) -> None:
    """Fit the rule of the prior's weight, and mu, to scans, and write them to the prior's card.

    Searches the best weight of every scan, fits the rule to them, and reports the PSNR with the old and the
    new card on scans that the fit did not use.
    """
    settings = settings_of(config, set_=set_, device=device)
    numbers = _numbers(mu)
    if out is not None and out.exists():
        raise typer.BadParameter(f"{out} exists; name a new folder for the copy of the prior.")

    from gadget import weight_fitting as fitting
    from gadget.commands.step_progress import steps_on_terminal
    from gadget.configs import prior_folders
    from gadget.errors import SettingsError
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.reconstructor import find_device, reconstruction_settings
    from reconlib.evaluation import weight_fit
    from reconlib.evaluation.best_weight import FACTORS
    from reconlib.evaluation.grid_patterns import PATTERNS
    from reconlib.priors.library import find_prior, load_prior
    from reconlib.reconstruction import iterations_of

    chosen = list(dict.fromkeys(part.strip() for part in patterns.split(",") if part.strip()))
    for pattern in chosen:
        if pattern not in PATTERNS:
            raise typer.BadParameter(f"there is no pattern {pattern!r}; choose from {', '.join(PATTERNS)}.")
    if not chosen:
        raise typer.BadParameter("--patterns names none.")
    try:
        fitting.refuse_same(scans, report_on or [])
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    use_threads(settings)
    with prior_faults_as_settings_faults():
        folder = find_prior(name, prior_folders())
        if out is None and fitting.is_fixed(folder):
            raise typer.BadParameter(
                f"{folder} is a shipped prior or cannot be written; name a folder for a copy of it (--out)."
            )
        place = find_device(settings.device)
        prior = load_prior(folder, place)
    kind = prior.card.prior_weight.rule if rule == "prior" else rule
    by_truth = reference == "truth"
    cases = fitting.read_fit_cases(scans, chosen, settings, n_slices=slices, use_truth=by_truth)
    others = fitting.read_fit_cases(report_on or [], chosen, settings, n_slices=slices, use_truth=by_truth)
    n_steps = len(cases) * len(numbers) * len(FACTORS) + 2 * len(others or cases)
    with steps_on_terminal("reconstructing", n_steps) as on_run:
        run = fitting.kept_runs(prior, place, settings.seed, keep, on_run)
        try:
            fit = weight_fit.fit_weight(
                prior.card,
                cases,
                run,
                reconstruction_settings(settings),
                rule=kind,
                coil_smoothness=numbers,
                report_on=others,
            )
        except weight_fit.FitError as error:
            raise SettingsError(f"fit-weight: {error}") from error
    own = reconstruction_settings(settings)
    solver = own.solver, iterations_of(own)
    card = fit.rule.on(prior.card, fitting.in_words(fit, cases, chosen, solver, reference))
    typer.echo(fitting.best_table(fit).markdown(fitting.DIGITS))
    typer.echo(fitting.mu_table(fit).markdown(fitting.DIGITS))
    if fit.held_out:
        typer.echo(fitting.held_out_table(fit).markdown(fitting.DIGITS))
    else:
        typer.echo(f"No report: {fit.no_report}", err=True)
    for note in fit.notes:
        typer.echo(f"Note: {note}", err=True)
    written = fitting.write_fitted(folder, card, out)
    typer.echo(fitting.rule_in_words(fit))
    typer.echo(f"Written to the card of {written}.")


def _numbers(text: str) -> list[float]:
    """Read positive numbers, smallest first."""
    try:
        numbers = sorted({float(part) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise typer.BadParameter(f"--mu is {text!r}; it takes numbers with commas between.") from error
    if not numbers or not numbers[0] > 0 or not numbers[-1] < float("inf"):
        raise typer.BadParameter(f"--mu is {text!r}; every number has to be positive.")
    return numbers
