"""``inspect``: what is in a recorded scan, and what would become of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gadget.commands.options import Overwrite, Scan


def inspect(
    scan: Scan,
    group: Annotated[
        str | None,
        typer.Option(help="HDF5 group to inspect. Default: 'dataset', else the first one with a scan."),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also write pictures to this folder: sampling, noise correlation, trajectory.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    patient: Annotated[
        bool, typer.Option("--patient", help="Also print subject, study and measurement information.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Say what is in a scan, what is wrong with it, and what `replay` would do with it, or why not.

    It reads the file from end to end and reconstructs nothing. Without --patient nothing is printed that
    tells who was scanned; pictures never show it.

    Exit code: 0 the file could be read, whatever is wrong with the scan in it; 1 it could not, or not to its
    end; 2 misuse.
    """
    import json

    from gadget.inspection.content import as_json as content_as_json
    from gadget.inspection.inspect_file import Inspector
    from gadget.inspection.text import as_text

    inspector = Inspector(scan)
    with _readouts_on_terminal() as on_readouts:
        found = inspector.inspect(group, with_patient=patient, on_readouts=on_readouts)
    typer.echo(json.dumps(content_as_json(found), indent=1) if as_json else as_text(found))
    if png is not None:
        from gadget.inspection.pictures import save_pictures

        for path in save_pictures(inspector, found, png, overwrite=overwrite):
            typer.echo(f"{path}", err=as_json)
    if not found.is_whole:
        raise typer.Exit(1)


@contextmanager
def _readouts_on_terminal() -> Iterator[Callable[[int, int], None]]:
    """Yield the function to call with the readouts read so far, and all; a bar on stderr if a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("reading readouts", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
