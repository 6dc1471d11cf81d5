"""One update of each objective, up to the gradients of the weights."""

import math
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from reconlib.energies.protocol import Energy
from reconlib.posterior.langevin import unadjusted_langevin
from reconlib.training.distributed import Processes
from reconlib.training.disturbances import disturbed
from reconlib.training.guard import UpdateSeen
from reconlib.training.networks import as_energy
from reconlib.training.objectives import EnergyGap, ScoreMatching
from reconlib.training.patches import PatchSampler
from reconlib.training.replay_buffer import ReplayBuffer
from reconlib.training.schedules import langevin_steps
from reconlib.training.settings import TrainSettings


@runtime_checkable
class Step(Protocol):
    """An objective at work."""

    def __call__(self, update: int) -> UpdateSeen:
        """Leave the gradients of update 0, 1, ... in the weights' ``grad``; tell what was seen.

        The gradients are means over all processes; what is seen is this process' own part, and the gradient
        norm is not yet known (0).
        """
        ...

    def samples(self, n: int) -> Tensor:
        """Up to n draws from the model, float32 (n, 1, y, x); the run's random states stay as they are."""
        ...

    def state(self) -> dict[str, Any]:
        """What the objective keeps from update to update, random states aside."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        ...


def make_step(
    network: nn.Module,
    settings: TrainSettings,
    sampler: PatchSampler,
    generator: torch.Generator,
    processes: Processes,
) -> Step:
    """Return the step of the settings' objective; ``generator`` serves noise and chains."""
    if settings.objective == "score-matching":
        return ScoreMatchingStep(network, settings, sampler, generator, processes)
    return MaximumLikelihoodStep(network, settings, sampler, generator, processes)


class ScoreMatchingStep:
    """Score matching at random noise levels."""

    _chain_length = 200

    def __init__(
        self,
        network: nn.Module,
        settings: TrainSettings,
        sampler: PatchSampler,
        generator: torch.Generator,
        processes: Processes,
    ) -> None:
        self._settings, self._sampler, self._generator = settings, sampler, generator
        self._batch = processes.share(settings.batch, "batch")
        loss = ScoreMatching(network, settings.data.rim, settings.resolved_temperature)
        if settings.compile:
            loss.compile()
        self._loss = processes.averaging(loss)
        self._energy: Energy = as_energy(network, settings)
        self._starts = sampler.draw(16)

    def __call__(self, update: int) -> UpdateSeen:
        """See :class:`Step`."""
        del update
        clean = self._sampler.draw(self._batch)
        noise = torch.randn(clean.shape, generator=self._generator, device=clean.device)
        low, high = (math.log(v) for v in self._settings.score_matching.noise_range)
        uniform = torch.rand(len(clean), generator=self._generator, device=clean.device)
        noise_level = torch.exp(low + (high - low) * uniform)
        if share := self._settings.score_matching.disturbed:
            clean, noise = disturbed(clean, noise, noise_level, share, self._generator)
        with _precision(clean, self._settings):
            loss = self._loss(clean, noise, noise_level)
        loss.backward()
        return UpdateSeen(gradient_norm=0.0, loss=loss.item())

    def samples(self, n: int) -> Tensor:
        """Run short Langevin chains from noisy patches, the same ones with the same noise every time."""
        noise_level = self._settings.card.noise_level
        generator = torch.Generator(self._generator.device).manual_seed(self._settings.seed)
        noise = torch.randn(self._starts.shape, generator=generator, device=generator.device)
        return unadjusted_langevin(
            self._energy,
            (self._starts + noise_level * noise)[:n],
            step_size=self._settings.maximum_likelihood.step_noise**2,
            n_steps=self._chain_length,
            generator=generator,
            held=held_rim(self._sampler.matrix, self._settings.data.rim, generator.device),
        )

    def state(self) -> dict[str, Any]:
        """Nothing is kept."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


class MaximumLikelihoodStep:
    """Maximum likelihood with persistent Langevin chains; the buffer is divided among the processes."""

    def __init__(
        self,
        network: nn.Module,
        settings: TrainSettings,
        sampler: PatchSampler,
        generator: torch.Generator,
        processes: Processes,
    ) -> None:
        self._settings, self._sampler, self._generator = settings, sampler, generator
        self._batch = processes.share(settings.batch, "batch")
        gap = EnergyGap(network, settings.card.noise_level)
        if settings.compile:
            gap.compile()
        self._gap = processes.averaging(gap)
        self.energy: Energy = as_energy(network, settings)
        self.held = held_rim(sampler.matrix, settings.data.rim, generator.device)
        chosen = settings.maximum_likelihood
        self.buffer = ReplayBuffer(
            processes.share(chosen.buffer_size, "maximum_likelihood.buffer_size"),
            self.noisy_data,
            keep_chance=chosen.keep_chance,
            shuffle_every=chosen.shuffle_every,
            generator=generator,
            held=self.held,
        )

    def noisy_data(self, n: int) -> Tensor:
        """Draw images of the density that the model is to have, float32 (n, 1, y, x)."""
        clean = self._sampler.draw(n)
        noise = torch.randn(clean.shape, generator=self._generator, device=clean.device)
        return clean + self._settings.resolved_data_noise * noise

    def __call__(self, update: int) -> UpdateSeen:
        """See :class:`Step`."""
        chosen = self._settings.maximum_likelihood
        places, starts = self.buffer.draw(self._batch)
        with _precision(starts, self._settings):
            samples = unadjusted_langevin(
                self.energy,
                starts,
                step_size=chosen.step_noise**2,
                n_steps=langevin_steps(chosen, update),
                generator=self._generator,
                held=self.held,
            )
        self.buffer.put_back(places, samples)
        data = self.noisy_data(self._batch)
        with _precision(data, self._settings):
            gap = self._gap(data, samples)
        gap.backward()
        per_pixel = self._settings.resolved_temperature * math.prod(self._sampler.matrix)
        return UpdateSeen(
            gradient_norm=0.0,
            gap=gap.item() / per_pixel,
            sample_range=(samples.min().item(), samples.max().item()),
        )

    def samples(self, n: int) -> Tensor:
        """Return images of the buffer."""
        return self.buffer.peek(n)

    def state(self) -> dict[str, Any]:
        """Return the buffer's state."""
        return self.buffer.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the buffer."""
        self.buffer.restore(state)


def held_rim(matrix: tuple[int, int], rim: int, device: torch.device) -> Tensor | None:
    """Mark the rim (y, x) of a patch, which chains leave as it is; nothing where there is none."""
    if rim == 0:
        return None
    held = torch.ones(matrix, dtype=torch.bool, device=device)
    held[rim:-rim, rim:-rim] = False
    return held


def _precision(images: Tensor, settings: TrainSettings) -> AbstractContextManager[None]:
    return torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=settings.mixed_precision)
