"""``train``: make a prior."""

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gadget.commands.options import Device

_log = logging.getLogger(__name__)


def train(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="Settings of the training run.", exists=True)
    ],
    data: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            help="Magnitude images to learn from: a folder or a file (fastMRI, ISMRMRD, NIfTI, DICOM, .npz).",
            exists=True,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the finished prior.")],
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where checkpoints, log and pictures go. Default: the name of --out with '-run' behind it.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in the run's folder.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. n_updates=500. Repeatable."),
    ] = None,
    device: Device = None,
) -> None:
    """Train an energy on magnitude images and write it as a prior: weights and card.

    The run's folder gets checkpoints, `log.jsonl`, plots and a TensorBoard log. SIGTERM or Ctrl-C saves a
    checkpoint and ends the command; the same command with `--resume` goes on as if it had never stopped.
    On several GPUs: `torchrun --no-python --nproc-per-node N gadgetron-ebm train ...`
    """
    import torch

    from gadget.checked_settings import checked, parse_override, read_yaml_mapping, with_values
    from gadget.commands.training_progress import reading_progress, stop_on_signals, training_progress
    from gadget.errors import GadgetError
    from gadget.reconstructor import find_device
    from reconlib.training.distributed import joined_processes
    from reconlib.training.images import load_images
    from reconlib.training.package import package_trained
    from reconlib.training.settings import TrainSettings
    from reconlib.training.trainer import TrainOutcome
    from reconlib.training.trainer import train as train_network

    overrides = [parse_override(text, TrainSettings) for text in set_ or ()]
    settings = checked(TrainSettings, with_values(read_yaml_mapping(config), overrides), str(config))
    if out.exists():
        raise typer.BadParameter(f"{out} exists; name a new folder for the prior.")
    folder = run or out.with_name(f"{out.name}-run")
    chosen = find_device(device or "auto")
    with _faults_told_in_a_line(), joined_processes(chosen) as processes:
        if processes.leads and not resume and (folder / "checkpoints").exists():
            raise typer.BadParameter(
                f"{folder} holds a run already; go on with --resume, or name another folder with --run."
            )
        with reading_progress(shown=processes.leads) as read:
            images = load_images(data, settings.images, on_file=read)
        if processes.leads:
            _log.info("%s", images.summary)
        value = "loss" if settings.objective == "score-matching" else "energy gap"
        with (
            stop_on_signals() as stop,
            training_progress(shown=processes.leads, what=value) as report,
        ):
            result = train_network(
                settings,
                images.training,
                images.validation,
                folder=folder,
                resume=resume,
                processes=processes,
                stop=stop,
                on_progress=report,
            )
        if result.outcome is TrainOutcome.STOPPED:
            raise GadgetError(
                f"stopped after {result.n_updates} of {settings.n_updates} updates; a checkpoint is saved in "
                f"{folder}. Give the same command with --resume to go on."
            )
        if not processes.leads:
            return
        hardware = f"{torch.get_num_threads()} CPU threads"
        if processes.device.type == "cuda":
            hardware = torch.cuda.get_device_name(processes.device)
        changes = [word for text in set_ or () for word in ("--set", text)]
        words = ["train", config.name, "--data", data.name, "--out", out.name, *changes]
        command = shlex.join(["gadgetron-ebm", *words])  # names only: folders are nobody's business
        card = package_trained(out, settings, result, images, command=command, hardware=hardware)
        typer.echo(f"{out}: prior {card.name} {card.version}, {result.n_updates} updates")


@contextmanager
def _faults_told_in_a_line() -> Iterator[None]:
    """Raise a GadgetError where the run raises what its user can mend."""
    from gadget.errors import FileError, SettingsError
    from reconlib.priors.library import PriorError
    from reconlib.training.checkpoint import CheckpointError
    from reconlib.training.distributed import SharingError
    from reconlib.training.guard import TrainingDiverged
    from reconlib.training.images import DataError
    from reconlib.training.networks import WarmStartError
    from reconlib.training.patches import PatchError

    try:
        yield
    except (DataError, CheckpointError) as error:
        raise FileError(str(error)) from error
    except (PriorError, WarmStartError) as error:
        raise SettingsError(str(error)) from error
    except (PatchError, SharingError, TrainingDiverged) as error:
        raise SettingsError(str(error)) from error
