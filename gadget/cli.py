"""The command line: ``gadgetron-ebm COMMAND``.

Results go to stdout, logs and progress to stderr. Exit codes: 0 done; 1 failed; 2 misuse; 3 done, but at
least one image is a fallback, all zero, or was stopped by its time limit.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gadget.commands.demonstration import demo
from gadget.commands.evaluation import evaluate
from gadget.commands.inspection import check_config
from gadget.commands.network import send, serve
from gadget.commands.prior_packages import prior_app
from gadget.commands.reconstruction import replay
from gadget.commands.sampling import sample
from gadget.commands.scan_inspection import inspect
from gadget.commands.simulation import simulate
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
    help="MR reconstruction with energy-based priors, for files, MRD servers and Gadgetron.",
)
for command in (demo, replay, inspect, serve, send, simulate, train, sample, evaluate):
    app.command()(command)
app.command("check-config")(check_config)
app.add_typer(prior_app, name="prior")


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
