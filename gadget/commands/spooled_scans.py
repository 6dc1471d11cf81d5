"""Scans that a server keeps on disk: the options of ``serve``, and ``spooled-scans``, the list of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gadget.spool.spool import Spool

SpoolFolder = Annotated[
    Path | None,
    typer.Option(
        "--spool", metavar="DIR", help="Keep every scan in this folder, as it comes. It holds patient data."
    ),
]
SpoolGib = Annotated[
    float, typer.Option(min=0.001, help="Largest size of the spool; the oldest finished scans go first.")
]
SpoolDays = Annotated[float, typer.Option(min=0.001, help="How long scans stay in the spool.")]


def open_spool(folder: Path, size_gib: float, age_days: float) -> "Spool":
    """Open the folder of ``serve``; to be closed by the caller."""
    from gadget.spool.limits import DAY_S, GIB, SpoolLimits
    from gadget.spool.spool import Spool

    return Spool(folder, SpoolLimits(size_bytes=size_gib * GIB, age_s=age_days * DAY_S))


def spooled_scans(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The spool of a server.", exists=True, file_okay=False)
    ],
) -> None:
    """List the scans that a server kept with --spool, in the order in which they ended.

    A file that is named can be given to `replay`, `inspect`, `send` and `evaluate`, also where it is
    incomplete; one that limits of size or age removed is shown as -.
    """
    from gadget.spool.manifest import read_manifest
    from gadget.spool.scan_names import scan_files, time_of

    files = {name: path.name for name, path in sorted(scan_files(folder), reverse=True)}
    rows = [("began (UTC)", "readouts", "MiB", "images", "file", "outcome")]
    for record in read_manifest(folder):
        images = "?" if record.images is None else str(record.images)
        outcome = record.outcome if record.kept == "whole" else f"{record.outcome}; kept: {record.kept}"
        rows.append(
            (
                record.began.removesuffix("+00:00"),
                str(record.readouts),
                f"{record.bytes / 2**20:.1f}",
                images,
                files.pop(record.scan, "-"),
                outcome,
            )
        )
    for name, file in sorted(files.items()):
        began = time_of(name)
        when = "?" if began is None else began.isoformat().removesuffix("+00:00")
        rows.append((when, "?", "?", "?", file, "runs, or was cut off and not yet listed by a new server"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        typer.echo(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]])
        )
