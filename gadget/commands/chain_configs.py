"""``install-configs``: put the chains for Gadgetron where it finds them."""

from pathlib import Path
from typing import Annotated

import typer

from gadget.commands.host_and_port import host_and_port
from gadget.commands.options import Overwrite


def install_configs(
    gadgetron_home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of Gadgetron, with share/gadgetron/config in it. Default: $GADGETRON_HOME, else "
            "where the program 'gadgetron' is installed.",
        ),
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where `gadgetron-ebm serve` runs, for the ebm_connect chains. Default: localhost:9003.",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Put the chains ebm_*.xml into a Gadgetron, where its clients can ask for them by name.

    ebm_execute: Gadgetron starts the reconstruction; ebm_connect: it connects to a running server;
    ebm_after_noise_adjust and ebm_buffers: behind gadgets of its own. Images are floats; _uint16 and _dicom
    are variants of each. Chains that are there and differ are kept: nothing is written without --overwrite.
    """
    from gadget.gadgetron_configs import gadgetron_home as found_home
    from gadget.gadgetron_configs import install_chains, why_not_executable

    where = None if connect is None else host_and_port(connect, "--connect")
    home = gadgetron_home or found_home()
    for one in install_chains(home, connect=where, overwrite=overwrite):
        typer.echo(f"{one.path}{'' if one.is_new else ' (as it was)'}")
    if reason := why_not_executable(home):
        typer.echo(
            f"warning: {reason}. Of these chains only ebm_connect* will work; for the others install "
            "gadgetron-ebm into that Python, too.",
            err=True,
        )
