"""Progress of an evaluation: bars on a terminal, silence in a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class _Iteration(Protocol):
    @property
    def iteration(self) -> int: ...
    @property
    def iterations(self) -> int: ...


class EvaluationProgress:
    """Counts rows of the table and iterations of the method that runs; made by :func:`rows_on_terminal`."""

    def __init__(self, bars: Progress | None = None) -> None:
        self._bars = bars
        if bars is not None:
            self._rows = bars.add_task("evaluating", total=None)
            self._iterations = bars.add_task("iterations", total=None, visible=False)

    def start(self, n_rows: int) -> None:
        """The number of rows is known."""
        if self._bars is not None:
            self._bars.update(self._rows, total=n_rows)

    def row(self, row: dict[str, Any]) -> None:
        """One more row is finished."""
        if self._bars is not None:
            quality = f"{row['PSNR']:.1f} dB" if "PSNR" in row else "failed"
            text = f"{row['scan']} {row['pattern']} {row['method']}: {quality}"
            self._bars.update(self._rows, advance=1, description=text)

    def iteration(self, progress: _Iteration) -> None:
        """A reconstruction has come so far."""
        if self._bars is not None:
            self._bars.update(
                self._iterations, completed=progress.iteration, total=progress.iterations, visible=True
            )

    def step(self, done: int, total: int) -> None:
        """A sampling has come so far."""
        if self._bars is not None:
            self._bars.update(self._iterations, completed=done, total=total, visible=True)


@contextmanager
def rows_on_terminal() -> Iterator[EvaluationProgress]:
    """Show bars on stderr where that is a terminal, until the block ends."""
    if not sys.stderr.isatty():
        yield EvaluationProgress()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield EvaluationProgress(bars)
