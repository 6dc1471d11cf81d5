"""The network of a run: made, started from a prior, and seen as an energy while it is trained."""

from copy import deepcopy
from pathlib import Path

import torch
from torch import nn

from reconlib.energies.local import LocalEnergy, LocalEnergyNetwork, LocalEnergySizes
from reconlib.energies.network import NetworkEnergy
from reconlib.energies.paper import PaperNetwork
from reconlib.energies.protocol import Energy
from reconlib.priors.card import LocalArchitecture, PaperArchitecture
from reconlib.priors.library import load_prior
from reconlib.training.settings import TrainSettings


class WarmStartError(ValueError):
    """The run cannot start from the prior it names; the text says why."""


def build_network(settings: TrainSettings) -> nn.Module:
    """Return a network of the settings' architecture, from the prior that they name or with random weights.

    Random weights are torch's own choice and follow its global seed.
    """
    if settings.warm_start is not None:
        return _network_of_prior(settings, Path(settings.warm_start).expanduser())
    if settings.architecture == "paper":
        return PaperNetwork()
    sizes = settings.network
    return LocalEnergyNetwork(LocalEnergySizes(widths=sizes.widths, input_gain=sizes.input_gain))


def as_energy(network: nn.Module, settings: TrainSettings) -> Energy:
    """Return the energy of a network whose training goes on.

    The energy has the network's weights, in the same memory: it follows every update, yet takes no gradients
    with respect to them. Moving the network to another device breaks that; make the energy afterwards.
    """
    twin = deepcopy(network)
    for mine, theirs in zip(twin.parameters(), network.parameters(), strict=True):
        mine.data = theirs.data
    for mine_buffer, theirs_buffer in zip(twin.buffers(), network.buffers(), strict=True):
        mine_buffer.data = theirs_buffer.data
    if isinstance(twin, LocalEnergyNetwork):
        return LocalEnergy(twin, settings.card.noise_level, settings.resolved_temperature)
    return NetworkEnergy(twin, settings.resolved_temperature)


def _network_of_prior(settings: TrainSettings, folder: Path) -> nn.Module:
    prior = load_prior(folder, torch.device("cpu"))
    found = prior.card.architecture
    sizes = settings.network
    if settings.architecture == "local":
        wanted = f"local, widths {list(sizes.widths)}, input_gain {sizes.input_gain:g}"
        fits = isinstance(found, LocalArchitecture) and (found.widths, found.input_gain) == (
            sizes.widths,
            sizes.input_gain,
        )
    else:
        wanted, fits = "paper", isinstance(found, PaperArchitecture)
    if not fits or prior.network is None:
        has = found.model_dump(exclude={"noise_level"})
        raise WarmStartError(
            f"warm_start: the prior {prior.card.name!r} in {folder} has the architecture {has}, but the run "
            f"trains {wanted}. Name a prior of that architecture, or change architecture and network."
        )
    return prior.network.requires_grad_(True).train()
