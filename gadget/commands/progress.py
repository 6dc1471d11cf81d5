"""Progress on a terminal; silence in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from gadget.counted import counted


class _Iteration(Protocol):
    @property
    def iteration(self) -> int: ...
    @property
    def iterations(self) -> int: ...


class ReconstructionProgress:
    """Counts readouts, images, iterations and steps of sampling; made by :func:`progress_on_terminal`."""

    def __init__(self, bars: Progress | None, n_readouts: int | None) -> None:
        self._bars = bars
        self._n_images = self._iteration = 0
        self._n_batches = 0
        if bars is not None:
            self._readouts = bars.add_task("readouts", total=n_readouts, visible=n_readouts is not None)
            self._iterations = bars.add_task("iterations", total=None, visible=False)
            self._steps = bars.add_task("uncertainty 1, steps", total=None, visible=False)

    def readout(self) -> None:
        """One more readout was read."""
        if self._bars is not None:
            self._bars.advance(self._readouts)

    def iteration(self, progress: _Iteration) -> None:
        """The reconstruction has come so far."""
        if self._bars is not None:
            if progress.iteration <= self._iteration:
                self._bars.reset(self._iterations)  # or the clock of the first images would stand still
            self._iteration = progress.iteration
            self._bars.update(
                self._iterations,
                description=f"{counted(self._n_images, 'image')} made, iterations",
                completed=progress.iteration,
                total=progress.iterations,
                visible=True,
            )

    def step(self, done: int, steps: int) -> None:
        """The sampling of a batch of slices has come so far; it begins with no step done."""
        self._n_batches += done == 0
        if self._bars is not None:
            self._bars.update(
                self._steps,
                description=f"uncertainty {self._n_batches}, steps",
                completed=done,
                total=steps,
                visible=True,
            )

    def image(self) -> None:
        """One more image is made."""
        self._n_images += 1
        if self._bars is not None:
            self._bars.update(
                self._iterations, description=f"{counted(self._n_images, 'image')} made, iterations"
            )


@contextmanager
def progress_on_terminal(n_readouts: int | None = None) -> Iterator[ReconstructionProgress]:
    """Show bars on stderr where that is a terminal, until the block ends."""
    if not sys.stderr.isatty():
        yield ReconstructionProgress(None, n_readouts)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield ReconstructionProgress(bars, n_readouts)


class _Update(Protocol):
    @property
    def update(self) -> int: ...
    @property
    def loss(self) -> float: ...


@contextmanager
def training_progress(n_updates: int) -> Iterator[Callable[[_Update, object], None]]:
    """Yield the function that a training run reports to: a bar with the time left, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _progress, _network: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("training", total=n_updates)

        def report(progress: _Update, _network: object) -> None:
            bars.update(task, completed=progress.update, description=f"training, loss {progress.loss:.4f}")

        yield report
