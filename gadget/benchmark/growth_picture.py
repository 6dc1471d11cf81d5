"""A picture of how the cost of a slice grows."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gadget.whole_file import write_whole_file

Curves = Mapping[str, Sequence[tuple[float, float]]]
"""(at, seconds) by name."""
PANEL_INCHES = (3.2, 2.8)
MOST_COLUMNS = 3
DPI = 120


def save_growth(path: Path, panels: Mapping[str, Curves]) -> None:
    """Save one panel per axis: milliseconds per slice and iteration over what grows, both from zero."""
    if not panels:
        return
    n_columns = min(MOST_COLUMNS, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    figure = Figure(figsize=(PANEL_INCHES[0] * n_columns, PANEL_INCHES[1] * n_rows))
    FigureCanvasAgg(figure)
    for index, (axis, curves) in enumerate(panels.items()):
        panel = figure.add_subplot(n_rows, n_columns, index + 1)
        for name, points in curves.items():
            panel.plot([at for at, _ in points], [1000 * seconds for _, seconds in points], "o-", label=name)
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=0, top=1.1 * panel.get_ylim()[1])
        panel.set_xlabel(axis)
        panel.set_ylabel("ms per slice and iteration")
        panel.grid(alpha=0.3)
        if len(curves) > 1:
            panel.legend(fontsize="small")
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    write_whole_file(path, buffer.getbuffer(), overwrite=True)
