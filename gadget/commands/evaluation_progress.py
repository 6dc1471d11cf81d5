"""Progress of an evaluation: a bar on a terminal, silence in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def rows_on_terminal(n_rows: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield the function that is told each finished row."""
    if not sys.stderr.isatty():
        yield lambda _row: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("evaluating", total=n_rows)

        def on_row(row: dict[str, Any]) -> None:
            quality = f"{row['PSNR']:.1f} dB" if "PSNR" in row else "failed"
            bars.update(
                task, advance=1, description=f"{row['scan']} {row['pattern']} {row['method']}: {quality}"
            )

        yield on_row
