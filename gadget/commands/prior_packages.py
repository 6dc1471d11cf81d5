"""``prior``: the group of commands on packages, and those that make and install one."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from gadget.commands.inspection import Name, list_priors, show_prior, verify_prior
from gadget.commands.sampling import landscape
from gadget.commands.weight_fitting import fit_weight
from gadget.commands.width_fitting import fit_width
from gadget.configs import prior_folders, user_prior_folder

prior_app = typer.Typer(
    no_args_is_help=True, help="Look at priors, verify, pack, install and import them, and fit their numbers."
)
prior_app.command("list")(list_priors)
prior_app.command("show")(show_prior)
prior_app.command("verify")(verify_prior)
prior_app.command("landscape")(landscape)
prior_app.command("fit-weight")(fit_weight)
prior_app.command("fit-width")(fit_width)

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


@prior_app.command("pack")
def pack(
    name: Name,
    out: Annotated[Path, typer.Option(metavar="FILE.zip", help="New file for the archive.")],
) -> None:
    """Verify a prior and put card and weights into one file, to hand on.

    The same prior always gives the same bytes. 'prior install' takes such a file.
    """
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.priors.archive import pack_prior
    from reconlib.priors.library import find_prior

    with prior_faults_as_settings_faults():
        card = pack_prior(find_prior(name, prior_folders()), out)
    typer.echo(f"{out}: prior {card.name} {card.version}, {out.stat().st_size / 1e6:.1f} MB")


@prior_app.command("install")
def install(
    archive: Annotated[
        Path, typer.Argument(metavar="FILE.zip", help="What 'prior pack' wrote.", exists=True, dir_okay=False)
    ],
    into: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder that holds priors. Default: the user's data folder."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a prior of the same name.")] = False,
) -> None:
    """Verify a packed prior and make it available by its name."""
    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.priors.archive import install_prior

    with prior_faults_as_settings_faults():
        folder, card = install_prior(archive, into or user_prior_folder(), replace=replace)
    use = card.name if into is None else folder
    typer.echo(f"{folder}: prior {card.name} {card.version}; use it with --prior {use}")


@prior_app.command("import-published")
def import_published(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="Torch checkpoint of the paper's authors.", exists=True, dir_okay=False
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the prior.")],
    name: Annotated[str, typer.Option(help="Name of the prior.")] = "paper-knee",
    contrast: Annotated[
        Literal["CORPD", "CORPD-FS"], typer.Option(help="Whose published data weight the card documents.")
    ] = "CORPD",
    array_order: Annotated[
        Literal["fastmri", "stream"],
        typer.Option(
            help="Images that the prior is for: arrays as in fastMRI's files (readout along y), or images of "
            "ISMRMRD readouts as this program makes them (readout along x)."
        ),
    ] = "fastmri",
    key: Annotated[
        str | None,
        typer.Option(help="Where in the checkpoint the state dict lies. Default: it is searched for."),
    ] = None,
) -> None:
    """Make a prior of the weights that Zach, Knoll and Pock publish for fastMRI's knees.

    The file is read as tensors only; nothing in it is executed.
    """
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is no name of a prior; take lower-case letters, digits and '-'.")
    if out.exists():
        raise typer.BadParameter(f"{out} exists; name a new folder for the prior.")

    from gadget.prior_faults import prior_faults_as_settings_faults
    from reconlib.priors import published

    with prior_faults_as_settings_faults():
        card = published.import_published(
            checkpoint, out, name=name, contrast=contrast, array_order=array_order, key=key
        )
    folder = str(out) if "/" in str(out) else f"./{out}"  # a bare word would be taken for a name
    typer.echo(f"{out}: prior {card.name} {card.version}; use it with --prior {folder}")
