"""Progress of a benchmark: a bar on a terminal, silence in a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class BenchProgress:
    """Counts rows and says what runs; made by :func:`rows_on_terminal`."""

    def __init__(self, bars: Progress | None = None) -> None:
        self._bars = bars
        if bars is not None:
            self._rows = bars.add_task("measuring", total=None)

    def start(self, n_rows: int) -> None:
        """The number of rows is known."""
        if self._bars is not None:
            self._bars.update(self._rows, total=n_rows)

    def watch(self, text: str) -> None:
        """Say what is being done."""
        if self._bars is not None:
            self._bars.update(self._rows, description=text)

    def row(self, _row: object) -> None:
        """One more row is finished."""
        if self._bars is not None:
            self._bars.advance(self._rows)


@contextmanager
def rows_on_terminal() -> Iterator[BenchProgress]:
    """Show a bar on stderr where that is a terminal, until the block ends."""
    if not sys.stderr.isatty():
        yield BenchProgress()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield BenchProgress(bars)
