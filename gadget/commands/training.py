"""``train``: make a prior."""

import shlex
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
    import torch

    from gadget.checked_settings import checked, parse_override, read_yaml_mapping, with_values
    from gadget.commands.progress import training_progress
    from gadget.errors import FileError
    from gadget.reconstructor import find_device
    from reconlib.training.datasets import DataError, ImageArchive
    from reconlib.training.package import package_trained
    from reconlib.training.settings import TrainSettings
    from reconlib.training.trainer import train as train_network

    overrides = [parse_override(text, TrainSettings) for text in set_ or ()]
    settings = checked(TrainSettings, with_values(read_yaml_mapping(config), overrides), str(config))
    if out.exists():
        raise typer.BadParameter(f"{out} exists; name a new folder for the prior.")
    chosen = find_device(device or "auto")
    try:
        archive = ImageArchive.load(data)
        with training_progress(settings.n_updates) as report:
            result = train_network(settings, archive, device=chosen, on_progress=report)
    except DataError as error:
        raise FileError(str(error)) from error
    hardware = f"{torch.get_num_threads()} CPU threads"
    if chosen.type == "cuda":
        hardware = torch.cuda.get_device_name(chosen)
    changes = [word for text in set_ or () for word in ("--set", text)]
    words = ["train", config.name, "--data", data.name, "--out", out.name, *changes]
    command = shlex.join(["gadgetron-ebm", *words])  # names only: folders are nobody's business
    card = package_trained(out, settings, result, archive, command=command, device=hardware)
    typer.echo(f"{out}: prior {card.name} {card.version}, {result.n_updates} updates")
