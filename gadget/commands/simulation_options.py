"""Which options of ``simulate`` go with which kind of scan."""

from collections.abc import Iterable, Iterator
from typing import Any

import typer

_PATTERN = ("acceleration", "calibration", "mask_seed")
_HEAD = ("matrix", "slices", "contrast")
_NON_CARTESIAN = "for radial and spiral scans, --trajectory radial, golden or spiral"


def refuse_idle_options(context: typer.Context) -> None:
    """Raise where the user gave an option that the chosen kind of scan does not look at.

    Raises
    ------
    typer.BadParameter
        It names the options, what they are for, and what to do.
    """
    faults = []
    for names, purpose in _idle_options(context.params):
        given = [f"--{name.replace('_', '-')}" for name in names if _is_given(context, name)]
        if given:
            faults.append(f"{_listed(given)} {'is' if len(given) == 1 else 'are'} {purpose}.")
    if faults:
        raise typer.BadParameter(" ".join(faults))


def _idle_options(chosen: dict[str, Any]) -> Iterator[tuple[Iterable[str], str]]:
    """Options without effect on a scan of the chosen kind, and what they are for."""
    trajectory, pattern = chosen["trajectory"], chosen["pattern"]
    if trajectory == "cartesian":
        yield ("readouts", "phantom"), _NON_CARTESIAN
        yield from _idle_with_files(chosen)
        if pattern == "full":
            yield _PATTERN, "for lines that are left out; --pattern full leaves none out"
        elif pattern == "uniform":
            yield ("mask_seed",), "for --pattern random"
        return
    yield (
        ("image", "kspace", "repetitions", "pattern", *_PATTERN),
        f"for Cartesian scans; --trajectory {trajectory} scans one head or the phantom, along --readouts",
    )
    if chosen["phantom"]:
        yield ("slices", "contrast"), "for a head; --phantom is one slice of ellipses"


def _idle_with_files(chosen: dict[str, Any]) -> Iterator[tuple[Iterable[str], str]]:
    if chosen["kspace"] is not None:
        yield (
            (*_HEAD, "coils", "noise", "noise_correlation"),
            "for simulated samples; --kspace brings its own",
        )
    elif chosen["image"] is not None:
        yield _HEAD, "for a head; --image brings its own size and contrast"


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and not source.name.startswith("DEFAULT")


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
