"""What commands print to stdout when they are done."""

from pathlib import Path

import typer

from gadget.counted import counted
from gadget.image_labels import StreamSummary


def print_summary(out: Path, summary: StreamSummary) -> None:
    """Say what was written, and name each image that is not what was asked for."""
    sampling = ""
    if summary.n_sampled:
        sampling = f", uncertainty of {summary.n_sampled}, {summary.sampling_seconds:.1f} s of sampling"
    typer.echo(
        f"{out}: {counted(summary.n_images, 'image')}, {summary.seconds:.1f} s of reconstruction{sampling}"
    )
    for line in (*summary.labelled, *summary.rough):
        typer.echo(f"  {line}")
