"""Find, load, write and verify prior packages.

A package is a folder with ``card.yaml`` and, where there are weights, ``prior.safetensors``.
Nothing in a package is executed: the card is plain YAML checked against a schema, the weights are
safetensors whose SHA-256 stands in the card.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from reconlib.energies.local import LocalEnergy, LocalEnergyNetwork
from reconlib.energies.network import NetworkEnergy
from reconlib.energies.orientation import OrientedEnergy
from reconlib.energies.protocol import Energy
from reconlib.energies.replayed import replayed_on_cuda
from reconlib.energies.total_variation import TotalVariation
from reconlib.priors.card import LocalArchitecture, PriorCard, TotalVariationArchitecture
from reconlib.priors.card_file import CARD_FILE, card_text, read_card, rewrite_card, write_at_once
from reconlib.priors.errors import PriorError
from reconlib.priors.weights_file import (
    WEIGHTS_FILE,
    check_finite,
    check_fit,
    check_hash,
    empty_network,
    parse_weights,
    read_weights_blob,
)

__all__ = [
    "CARD_FILE",
    "WEIGHTS_FILE",
    "ListedPrior",
    "Prior",
    "PriorError",
    "energy_of",
    "find_prior",
    "list_priors",
    "load_prior",
    "read_card",
    "rewrite_card",
    "verify_prior",
    "write_prior",
]

_ALIASES = {"tv": "total-variation"}


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A loaded prior."""

    card: PriorCard
    energy: Energy
    network: nn.Module | None = None
    """The network inside the energy, on the same device; None where there is none."""


@dataclass(frozen=True, slots=True)
class ListedPrior:
    """What a search found under a name."""

    name: str
    """The folder's name, by which the prior is found."""
    folder: Path
    card: PriorCard | None
    """None where the package is broken."""
    fault: str = ""
    """Why it is broken."""


def find_prior(name_or_folder: str, search: Sequence[Path]) -> Path:
    """Return the folder of a prior given by name (looked up in ``search``, in order) or by its folder.

    A text with a path separator, or that begins with a dot, is a folder; anything else is a name.
    """
    if "/" in name_or_folder or name_or_folder.startswith("."):
        folder = Path(name_or_folder).expanduser()
        if not os.path.isfile(folder / CARD_FILE):  # noqa: PTH113 - never raises, also without permission
            raise PriorError(f"the folder {folder} has no {CARD_FILE}; name the folder of a prior package.")
        return folder
    name = _ALIASES.get(name_or_folder, name_or_folder)
    for place in search:
        if os.path.isfile(place / name / CARD_FILE):  # noqa: PTH113 - as above
            return place / name
    known = sorted({one.name for one in list_priors(search) if one.card is not None})
    raise PriorError(
        f"there is no prior named {name_or_folder!r}; known are {', '.join(known) or 'none'}. "
        "Take one of these, or give the folder of a prior package (./FOLDER)."
    )


def list_priors(search: Sequence[Path]) -> list[ListedPrior]:
    """Return what is in ``search``: the first package of each name, broken ones with the reason.

    Only cards are read. A place that cannot be read is listed as broken itself; one that is not there is
    skipped.
    """
    found: dict[str, ListedPrior] = {}
    for place in search:
        try:
            folders = sorted(folder for folder in place.iterdir() if not folder.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.setdefault(str(place), ListedPrior(str(place), place, None, f"{error.strerror}"))
            continue
        for folder in folders:
            if folder.name in found or not _is_package(folder):
                continue
            try:
                found[folder.name] = ListedPrior(folder.name, folder, read_card(folder))
            except PriorError as error:
                found[folder.name] = ListedPrior(folder.name, folder, None, str(error))
    return list(found.values())


def verify_prior(folder: Path) -> PriorCard:
    """Check the card, the weights' hash, and that the weights fit the architecture; return the card.

    :func:`reconlib.priors.verification.check_package` tells all faults at once.
    """
    return load_prior(folder, torch.device("cpu")).card


def load_prior(folder: Path, device: torch.device) -> Prior:
    """Load a prior onto a device after checking everything that can be checked.

    No memory is taken for a network before the weights are known to fit it. On a CUDA device calls of the
    energy are replayed (:mod:`reconlib.energies.replayed`).

    How exact convolutions are on a GPU is left to torch: unless a program sets
    ``torch.backends.cudnn.allow_tf32`` to False, cuDNN may round what it multiplies to the 11 bits of TF32.
    (Matrix products are not rounded.) With that rounding done on a CPU, energies of the shipped local prior
    changed by 3e-5 and gradients by 1 % at most, and the PSNR of a reconstruction by 0.002 dB.
    """
    card = read_card(folder)
    network = empty_network(card)
    if network is not None:
        blob = read_weights_blob(folder)
        check_hash(blob, card, folder)
        weights = parse_weights(blob, folder)
        check_fit(network, weights, folder)
        check_finite(weights, folder)
        network.load_state_dict(weights, assign=True)
        network.to(device)
    return Prior(card, energy_of(card, network), network)


def energy_of(card: PriorCard, network: nn.Module | None) -> Energy:
    """Return the energy that a card describes, of a network with the weights in place."""
    architecture, turned = card.architecture, card.input
    energy: Energy
    if isinstance(architecture, TotalVariationArchitecture):
        energy = TotalVariation(card.temperature, architecture.epsilon)
    elif isinstance(architecture, LocalArchitecture) and isinstance(network, LocalEnergyNetwork):
        # on a CPU its transposed convolutions with stride are then four times as fast
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs
        energy = LocalEnergy(network, architecture.noise_level, card.temperature)
    elif network is not None:
        energy = NetworkEnergy(network, card.temperature)
    else:
        raise ValueError(f"the architecture {architecture.kind!r} needs its network.")
    if turned.rotation_degrees or turned.transpose:
        energy = OrientedEnergy(energy, turned.rotation_degrees // 90, turned.transpose)
    return energy if network is None else replayed_on_cuda(energy, network)


def write_prior(folder: Path, card: PriorCard, weights: dict[str, Tensor]) -> PriorCard:
    """Write a new package, whole or not at all; the card gets the weights' SHA-256.

    Raises
    ------
    FileExistsError
        The folder exists.
    """
    if folder.exists() or folder.is_symlink():
        raise FileExistsError(f"{folder} exists; a prior package is written to a new folder.")
    blob = safetensors.torch.save({name: value.cpu().contiguous() for name, value in weights.items()})
    card = card.model_copy(update={"sha256": hashlib.sha256(blob).hexdigest()})
    write_package(folder, card_text(card).encode("utf-8"), blob)
    return card


def write_package(folder: Path, card: bytes, weights: bytes | None) -> None:
    """Write the two files to a folder beside, which then takes the name of the new folder."""
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        write_at_once(part / CARD_FILE, card)
        if weights is not None:
            write_at_once(part / WEIGHTS_FILE, weights)
        part.rename(folder)
    except OSError as error:
        raise PriorError(f"{folder} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _is_package(folder: Path) -> bool:
    """Whether a folder is meant to be a package: it has a card, or weights that lack theirs."""
    return any(os.path.lexists(folder / name) for name in (CARD_FILE, WEIGHTS_FILE))
