"""Train a local energy by score matching."""

import json
import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.training.datasets import ImageArchive, PatchSampler
from reconlib.training.objectives import score_matching_loss
from reconlib.training.settings import TrainSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainProgress:
    """Where a run stands."""

    update: int
    n_updates: int
    loss: float
    """Mean score-matching loss since the last report; 1 is what a constant energy has."""
    validation: dict[str, float] | None
    """Validation loss per noise level, where it was measured."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A finished run."""

    network: LocalEnergyNetwork
    """With the averaged weights."""
    n_updates: int
    validation: dict[str, float]
    seconds: float


def build_network(settings: TrainSettings) -> LocalEnergyNetwork:
    """Return an untrained network of the settings' sizes."""
    sizes = settings.network
    return LocalEnergyNetwork(LocalEnergySizes(widths=sizes.widths, input_gain=sizes.input_gain))


def train(
    settings: TrainSettings,
    archive: ImageArchive,
    *,
    device: torch.device,
    log: Path | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
    on_progress: Callable[[TrainProgress, LocalEnergyNetwork], None] | None = None,
    report_every: int = 250,
) -> TrainResult:
    """Run ``settings.n_updates`` updates of AdamW, or fewer when ``out_of_time`` says so.

    The learning rate rises linearly over the warm-up and then falls to zero along a cosine; when time runs
    out early the averaged weights at that moment are the result.
    """
    torch.manual_seed(settings.seed)
    generator = torch.Generator(device).manual_seed(settings.seed)
    network = build_network(settings).to(device)
    average = deepcopy(network).requires_grad_(False)
    sampler = PatchSampler(archive.training, settings.data, device=device, generator=generator)
    validate = _Validation(archive, settings, device)
    loss_of = torch.compile(score_matching_loss) if settings.compile else score_matching_loss
    parameters, averages = list(network.parameters()), list(average.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    start = time.monotonic()
    losses: list[Tensor] = []
    validation: dict[str, float] = {}
    update = 0
    while update < settings.n_updates and not out_of_time():
        clean = sampler.draw(settings.batch)
        noise = torch.randn(clean.shape, generator=generator, device=device)
        low, high = (math.log(v) for v in settings.noise_range)
        uniform = torch.rand(len(clean), generator=generator, device=device)
        noise_level = torch.exp(low + (high - low) * uniform)
        loss = loss_of(network, clean, noise, noise_level, settings.data.margin).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(parameters, settings.gradient_clip)
        optimiser.param_groups[0]["lr"] = _learning_rate(settings, update)
        optimiser.step()
        with torch.no_grad():
            for mean, newest in zip(averages, parameters, strict=True):
                mean.lerp_(newest, settings.ema)
        losses.append(loss.detach())
        update += 1
        if update % report_every == 0 or update == settings.n_updates:
            measured = update % (4 * report_every) == 0 or update == settings.n_updates
            validation = validate(average) if measured else validation
            progress = TrainProgress(
                update=update,
                n_updates=settings.n_updates,
                loss=float(torch.stack(losses).mean()),
                validation=validation if measured else None,
                seconds=time.monotonic() - start,
            )
            losses.clear()
            _report(progress, log)
            if on_progress is not None:
                on_progress(progress, average)
            if not math.isfinite(progress.loss):
                raise FloatingPointError(
                    f"The score-matching loss is {progress.loss} at update {update}; lower learning_rate "
                    f"(now {settings.learning_rate}) or gradient_clip (now {settings.gradient_clip})."
                )
    return TrainResult(
        network=average.cpu(), n_updates=update, validation=validation, seconds=time.monotonic() - start
    )


def _learning_rate(settings: TrainSettings, update: int) -> float:
    if update < settings.warmup_updates:
        return settings.learning_rate * (update + 1) / settings.warmup_updates
    done = (update - settings.warmup_updates) / max(1, settings.n_updates - settings.warmup_updates)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


class _Validation:
    """Loss of the averaged weights on fixed patches of the validation subjects, at fixed noise levels."""

    levels = (0.01, 0.02, 0.05, 0.1)

    def __init__(self, archive: ImageArchive, settings: TrainSettings, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(settings.seed + 1)
        sampler = PatchSampler(archive.validation, settings.data, device=device, generator=generator)
        self._clean = torch.cat([sampler.draw(16) for _ in range(4)])
        self._noise = torch.randn(self._clean.shape, generator=generator, device=device)
        self._margin = settings.data.margin

    def __call__(self, network: LocalEnergyNetwork) -> dict[str, float]:
        losses = {}
        for level in self.levels:
            total = 0.0
            for clean, noise in zip(torch.split(self._clean, 16), torch.split(self._noise, 16), strict=True):
                noise_level = torch.full((len(clean),), level, device=clean.device)
                with torch.no_grad():
                    loss = score_matching_loss(network, clean, noise, noise_level, self._margin)
                total += float(loss.sum())
            losses[f"{level:g}"] = total / len(self._clean)
        return losses


def _report(progress: TrainProgress, log: Path | None) -> None:
    if log is not None:
        row = {"update": progress.update, "loss": progress.loss, "seconds": round(progress.seconds, 1)}
        if progress.validation is not None:
            row |= {f"validation_{level}": loss for level, loss in progress.validation.items()}
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
