"""Options that several commands share, and the settings they add up to."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gadget.checked_settings import parse_override
from gadget.errors import FileError, SettingsError
from gadget.settings import Settings, load_settings

LABELLED = 3
"""Exit code: done, but at least one image is a fallback, all zero, or was stopped by its time limit, or its
uncertainty is missing."""

Scan = Annotated[
    Path, typer.Argument(metavar="SCAN.h5", help="Recorded scan, ISMRMRD HDF5. It is only read.", exists=True)
]
Out = Annotated[Path, typer.Argument(metavar="OUT.h5", help="Image file to write, ISMRMRD HDF5.")]
Group = Annotated[str, typer.Option(help="HDF5 group that holds the scan.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]
Png = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Also write a PNG picture of each image to this folder, and one of its uncertainty.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE.yaml", help="Settings; see config/recon/default.yaml. Default: none needed."),
]
PriorName = Annotated[
    str | None,
    typer.Option("--prior", metavar="NAME|FOLDER|tv", help="Learned prior, or total variation (tv)."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting, e.g. solver.iterations=50. Repeatable."
    ),
]
Device = Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Where to compute.")]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the noise in the prior's gradient, and of the sampling.")
]
Posterior = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Uncertainty series, with at most this much sampling per slice: 20s, 2min, or seconds alone.",
    ),
]
NoPosterior = Annotated[bool, typer.Option("--no-posterior", help="Images alone, no uncertainty series.")]


def settings_of(
    config: Path | None,
    *,
    prior: str | None = None,
    set_: list[str] | None = None,
    device: str | None = None,
    seed: int | None = None,
    posterior: str | None = None,
    no_posterior: bool = False,
) -> Settings:
    """Put settings together: file, then --set, then the options of their own, each over the one before.

    Raises
    ------
    SettingsError
        The file is faulty.
    typer.BadParameter
        The file is good, what the command line changes is not.
    """
    load_settings(config)
    chosen: dict[str, Any] = {"prior": prior, "device": device, "seed": seed}
    own = [(key, value) for key, value in chosen.items() if value is not None]
    if posterior is not None and no_posterior:
        raise typer.BadParameter("--posterior and --no-posterior exclude each other.")
    if posterior is not None:
        own += [("posterior.enabled", True), ("posterior.time_limit_s", _seconds(posterior))]
    if no_posterior:
        own.append(("posterior.enabled", False))
    try:
        return load_settings(config, [*(parse_override(text, Settings) for text in set_ or ()), *own])
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


def _seconds(text: str) -> float:
    """Read a time: a number of seconds, or one with a unit."""
    units = {"": 1.0, "s": 1.0, "min": 60.0}
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if found is None or found[2] not in units or not float(found[1]) > 0:
        raise typer.BadParameter(f"--posterior: '{text}' is no time; write for example 20s, 2min or 20.")
    return float(found[1]) * units[found[2]]


def refuse_outputs(scan: Path | None, *outputs: Path | None, overwrite: bool) -> None:
    """Raise, before any work is done, where an output cannot be written as asked."""
    from gadget.image_file import refuse_same_file
    from gadget.whole_file import refuse_existing

    try:
        if scan is not None:
            refuse_same_file(scan, *outputs)
        for output in outputs:
            if output is not None:
                refuse_existing(output, overwrite=overwrite)
    except FileError as error:
        raise typer.BadParameter(str(error)) from error


def use_threads(settings: Settings) -> None:
    """Let torch use as many CPU threads as the settings say; null leaves it as it is."""
    if settings.threads is not None:
        import torch

        torch.set_num_threads(settings.threads)
