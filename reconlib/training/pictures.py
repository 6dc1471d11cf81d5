"""What a run looks like: curves and samples, as PNG files and for TensorBoard."""

import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from reconlib.training.run_log import Row, RunLog

_CURVES = ("loss", "gap", "gradient_norm", "sample_low", "sample_high", "learning_rate")


class RunPictures:
    """Writes ``plots/curves.png``, ``plots/samples-UPDATE.png`` and ``tensorboard/`` in the run's folder.

    A context: it closes the TensorBoard file. matplotlib and TensorBoard are imported at the first picture.
    """

    def __init__(self, folder: Path, log: RunLog, first_update: int) -> None:
        self._folder, self._log = folder, log
        self._shown = first_update
        self._board: Any = None

    def __enter__(self) -> "RunPictures":
        """Nothing is opened yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the TensorBoard file."""
        if self._board is not None:
            self._board.close()

    def draw(self, update: int, samples: Tensor) -> None:
        """Draw the log so far, and samples (n, 1, y, x)."""
        plots = self._folder / "plots"
        plots.mkdir(exist_ok=True)
        rows = self._log.rows()
        plot_curves(plots / "curves.png", rows)
        grid = image_grid(samples[:, 0].cpu().numpy())
        save_grid(plots / f"samples-{update:08d}.png", grid)
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self._folder / "tensorboard"), purge_step=self._shown + 1)
        for row in rows:
            at = int(row["update"] or 0)
            if self._shown < at <= update:
                for name, value in row.items():
                    if name != "update" and isinstance(value, int | float):
                        self._board.add_scalar(name, value, at)
        low, high = shades(grid)
        shown = ((grid - low) / (high - low)).clip(0, 1)
        self._board.add_image("samples", shown, update, dataformats="HW")
        self._board.flush()
        self._shown = update


def plot_curves(path: Path, rows: Sequence[Row]) -> None:
    """Draw every curve of a log against the update; returns to a checkpoint are vertical lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [name for name in _CURVES if any(name in row for row in rows)]
    validation = sorted({name for row in rows for name in row if name.startswith("validation")})
    panels = [[name] for name in names if name != "sample_high"] + ([validation] if validation else [])
    panels = [["sample_low", "sample_high"] if panel == ["sample_low"] else panel for panel in panels]
    figure = Figure(figsize=(7, 1 + 1.7 * max(1, len(panels))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(max(1, len(panels)), sharex=True, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=False):
        for name in panel:
            known = [row for row in rows if name in row]
            axis.plot([row["update"] for row in known], [row[name] for row in known], lw=1, label=name)
        if panel[0] in ("gradient_norm", "learning_rate"):
            axis.set_yscale("log")
        if panel == ["gap"]:
            axis.axhline(0, color="0.7", lw=0.8)
            axis.set_ylabel("R(data) - R(samples),\nT per pixel")
        axis.legend(fontsize="x-small", loc="upper right")
        for row in rows:
            if row.get("event") == "rollback":
                axis.axvline(row["update"], color="tab:red", lw=0.8)
    axes[-1].set_xlabel("update")
    part = path.with_name(f"{path.name}.part")
    figure.savefig(part, dpi=110, format="png")
    part.replace(path)


def image_grid(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lay images (n, y, x) side by side in a nearly square grid, with a line between them."""
    n, height, width = images.shape
    columns = math.ceil(n**0.5)
    rows = math.ceil(n / columns)
    grid = np.full((rows * (height + 1) - 1, columns * (width + 1) - 1), images.min(), np.float32)
    for i, image in enumerate(images):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        grid[top : top + height, left : left + width] = image
    return grid


def shades(grid: NDArray[np.float32]) -> tuple[float, float]:
    """Values shown as black and white: 0 (signed images: a low percentile) and a high percentile."""
    low, high = np.percentile(grid, [0.5, 99.5])
    black = float(low) if low < -0.2 * high else 0.0
    return black, max(float(high), black + 1e-6)


def save_grid(path: Path, grid: NDArray[np.float32]) -> None:
    """Write a grid of images as a grey PNG, at least 512 pixels wide."""
    import matplotlib.image

    low, high = shades(grid)
    scale = max(1, math.ceil(512 / grid.shape[1]))
    large = np.kron(grid, np.ones((scale, scale), np.float32))
    part = path.with_name(f"{path.name}.part")
    matplotlib.image.imsave(part, large, cmap="gray", vmin=low, vmax=high, format="png")
    part.replace(path)
