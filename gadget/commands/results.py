"""What commands print to stdout when they are done."""

from pathlib import Path

import typer

from gadget.image_labels import StreamSummary


def print_summary(out: Path, summary: StreamSummary) -> None:
    """Say what was written, and name each image that is not what was asked for."""
    images = "1 image" if summary.n_images == 1 else f"{summary.n_images} images"
    sampling = ""
    if summary.n_sampled:
        sampling = f", uncertainty of {summary.n_sampled}, {summary.sampling_seconds:.1f} s of sampling"
    typer.echo(f"{out}: {images}, {summary.seconds:.1f} s of reconstruction{sampling}")
    for line in (*summary.labelled, *summary.rough):
        typer.echo(f"  {line}")
