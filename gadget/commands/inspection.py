"""``check-config`` and ``prior``: look before you scan."""

from pathlib import Path
from typing import Annotated

import typer

from gadget.configs import prior_folders

prior_app = typer.Typer(no_args_is_help=True, help="Priors that are installed, or that lie in a folder.")

Name = Annotated[
    str, typer.Argument(metavar="NAME|FOLDER", help="Name of an installed prior, or its folder.")
]


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", help="Settings to check.", exists=True)],
) -> None:
    """Check a settings file: every fault is named at once, and the prior is looked up and verified."""
    from gadget.prior_faults import prior_faults_as_settings_faults
    from gadget.settings import load_settings
    from reconlib.priors.library import find_prior, verify_prior

    settings = load_settings(file)
    with prior_faults_as_settings_faults():
        verify_prior(find_prior(settings.prior, prior_folders()))
    typer.echo(f"{file}: good (prior {settings.prior})")


@prior_app.command("list")
def list_() -> None:
    """List the priors that can be used by name."""
    from reconlib.priors.library import list_priors

    rows = [(card.name, card.version, card.description) for _, card in list_priors(prior_folders())]
    widths = [max(len(row[column]) for row in rows) if rows else 0 for column in (0, 1)]
    for name, version, description in rows:
        typer.echo(f"{name:<{widths[0]}}  {version:<{widths[1]}}  {description}")


@prior_app.command("show")
def show(name: Name) -> None:
    """Print the card of a prior: what it was trained on, how to use it, how it was checked."""
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.priors.library import find_prior

    with prior_faults_as_settings_faults():
        folder = find_prior(name, prior_folders())
    typer.echo(f"# {folder}")
    typer.echo((folder / "card.yaml").read_text(encoding="utf-8").rstrip())


@prior_app.command("verify")
def verify(name: Name) -> None:
    """Check a prior's card, and its weights against the card's SHA-256."""
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.priors.library import find_prior, verify_prior

    with prior_faults_as_settings_faults():
        folder = find_prior(name, prior_folders())
        verify_prior(folder)
    typer.echo(f"{folder}: good")
