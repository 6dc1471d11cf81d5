"""Everything that changes in the course of a run, and how it is saved and brought back."""

import hashlib
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from reconlib.training.checkpoint import CheckpointError, State
from reconlib.training.distributed import Processes
from reconlib.training.guard import Guard, UpdateSeen
from reconlib.training.networks import build_network
from reconlib.training.optimisers import make_optimiser
from reconlib.training.patches import PatchSampler
from reconlib.training.schedules import learning_rate
from reconlib.training.settings import TrainSettings
from reconlib.training.steps import make_step

_FORMAT = 1


class RunState:
    """Weights, their average, optimiser, schedule, replay buffer, random states, and what the guard saw.

    Two states with equal :meth:`shared` and :meth:`own` go on alike, bit by bit on a CPU. All random numbers
    after the first weights come from two generators, one for the patches, one for noise and chains; every
    process has its own pair.
    """

    def __init__(self, settings: TrainSettings, images: Tensor, processes: Processes) -> None:
        self.settings, self._processes = settings, processes
        device = processes.device
        torch.manual_seed(settings.seed)
        self.network: nn.Module = build_network(settings).to(device)
        self.average = deepcopy(self.network).requires_grad_(False)
        self._parameters, self._averages = list(self.network.parameters()), list(self.average.parameters())
        self.optimiser = make_optimiser(self._parameters, settings.optimiser)
        self._generators = {
            name: torch.Generator(device).manual_seed(_stream(settings.seed, processes.rank, name))
            for name in ("patches", "chains")
        }
        sampler = PatchSampler(images, settings.data, device=device, generator=self._generators["patches"])
        self.step = make_step(self.network, settings, sampler, self._generators["chains"], processes)
        self.guard = Guard(settings.guard)
        self._data = fingerprint(images)
        self.update = 0
        self.rate_factor = 1.0
        self.n_rollbacks = 0
        self.trouble_at = -1
        """The furthest update at which the guard saw trouble."""
        self.failures = 0
        """How often the run went back since it last got past that."""
        self.best: float | None = None
        self.seconds = 0.0
        self.unreported: list[dict[str, float]] = []
        """What was seen in each update since the last line of the log."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and reports."""
        return self._processes.leads

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self._processes.device

    @property
    def n_processes(self) -> int:
        """How many processes take part."""
        return self._processes.count

    def try_update(self, *, stopping: bool) -> tuple[str | None, bool]:
        """Make one update, unless it shows trouble; return the trouble and whether any process stops."""
        self.optimiser.zero_grad(set_to_none=True)
        seen, stop = self._agreed(self.step(self.update), stopping=stopping)
        trouble = self.guard.trouble(seen)
        if trouble is not None:
            return trouble, stop
        rate = self.rate_factor * learning_rate(self.settings.optimiser, self.update, self.settings.n_updates)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        # the plain mean of all weights so far, until that is what the running average gives
        share = max(self.settings.ema, 1 / (self.update + 1))
        with torch.no_grad():
            for mean, newest in zip(self._averages, self._parameters, strict=True):
                mean.lerp_(newest, share)
        self.update += 1
        row = {"gradient_norm": seen.gradient_norm, "learning_rate": rate}
        row |= {"loss": seen.loss} if seen.loss is not None else {}
        row |= {"gap": seen.gap} if seen.gap is not None else {}
        if seen.sample_range is not None:
            row |= {"sample_low": seen.sample_range[0], "sample_high": seen.sample_range[1]}
        self.unreported.append(row)
        return None, stop

    def _agreed(self, seen: UpdateSeen, *, stopping: bool) -> tuple[UpdateSeen, bool]:
        """What all processes saw together; they all decide on the same numbers."""
        limit = self.settings.optimiser.gradient_clip
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, float("inf") if limit is None else limit)
        low, high = seen.sample_range or (0.0, 0.0)
        loss, gap = self._processes.mean([seen.loss or 0.0, seen.gap or 0.0])
        low, high, stop = self._processes.largest([-low, high, float(stopping)])
        agreed = UpdateSeen(
            gradient_norm=float(norm),
            loss=None if seen.loss is None else loss,
            gap=None if seen.gap is None else gap,
            sample_range=None if seen.sample_range is None else (-low, high),
        )
        return agreed, bool(stop)

    def shared(self) -> State:
        """The part of the state that all processes have alike."""
        return {
            "format": _FORMAT,
            "settings": self.settings.model_dump(mode="json"),
            "data": self._data,
            "processes": self._processes.count,
            "update": self.update,
            "rate_factor": self.rate_factor,
            "n_rollbacks": self.n_rollbacks,
            "trouble_at": self.trouble_at,
            "failures": self.failures,
            "best": self.best,
            "seconds": self.seconds,
            "unreported": self.unreported,
            "weights": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "guard": self.guard.state(),
        }

    def own(self) -> State:
        """The part that is this process' own: random states and replay buffer."""
        return {
            "generators": {name: g.get_state() for name, g in self._generators.items()},
            "step": self.step.state(),
        }

    def restore(self, shared: State, own: State) -> None:
        """Go on from a saved state of the same run."""
        self.network.load_state_dict(shared["weights"])
        self.average.load_state_dict(shared["average"])
        self.optimiser.load_state_dict(shared["optimiser"])
        self.guard.restore(shared["guard"])
        self.update, self.rate_factor = shared["update"], shared["rate_factor"]
        self.n_rollbacks, self.best = shared["n_rollbacks"], shared["best"]
        self.trouble_at, self.failures = shared["trouble_at"], shared["failures"]
        self.seconds, self.unreported = shared["seconds"], list(shared["unreported"])
        for name, state in own["generators"].items():
            self._generators[name].set_state(state)
        self.step.restore(own["step"])

    def check_same_run(self, shared: State, place: str) -> None:
        """Refuse a state that was saved under other settings, with other images or processes."""
        if shared.get("format") != _FORMAT:
            raise CheckpointError(
                f"the checkpoint {place} has format {shared.get('format')}; this version reads {_FORMAT}."
            )
        now, then = _flat(self.settings.model_dump(mode="json")), _flat(shared["settings"])
        changed = [
            f"{key} (then {then.get(key, 'not there')}, now {now.get(key, 'not there')})"
            for key in sorted(now.keys() | then.keys())
            if now.get(key) != then.get(key)
        ]
        if shared["processes"] != self._processes.count:
            changed.append(
                f"the number of processes (then {shared['processes']}, now {self._processes.count})"
            )
        if shared["data"] != self._data:
            changed.append("the training images")
        if changed:
            raise CheckpointError(
                f"the run in {place} cannot be resumed with other settings; what differs: "
                f"{'; '.join(changed)}. Set them back, or start a new run."
            )


def fingerprint(images: Tensor) -> str:
    """Shape and a hash of (at most 256 of) the images, to tell whether a run goes on with the same ones."""
    some = images[:: max(1, len(images) // 256)].contiguous().cpu()
    digest = hashlib.sha256(some.numpy().tobytes()).hexdigest()[:16]
    return f"{'x'.join(map(str, images.shape))} {digest}"


def _stream(seed: int, rank: int, name: str) -> int:
    """Return a seed that differs between processes and purposes."""
    digest = hashlib.sha256(f"{seed} {rank} {name}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
