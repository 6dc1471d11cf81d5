"""Find, check and load prior packages.

A package is a folder with ``card.yaml`` and, where there are weights, ``prior.safetensors``.
Nothing in a package is executed: the card is plain YAML checked against a schema, the weights are
safetensors whose SHA-256 stands in the card.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
import yaml
from pydantic import ValidationError
from torch import Tensor, nn

from reconlib.energies.local import LocalEnergy, LocalEnergyNetwork, LocalEnergySizes
from reconlib.energies.network import NetworkEnergy
from reconlib.energies.paper import PaperNetwork
from reconlib.energies.protocol import Energy
from reconlib.energies.total_variation import TotalVariation
from reconlib.priors.card import LocalArchitecture, PaperArchitecture, PriorCard

CARD_FILE = "card.yaml"
WEIGHTS_FILE = "prior.safetensors"
_ALIASES = {"tv": "total-variation"}
_LARGEST_CARD_BYTES = 1 << 20


class PriorError(Exception):
    """A prior cannot be used; the text says what is wrong and what to do."""


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A loaded prior."""

    card: PriorCard
    energy: Energy


def find_prior(name_or_folder: str, search: Sequence[Path]) -> Path:
    """Return the folder of a prior given by name (looked up in ``search``, in order) or by its folder.

    A text with a path separator, or that begins with a dot, is a folder; anything else is a name.
    """
    if "/" in name_or_folder or name_or_folder.startswith("."):
        folder = Path(name_or_folder).expanduser()
        if not (folder / CARD_FILE).is_file():
            raise PriorError(f"the folder {folder} has no {CARD_FILE}; name the folder of a prior package.")
        return folder
    name = _ALIASES.get(name_or_folder, name_or_folder)
    for place in search:
        if (place / name / CARD_FILE).is_file():
            return place / name
    known = sorted({folder.name for folder in _packages(search)})
    raise PriorError(
        f"there is no prior named {name_or_folder!r}; known are {', '.join(known) or 'none'}. "
        "Take one of these, or give the folder of a prior package (./FOLDER)."
    )


def list_priors(search: Sequence[Path]) -> list[tuple[Path, PriorCard]]:
    """Return the packages in ``search`` whose cards can be read, the first of each name."""
    found: dict[str, tuple[Path, PriorCard]] = {}
    for folder in _packages(search):
        found.setdefault(folder.name, (folder, read_card(folder)))
    return list(found.values())


def read_card(folder: Path) -> PriorCard:
    """Read and check a card; all faults are named at once."""
    path = folder / CARD_FILE
    try:
        if path.stat().st_size > _LARGEST_CARD_BYTES:
            raise PriorError(f"{path} is larger than {_LARGEST_CARD_BYTES} bytes; that is no card.")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PriorError(f"{path} cannot be read as YAML: {error}") from error
    try:
        return PriorCard.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'card'}: {fault['msg']}"
            for fault in error.errors()
        )
        raise PriorError(f"{path} is no valid card: {faults}") from error


def verify_prior(folder: Path) -> PriorCard:
    """Check the card, the weights' hash, and that the weights fit the architecture; return the card."""
    load_prior(folder, torch.device("cpu"))
    return read_card(folder)


def load_prior(folder: Path, device: torch.device) -> Prior:
    """Load a prior onto a device after checking everything that can be checked."""
    card = read_card(folder)
    architecture = card.architecture
    network: nn.Module
    energy: Energy
    if isinstance(architecture, LocalArchitecture):
        sizes = LocalEnergySizes(widths=architecture.widths, input_gain=architecture.input_gain)
        network = LocalEnergyNetwork(sizes)
        _fill(network, _read_weights(folder, card), folder)
        energy = LocalEnergy(network.to(device), architecture.noise_level, card.temperature)
    elif isinstance(architecture, PaperArchitecture):
        network = PaperNetwork()
        _fill(network, _read_weights(folder, card), folder)
        energy = NetworkEnergy(network.to(device), card.temperature)
    else:
        energy = TotalVariation(card.temperature, architecture.epsilon)
    return Prior(card, energy)


def write_prior(folder: Path, card: PriorCard, weights: dict[str, Tensor]) -> PriorCard:
    """Write a new package; the card gets the weights' SHA-256. The folder must not exist."""
    folder.mkdir(parents=True)
    blob = safetensors.torch.save({name: value.cpu().contiguous() for name, value in weights.items()})
    (folder / WEIGHTS_FILE).write_bytes(blob)
    card = card.model_copy(update={"sha256": hashlib.sha256(blob).hexdigest()})
    text = yaml.safe_dump(
        card.model_dump(mode="json", exclude_none=True), sort_keys=False, allow_unicode=True
    )
    (folder / CARD_FILE).write_text(text, encoding="utf-8")
    return card


def _packages(search: Sequence[Path]) -> list[Path]:
    return [
        folder
        for place in search
        if place.is_dir()
        for folder in sorted(place.iterdir())
        if (folder / CARD_FILE).is_file()
    ]


def _read_weights(folder: Path, card: PriorCard) -> dict[str, Tensor]:
    path = folder / WEIGHTS_FILE
    if card.sha256 is None:
        raise PriorError(
            f"{folder / CARD_FILE} has no sha256; the weights of {card.name!r} cannot be trusted."
        )
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise PriorError(f"the weights {path} cannot be read: {error.strerror}") from error
    found = hashlib.sha256(blob).hexdigest()
    if found != card.sha256:
        raise PriorError(
            f"the weights {path} have SHA-256 {found}, but the card of {card.name!r} names {card.sha256}: "
            "the file was changed or damaged. Install the prior again."
        )
    try:
        return safetensors.torch.load(blob)
    except safetensors.SafetensorError as error:
        raise PriorError(f"{path} is no safetensors file ({error}); other formats are not read.") from error


def _fill(network: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if wanted != found:
        names = sorted(set(wanted.items()) ^ set(found.items()))[:3]
        raise PriorError(
            f"the weights in {folder} do not fit the card's architecture; differences at "
            f"{', '.join(f'{name} {shape}' for name, shape in names)}."
        )
    if any(not bool(torch.isfinite(value).all()) for value in weights.values()):
        raise PriorError(f"the weights in {folder} hold infinities or NaNs.")
    network.load_state_dict(weights)
