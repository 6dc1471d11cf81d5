"""Read ``prior.safetensors``: hashed, never unpickled, measured before any network is made."""

import hashlib
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.energies.paper import PaperNetwork
from reconlib.priors.card import LocalArchitecture, PaperArchitecture, PriorCard
from reconlib.priors.card_file import CARD_FILE, read_limited
from reconlib.priors.errors import PriorError

WEIGHTS_FILE = "prior.safetensors"
LARGEST_WEIGHTS_BYTES = 1 << 31


def empty_network(card: PriorCard) -> nn.Module | None:
    """Return the network that a card describes, on the meta device: shapes without memory.

    None where the architecture has no weights.
    """
    architecture = card.architecture
    with torch.device("meta"):
        if isinstance(architecture, LocalArchitecture):
            sizes = LocalEnergySizes(widths=architecture.widths, input_gain=architecture.input_gain)
            return LocalEnergyNetwork(sizes)
        if isinstance(architecture, PaperArchitecture):
            return PaperNetwork(outside_weight=architecture.outside_weight * card.temperature)
    return None


def read_weights_blob(folder: Path) -> bytes:
    """Return the bytes of a package's weights file."""
    try:
        return read_limited(folder / WEIGHTS_FILE, LARGEST_WEIGHTS_BYTES, "no prior is that large")
    except PriorError as error:
        raise PriorError(f"the weights {error}") from error


def check_hash(blob: bytes, card: PriorCard, folder: Path) -> None:
    """Refuse weights that are not those that the card names."""
    if card.sha256 is None:
        raise PriorError(
            f"{folder / CARD_FILE} has no sha256; the weights of {card.name!r} cannot be trusted."
        )
    found = hashlib.sha256(blob).hexdigest()
    if found != card.sha256:
        raise PriorError(
            f"the weights {folder / WEIGHTS_FILE} have SHA-256 {found}, but the card of {card.name!r} names "
            f"{card.sha256}: the file was changed or damaged. Install the prior again."
        )


def parse_weights(blob: bytes, folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name."""
    try:
        return safetensors.torch.load(blob)
    except (safetensors.SafetensorError, KeyError) as error:  # KeyError: a type that torch does not have
        raise PriorError(
            f"{folder / WEIGHTS_FILE} is no safetensors file ({error}); other formats are not read."
        ) from error


def check_fit(network: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Refuse weights of other names, shapes or types than the network's."""
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if wanted != found:
        names = sorted({name for name, _ in set(wanted.items()) ^ set(found.items())})
        differences = "; ".join(
            f"{name}: {_shape(found.get(name))} instead of {_shape(wanted.get(name))}" for name in names[:3]
        )
        more = f"; and {len(names) - 3} more" if len(names) > 3 else ""
        raise PriorError(
            f"the weights in {folder} do not fit the card's architecture; differences at {differences}{more}."
        )
    other = [f"{name} ({value.dtype})" for name, value in weights.items() if value.dtype != torch.float32]
    if other:
        raise PriorError(f"the weights in {folder} need to be float32, but {other[0]} is not; convert them.")


def check_finite(weights: dict[str, Tensor], folder: Path) -> None:
    """Refuse weights with infinities or NaNs."""
    bad = [name for name, value in weights.items() if not bool(torch.isfinite(value).all())]
    if bad:
        raise PriorError(f"the weights in {folder} hold infinities or NaNs, in {bad[0]}.")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else str(shape)
