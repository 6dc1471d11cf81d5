"""Check a prior package from end to end and tell what was checked; facts that follow from it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from reconlib.priors.card import LocalArchitecture, PaperArchitecture, PriorCard
from reconlib.priors.card_file import read_card
from reconlib.priors.errors import PriorError
from reconlib.priors.library import energy_of
from reconlib.priors.weights_file import (
    WEIGHTS_FILE,
    check_finite,
    check_fit,
    check_hash,
    empty_network,
    parse_weights,
    read_weights_blob,
)

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    what: str
    fault: str | None = None
    """What is wrong; None where all is well."""
    skipped: bool = False
    """It could not be looked at because of another fault."""


@dataclass(frozen=True, slots=True)
class PackageReport:
    """All that was checked of a package."""

    checks: tuple[Check, ...]
    card: PriorCard | None
    """None where the card is broken."""

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, a sentence each; empty where the package is good."""
        return tuple(check.fault for check in self.checks if check.fault is not None)


class _Checklist:
    def __init__(self) -> None:
        self.done: list[Check] = []

    def check(self, what: str, act: Callable[[], _Result]) -> _Result | None:
        """Return what ``act`` returns, or None where it raises PriorError: that is a fault."""
        try:
            result = act()
        except PriorError as error:
            self.done.append(Check(what, str(error)))
            return None
        self.done.append(Check(what))
        return result

    def skip(self, what: str) -> None:
        self.done.append(Check(what, skipped=True))


def check_package(folder: Path) -> PackageReport:
    """Check everything that can be checked, also where something else is wrong already.

    The card; the weights: hash, format, names and shapes, finite; and that energy and gradient of a test
    image are finite. Nothing is raised for a faulty package.
    """
    todo = _Checklist()
    card = todo.check("card: plain YAML, complete, every value in its range", lambda: read_card(folder))
    network = None if card is None else empty_network(card)
    if card is None or network is not None:
        weights = _check_weights(folder, card, network, todo)
        if network is not None and weights is not None and not any(one.fault for one in todo.done):
            network.load_state_dict(weights, assign=True)
    last = "energy: finite on a test image, and so is its gradient"
    if card is None or any(one.fault is not None for one in todo.done):
        todo.skip(last)
    else:
        todo.check(last, lambda: _check_energy(card, network, folder))
    return PackageReport(tuple(todo.done), card)


def _check_weights(
    folder: Path, card: PriorCard | None, network: nn.Module | None, todo: _Checklist
) -> dict[str, Tensor] | None:
    """Check the weights file as far as card and network (None: the card is broken) allow."""
    blob = todo.check("weights: a regular file", lambda: read_weights_blob(folder))
    if blob is None:
        return None
    as_in_card = "weights: SHA-256 as in the card"
    if card is None:
        todo.skip(as_in_card)
    else:
        todo.check(as_in_card, lambda: check_hash(blob, card, folder))
    weights = todo.check("weights: safetensors", lambda: parse_weights(blob, folder))
    if weights is None:
        return None
    todo.check("weights: finite", lambda: check_finite(weights, folder))
    fitting = "weights: names, shapes and types of the architecture"
    if network is None:
        todo.skip(fitting)
    else:
        todo.check(fitting, lambda: check_fit(network, weights, folder))
    return weights


def count_parameters(card: PriorCard) -> int:
    """Return the number of weights that a card describes, without making them."""
    network = empty_network(card)
    return 0 if network is None else sum(parameter.numel() for parameter in network.parameters())


def prior_facts(folder: Path, card: PriorCard) -> dict[str, str]:
    """Return what follows from card and files, in words: architecture, weights, size, density."""
    architecture = card.architecture
    if isinstance(architecture, LocalArchitecture):
        widths = ", ".join(str(width) for width in architecture.widths)
        kind = (
            f"local energy, {len(architecture.widths)} resolutions with {widths} channels, "
            f"used at noise level {architecture.noise_level:g}"
        )
    elif isinstance(architecture, PaperArchitecture):
        kind = "global energy of 320 x 320 pixels (Zach, Knoll, Pock); other matrices are cropped or padded"
    else:
        kind = f"total variation, epsilon {architecture.epsilon:g}; nothing is trained"
    facts = {"architecture": kind}
    n_parameters = count_parameters(card)
    if n_parameters:
        facts["parameters"] = f"{n_parameters:,}"
        try:
            facts["weights"] = f"{(folder / WEIGHTS_FILE).stat().st_size / 1e6:.1f} MB"
        except OSError:
            facts["weights"] = "the file is missing"
    facts["density"] = f"exp(-R / {card.temperature:g})"
    turned = [f"turned by {card.input.rotation_degrees} degrees"] if card.input.rotation_degrees else []
    if card.input.transpose:
        turned.insert(0, "x and y exchanged")
    facts["sees the image"] = ", then ".join(turned) or "as it is"
    return facts


def _check_energy(card: PriorCard, network: nn.Module | None, folder: Path) -> None:
    side = 320 if isinstance(card.architecture, PaperArchitecture) else 32
    rows = torch.linspace(-1.0, 1.0, side)
    image = torch.exp(-3 * (rows[:, None].square() + rows.square()))[None, None]
    value, gradient = energy_of(card, network).value_and_gradient(image)
    if not bool(torch.isfinite(value).all() and torch.isfinite(gradient).all()):
        raise PriorError(f"the prior in {folder} gives infinities or NaNs on a plain test image.")
