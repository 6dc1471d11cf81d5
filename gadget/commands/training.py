"""``train``: make a prior."""

from pathlib import Path
from typing import Annotated

import typer

from gadget.commands.options import Device


def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="Settings of the training run.", exists=True)
    ],
    data: Annotated[
        Path, typer.Option(metavar="FILE.npz", help="Magnitude images to learn from.", exists=True)
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the prior.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. n_updates=500. Repeatable."),
    ] = None,
    device: Device = None,
) -> None:
    """Train a local energy by score matching and write it as a prior: weights and card."""
    from gadget.checked_settings import checked, parse_override, read_yaml_mapping, with_values
    from gadget.errors import FileError
    from gadget.reconstructor import find_device
    from reconlib.training.datasets import DataError, ImageArchive
    from reconlib.training.settings import TrainSettings
    from reconlib.training.trainer import TrainProgress
    from reconlib.training.trainer import train as train_network

    overrides = [parse_override(text, TrainSettings) for text in set_ or ()]
    settings = checked(TrainSettings, with_values(read_yaml_mapping(config), overrides), str(config))
    if out.exists():
        raise typer.BadParameter(f"{out} exists; name a new folder for the prior.")
    try:
        archive = ImageArchive.load(data)
    except DataError as error:
        raise FileError(str(error)) from error

    def report(progress: TrainProgress, _network: object) -> None:
        typer.echo(
            f"update {progress.update} of {progress.n_updates}: loss {progress.loss:.4f}, "
            f"{progress.seconds:.0f} s",
            err=True,
        )

    train_network(settings, archive, device=find_device(device or "auto"), on_progress=report)
