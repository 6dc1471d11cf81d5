"""How far a training run is: rate and time left on a terminal, silence in a pipe."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Update(Protocol):
    @property
    def update(self) -> int: ...
    @property
    def n_updates(self) -> int: ...
    @property
    def value(self) -> float: ...


class _RateColumn(ProgressColumn):
    """Updates per second, or seconds per update where they are slow."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f} updates/s" if speed >= 1 else f"{1 / speed:.1f} s/update")


@contextmanager
def reading_progress(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield the function that the reading of images reports to: steps done, and all steps."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _done, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("reading images", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def training_progress(*, shown: bool, what: str) -> Iterator[Callable[[_Update], None]]:
    """Yield the function that a training run reports to; ``what`` is the name of the value it reports."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _progress: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=120) as bars:
        tasks: list[TaskID] = []

        def report(progress: _Update) -> None:
            if not tasks:
                # a resumed run begins in the middle: what was done before must not count as speed
                tasks.append(bars.add_task(what, total=progress.n_updates, completed=progress.update))
            bars.update(
                tasks[0], completed=progress.update, description=f"training, {what} {progress.value:.4g}"
            )

        yield report


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Within the block SIGTERM and SIGINT (Ctrl-C) ask the run to stop; a second Ctrl-C breaks it off."""
    asked: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)
        typer.echo("stopping after this update, and saving a checkpoint ...", err=True)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
