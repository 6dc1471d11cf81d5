"""Whether long chains stay where the data are: the test of an energy that training does not do."""

import math

import torch
from torch import Tensor, nn

from reconlib.energies.protocol import Energy
from reconlib.posterior.langevin import unadjusted_langevin
from reconlib.training.networks import as_energy
from reconlib.training.patches import PatchSampler
from reconlib.training.replay_buffer import ReplayBuffer
from reconlib.training.schedules import langevin_steps
from reconlib.training.settings import TrainSettings
from reconlib.training.steps import held_rim


def long_chain_gap(
    energy: Energy,
    held_out: Tensor,
    starts: Tensor,
    *,
    step_size: float,
    n_steps: int,
    generator: torch.Generator,
    held: Tensor | None = None,
) -> tuple[float, Tensor]:
    """Return ``mean R(held_out) - mean R(chains)`` per pixel in units of T, and the chains' images.

    ``held_out`` are data images with the training noise that the energy was not trained on, ``starts`` the
    images where the chains begin, both float32 (image, 1, y, x). Give ``n_steps`` ten times the length of the
    chains in training: an energy that is right only as far as those chains reach shows a gap then. A positive
    gap says that the model finds images it prefers to real ones.
    """
    chains = unadjusted_langevin(
        energy, starts, step_size=step_size, n_steps=n_steps, generator=generator, held=held
    )
    gap = energy.value(held_out).mean() - energy.value(chains).mean()
    return float(gap) / (energy.temperature * math.prod(held_out.shape[-2:])), chains


def long_chain_gap_of_run(
    network: nn.Module, settings: TrainSettings, held_out: Tensor, device: torch.device, *, n_chains: int = 32
) -> tuple[float, Tensor]:
    """Return :func:`long_chain_gap` of a network trained under these settings, on validation images.

    The chains are ten times as long as the last ones in training. Like those they begin at noisy images, half
    of them with their pixels shuffled. ``held_out`` is float16 (image, y, x).
    """
    chosen = settings.maximum_likelihood
    generator = torch.Generator(device).manual_seed(settings.seed + 2)
    sampler = PatchSampler(held_out, settings.data, device=device, generator=generator)
    held = held_rim(sampler.matrix, settings.data.rim, device)

    def noisy(n: int) -> Tensor:
        clean = sampler.draw(n)
        noise = torch.randn(clean.shape, generator=generator, device=device)
        return clean + settings.resolved_data_noise * noise

    starts = ReplayBuffer(n_chains, noisy, keep_chance=1.0, shuffle_every=2, generator=generator, held=held)
    return long_chain_gap(
        as_energy(network, settings),
        noisy(n_chains),
        starts.peek(n_chains),
        step_size=chosen.step_noise**2,
        n_steps=10 * langevin_steps(chosen, settings.n_updates),
        generator=generator,
        held=held,
    )
