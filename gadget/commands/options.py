"""Options that several commands share, and the settings they add up to."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gadget.checked_settings import parse_override
from gadget.errors import FileError, SettingsError
from gadget.settings import Settings, load_settings

if TYPE_CHECKING:
    from gadget.settings_source import SettingsSource

LABELLED = 3
"""Exit code: done, but at least one image is a fallback, all zero, or was stopped by its time limit, or its
uncertainty is missing."""


def recorded(scan: Path) -> Path:
    """Return where a recorded scan is, which for one of a spool may be beside the path that was given.

    Raises
    ------
    typer.BadParameter
        There is nothing.
    """
    from gadget.spool.scan_names import where_it_is

    found = where_it_is(scan)
    if not found.exists():
        raise typer.BadParameter(f"Path '{scan}' does not exist.")
    return found


Scan = Annotated[
    Path,
    typer.Argument(
        metavar="SCAN.h5",
        help="Recorded scan: ISMRMRD HDF5, or a stream file. It is only read.",
        callback=recorded,
    ),
]
Out = Annotated[Path, typer.Argument(metavar="OUT.h5", help="Image file to write, ISMRMRD HDF5.")]
Group = Annotated[str, typer.Option(help="HDF5 group that holds the scan.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]
Png = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Also write pictures to this folder: each image, its uncertainty, and where it is unusual.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.yaml",
        help="Settings; config/recon/default.yaml documents every key. Default: none needed.",
    ),
]
Configs = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of settings (NAME.yaml) that clients may ask for by name, besides the shipped ones.",
        exists=True,
        file_okay=False,
    ),
]
PriorName = Annotated[
    str | None,
    typer.Option(
        "--prior",
        metavar="NAME|FOLDER|tv",
        help="Prior: a name that 'prior list' shows, a folder (./FOLDER), or tv: total variation.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one key of the settings, e.g. solver.iterations=50. Repeatable.",
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
    overrides = overrides_of(
        prior=prior, set_=set_, device=device, seed=seed, posterior=posterior, no_posterior=no_posterior
    )
    try:
        return load_settings(config, overrides)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


def overrides_of(
    *,
    prior: str | None,
    set_: list[str] | None,
    device: str | None,
    seed: int | None,
    posterior: str | None,
    no_posterior: bool,
) -> list[tuple[str, Any]]:
    """Return what the command line sets, the options of their own after --set.

    Raises
    ------
    typer.BadParameter
        What the command line sets is faulty by itself.
    """
    chosen: dict[str, Any] = {"prior": prior, "device": device, "seed": seed}
    own = [(key, value) for key, value in chosen.items() if value is not None]
    if posterior is not None and no_posterior:
        raise typer.BadParameter("--posterior and --no-posterior exclude each other.")
    if posterior is not None:
        own += [("posterior.enabled", True), ("posterior.time_limit_s", _seconds(posterior))]
    if no_posterior:
        own.append(("posterior.enabled", False))
    try:
        return [*(parse_override(text, Settings) for text in set_ or ()), *own]
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


def settings_source_of(
    config: Path | None,
    configs: Path | None,
    *,
    prior: str | None = None,
    set_: list[str] | None = None,
    device: str | None = None,
    seed: int | None = None,
    posterior: str | None = None,
    no_posterior: bool = False,
    check: Callable[[Settings], None] = lambda _settings: None,
) -> "SettingsSource":
    """Put settings together as :func:`settings_of` does, for scans that come one after another.

    Raises as that does.
    """
    from gadget.config_names import ConfigNames
    from gadget.settings_source import SettingsSource

    chosen: dict[str, Any] = {
        "prior": prior,
        "set_": set_,
        "device": device,
        "seed": seed,
        "posterior": posterior,
        "no_posterior": no_posterior,
    }
    settings_of(config, **chosen)
    return SettingsSource(config, overrides_of(**chosen), configs=ConfigNames(configs), check=check)


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
