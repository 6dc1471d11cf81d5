"""The command line: ``gadgetron-ebm COMMAND``.

Results go to stdout, logs and progress to stderr. Exit codes: 0 done; 1 failed; 2 misuse; 3 done, but at
least one image is a fallback, all zero, or was stopped by its time limit.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from gadget.commands.bench import bench
from gadget.commands.chain_configs import install_configs
from gadget.commands.demonstration import demo
from gadget.commands.evaluation import evaluate
from gadget.commands.inspection import check_config
from gadget.commands.network import send, serve
from gadget.commands.prior_packages import prior_app
from gadget.commands.reconstruction import replay
from gadget.commands.sampling import sample
from gadget.commands.scan_inspection import inspect
from gadget.commands.simulation import simulate
from gadget.commands.spooled_scans import spooled_scans
from gadget.commands.training import train
from gadget.errors import GadgetError
from gadget.logs import setup_logging
from gadget.version import software

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="MR reconstruction with energy-based priors, for files, MRD servers and Gadgetron.\n\n"
    "To see it work: `gadgetron-ebm demo`. For research; not a medical device.",
    epilog="Exit codes: 0 done; 1 failed; 2 misuse; 3 done, but an image is labelled (fallback, all zero, "
    "stopped by its time limit), or its uncertainty is missing.",
)
_BY_PANEL: dict[str, tuple[Callable[..., None], ...]] = {
    "Try it": (demo, simulate),
    "Recorded scans": (replay, inspect),
    "At the scanner": (serve, send, install_configs, check_config, spooled_scans),
    "Priors": (train, sample),
    "Measure": (evaluate, bench),
}
for panel, commands in _BY_PANEL.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(prior_app, name="prior", rich_help_panel="Priors")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(software())
        raise typer.Exit


@app.callback()
def _every_command(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log each slice: outcome, iterations, seconds, weight.")
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    setup_logging(verbose=verbose)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit; what a user can do something about is told in a line, without a traceback."""
    try:
        app(None if arguments is None else list(arguments))
    except GadgetError as error:
        typer.echo(f"gadgetron-ebm: {error}", err=True)
        sys.exit(1)
