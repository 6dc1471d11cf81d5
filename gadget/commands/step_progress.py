"""A bar for work of a known number of steps, on a terminal only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def steps_on_terminal(what: str, n_steps: int) -> Iterator[Callable[[], None]]:
    """Yield the function to call after each step; the bar goes to stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=n_steps)
        yield lambda: bars.advance(task)
