"""A sampling of the posterior that only does what a test tells it to, and keeps what happened."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from simulated_scans import StandIn, reconstructor, settings

from gadget.pipeline import reconstruct_stream
from gadget.settings import Settings
from gadget.wire.messages import Image, Message
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.posterior import Posterior
from reconlib.reconstruction import Reconstruction


@dataclass
class ScriptedSampling:
    """Stands in the place of PosteriorRun: mean = image, std = a tenth of its magnitude.

    ``on_step`` may raise or look at the world; it gets the number of the batch (from 1) and of the step (from
    1; 0 for the start). ``events`` has an entry for each of these.
    """

    n_steps: int = 3
    outcomes: Iterable[PosteriorOutcome] = ()
    on_step: Callable[[int, int], None] = lambda _batch, _step: None
    std_factor: float = 1.0
    events: list[tuple[int, int]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._outcomes = iter(self.outcomes)

    def __call__(self, kspace: KSpace, reconstruction: Reconstruction, **others: Any) -> "ScriptedRun":
        self.calls.append({"kspace": kspace, "reconstruction": reconstruction, **others})
        number = len(self.calls)
        self.took_step(number, 0)
        return ScriptedRun(self, number)

    def took_step(self, batch: int, step: int) -> None:
        self.events.append((batch, step))
        self.on_step(batch, step)

    def next_outcome(self, otherwise: PosteriorOutcome) -> PosteriorOutcome:
        return next(self._outcomes, otherwise)


class ScriptedRun:
    """One run of the script."""

    def __init__(self, script: ScriptedSampling, number: int) -> None:
        self._script = script
        self._number = number
        self.n_steps = script.n_steps
        self.n_done = 0

    def advance(self) -> bool:
        if self.n_done == self.n_steps:
            return False
        self.n_done += 1
        self._script.took_step(self._number, self.n_done)
        return True

    def result(self, *, out_of_time: bool = False) -> Posterior:
        call = self._script.calls[self._number - 1]
        image = call["to_output"](call["reconstruction"].image)
        std = image.abs().float() / 10
        outcomes = []
        for row, joint in enumerate(call["reconstruction"].outcomes):
            usual = PosteriorOutcome.TOO_SHORT if out_of_time else PosteriorOutcome.DONE
            if joint is Outcome.ALL_ZERO:
                usual = PosteriorOutcome.ALL_ZERO
            outcomes.append(self._script.next_outcome(usual))
            if outcomes[-1] is PosteriorOutcome.NOT_FINITE or self.n_done < 2:
                image[row], std[row] = complex(math.nan, math.nan), math.nan
        n = len(outcomes)
        return Posterior(
            mean=image,
            std=std * self._script.std_factor,
            outcomes=tuple(outcomes),
            n_chains=4,
            n_draws=self.n_done,
            worst_rhat=(1.03125,) * n if self.n_done > 1 else (math.nan,) * n,
            smallest_ess=(250.0,) * n if self.n_done > 1 else (math.nan,) * n,
            sigma=call["reconstruction"].noise_level,
            effective_temperature=(0.5,) * n,
            std_factor=self._script.std_factor,
            sampler=call["settings"].sampler,
            seconds=6.0,
            acceptance=None,
        )


def ramp(result: Any) -> None:
    """Let a stand-in's image rise along y, with a phase, so that places and phases matter."""
    n_y = result.image.shape[2]
    result.image *= torch.linspace(0.5, 1.0, n_y)[:, None] * complex(0.6, 0.8)


def sampling_stream(
    messages: Iterable[Message],
    script: ScriptedSampling | None = None,
    joint: StandIn | None = None,
    chosen: Settings | None = None,
    clock: Callable[[], float] | None = None,
    **others: Any,
) -> Iterator[Message]:
    """Return the answers to a stream one by one, with stand-ins for joint reconstruction and sampling."""
    made = reconstructor(
        joint or StandIn(), sampling=script or ScriptedSampling(), **({"clock": clock} if clock else {})
    )
    return reconstruct_stream(
        messages, chosen or settings(posterior__enabled=True), reconstructor=made, **others
    )


def run_sampling(*arguments: Any, **others: Any) -> list[Message]:
    """Return all answers of such a stream."""
    return list(sampling_stream(*arguments, **others))


def kinds(answers: Iterable[Message]) -> list[tuple[int, int]]:
    """Return series and image index of the images, in the order in which they left."""
    return [
        (int(one.header["image_series_index"]), int(one.header["image_index"]))
        for one in answers
        if isinstance(one, Image)
    ]
