"""Train an energy: updates, checkpoints, the way back from divergence, and what is written on the way."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from torch import Tensor, nn

from reconlib.training.checkpoint import CheckpointError, Checkpoints, read_state, write_whole
from reconlib.training.distributed import Processes
from reconlib.training.guard import TrainingDiverged
from reconlib.training.long_chains import long_chain_gap_of_run
from reconlib.training.pictures import RunPictures
from reconlib.training.run_log import RunLog
from reconlib.training.run_state import RunState
from reconlib.training.settings import TrainSettings
from reconlib.training.validation import Validation

_log = logging.getLogger(__name__)
_BEST = "best.pt"


class TrainOutcome(Enum):
    """How a run ended."""

    FINISHED = "all updates were made"
    STOPPED = "stopped on request; a checkpoint is saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainProgress:
    """Where a run stands."""

    update: int
    n_updates: int
    value: float
    """Score-matching loss (a constant energy has 1), or the energy gap in T per pixel, of the last update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A run that has ended."""

    outcome: TrainOutcome
    network: nn.Module
    """On the CPU, with the averaged weights of the last update, or the best, as the settings say."""
    n_updates: int
    validation: dict[str, float]
    """Score-matching loss on the validation images, by noise level, of these weights."""
    long_chain_gap: float | None
    """Maximum likelihood: see :func:`reconlib.training.long_chains.long_chain_gap_of_run`."""
    seconds: float
    """All sittings of the run together."""
    n_rollbacks: int
    processes: int


def train(
    settings: TrainSettings,
    training: Tensor,
    validation: Tensor,
    *,
    folder: Path,
    resume: bool = False,
    processes: Processes = Processes(),
    stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[TrainProgress], None] | None = None,
) -> TrainResult:
    """Run ``settings.n_updates`` updates, and keep in ``folder`` what is needed to go on at any time.

    Parameters
    ----------
    training, validation
        Magnitude images float16 (image, y, x), of different subjects.
    folder
        Gets ``checkpoints/``, ``best.pt``, ``log.jsonl``, ``plots/`` and ``tensorboard/``.
    resume
        Go on from the newest checkpoint in ``folder``: the result is that of a run that was never stopped.
    stop
        Asked after every update; when it says so, a checkpoint is saved and the run ends.

    Raises
    ------
    TrainingDiverged
        The guard saw trouble again and again.
    CheckpointError
        There is nothing to resume, or it belongs to another run.
    """
    state = RunState(settings, training, processes)
    checkpoints = Checkpoints(folder, settings.bookkeeping.keep_checkpoints, processes)
    log = RunLog(folder / "log.jsonl")
    if resume:
        _resume(state, checkpoints, log, folder)
    elif checkpoints.paths():
        raise CheckpointError(f"{folder} already holds a run; resume it, or name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    run = _Run(state, checkpoints, log, validation, folder)
    if not resume:
        run.save()
    with RunPictures(folder, log, state.update) as pictures:
        return run.go(pictures, stop, on_progress)


def _resume(state: RunState, checkpoints: Checkpoints, log: RunLog, folder: Path) -> None:
    found = checkpoints.paths()
    if not found:
        raise CheckpointError(
            f"there is no checkpoint in {folder} to resume from; start the run without resuming."
        )
    shared, own = checkpoints.load(found[-1])
    state.check_same_run(shared, str(folder))
    state.restore(shared, own)
    if state.leads:
        log.rewind(state.update)


class _Run:
    """The loop of :func:`train`."""

    def __init__(
        self, state: RunState, checkpoints: Checkpoints, log: RunLog, held_out: Tensor, folder: Path
    ) -> None:
        self._state, self._checkpoints, self._log = state, checkpoints, log
        self._held_out, self._folder = held_out, folder
        self._validate = Validation(held_out, state.settings, state.device)
        self._often = state.settings.bookkeeping
        self._judged: tuple[int, dict[str, float]] = (-1, {})
        self._clock = time.monotonic()

    def go(
        self,
        pictures: RunPictures,
        stop: Callable[[], bool],
        on_progress: Callable[[TrainProgress], None] | None,
    ) -> TrainResult:
        state, last = self._state, self._state.settings.n_updates
        stopped = False
        while state.update < last and not stopped:
            trouble, stopped = state.try_update(stopping=stop())
            if trouble is not None:
                self._go_back(trouble)
                continue
            seen = state.unreported[-1]
            if self._due(self._often.report_every):
                self._report()
            if self._due(self._often.validate_every):
                self._judge()
            if state.leads and self._due(self._often.picture_every):
                pictures.draw(state.update, state.step.samples(16))
            if self._due(self._often.checkpoint_every) or stopped:
                self.save()
            if on_progress is not None:
                value = seen["loss"] if "loss" in seen else seen["gap"]
                on_progress(TrainProgress(update=state.update, n_updates=last, value=value))
        return self._result(TrainOutcome.FINISHED if state.update == last else TrainOutcome.STOPPED)

    def save(self) -> None:
        """Write a checkpoint."""
        self._count_time()
        state = self._state
        self._checkpoints.save(state.update, state.n_rollbacks, state.shared(), state.own())

    def _due(self, every: int | None) -> bool:
        update, last = self._state.update, self._state.settings.n_updates
        return every is not None and (update % every == 0 or update == last)

    def _report(self) -> None:
        self._count_time()
        state = self._state
        rows, state.unreported = state.unreported, []
        if not state.leads or not rows:
            return
        row = {name: sum(r[name] for r in rows) / len(rows) for name in rows[0]}
        if "sample_low" in row:
            row["sample_low"] = min(r["sample_low"] for r in rows)
            row["sample_high"] = max(r["sample_high"] for r in rows)
        self._log.write({"update": state.update, **row, "seconds": round(state.seconds, 1)})

    def _judge(self) -> None:
        state = self._state
        if not state.leads:
            return
        losses = self._validate(state.average)
        self._judged = (state.update, losses)
        self._log.write({"update": state.update} | {f"validation {k}": v for k, v in losses.items()})
        mean = sum(losses.values()) / len(losses)
        if state.best is None or mean < state.best:
            state.best = mean
            write_whole(
                self._folder / _BEST,
                {"update": state.update, "average": state.average.state_dict(), "validation": losses},
            )

    def _go_back(self, trouble: str) -> None:
        state, guard = self._state, self._state.settings.guard
        at, factor, n_rollbacks = state.update, state.rate_factor * guard.lower_by, state.n_rollbacks + 1
        if n_rollbacks > guard.max_rollbacks:
            raise TrainingDiverged(
                f"The run diverges: at update {at} {trouble}. It went back to a checkpoint "
                f"{state.n_rollbacks} times, with a learning rate lowered to {state.rate_factor:g} of the "
                "schedule's, and it did not help. Lower optimiser.learning_rate, or "
                "maximum_likelihood.step_noise, or set the limits under guard wider if they are too tight; "
                f"see {self._log.path.name} in the run's folder."
            )
        # a checkpoint may be spoilt: each time the run does not get past the trouble it goes further back
        failures = state.failures + 1 if at <= state.trouble_at else 1
        trouble_at = max(at, state.trouble_at)
        paths = self._checkpoints.paths()
        target = max(0, len(paths) - failures)
        for path in paths[target + 1 :]:
            self._checkpoints.drop(path)
        shared, own = self._checkpoints.load(paths[target])
        seconds, best = state.seconds, state.best
        state.restore(shared, own)
        state.rate_factor, state.n_rollbacks = factor, n_rollbacks
        state.failures, state.trouble_at = failures, trouble_at
        state.seconds, state.best = seconds, best
        text = f"at update {at} {trouble}: back to update {state.update}, learning rate times {factor:g}"
        _log.warning("%s", text)
        if state.leads:
            self._log.write({"update": at, "event": "rollback", "text": text})

    def _result(self, outcome: TrainOutcome) -> TrainResult:
        state = self._state
        network, losses, update = state.average, {}, state.update
        gap: float | None = None
        if outcome is TrainOutcome.FINISHED and state.leads:
            if self._often.result == "best":
                best = read_state(self._folder / _BEST)
                network.load_state_dict(best["average"])
                losses, update = best["validation"], best["update"]
            elif self._judged[0] == update:
                losses = self._judged[1]
            else:
                losses = self._validate(network)
            if state.settings.objective == "maximum-likelihood":
                gap, _ = long_chain_gap_of_run(network, state.settings, self._held_out, state.device)
        return TrainResult(
            outcome=outcome,
            network=network.cpu(),
            n_updates=update,
            validation=losses,
            long_chain_gap=gap,
            seconds=state.seconds,
            n_rollbacks=state.n_rollbacks,
            processes=state.n_processes,
        )

    def _count_time(self) -> None:
        now = time.monotonic()
        self._state.seconds += now - self._clock
        self._clock = now
