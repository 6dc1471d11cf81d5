"""Pictures of a prior: draws side by side, and its density over a plane."""

import io
import math
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gadget.figures import DPI, save_image, window_of
from gadget.whole_file import refuse_existing, write_whole_file
from reconlib.priors.landscape import Landscape

GAP = 2
"""White pixels between images."""


def save_grid(path: Path, images: NDArray[np.float32], *, overwrite: bool = False) -> float:
    """Save images (image, y, x) as one grey PNG, in about a square, row by row.

    All have one window, from 0 to the 99.9th percentile of all pixels, which is returned.
    """
    n_images, n_y, n_x = images.shape
    n_columns = math.ceil(math.sqrt(n_images))
    n_rows = math.ceil(n_images / n_columns)
    window = window_of(images.reshape(-1, n_x))
    grid = np.full((n_rows * (n_y + GAP) - GAP, n_columns * (n_x + GAP) - GAP), window[1])
    for number, image in enumerate(images):
        row, column = divmod(number, n_columns)
        y, x = row * (n_y + GAP), column * (n_x + GAP)
        grid[y : y + n_y, x : x + n_x] = image
    save_image(path, grid, window, overwrite=overwrite)
    return window[1]


def save_landscape(path: Path, landscape: Landscape, *, name: str, overwrite: bool = False) -> None:
    """Save the density over the plane as a PNG, the images of the run on it; T~ stands above it."""
    refuse_existing(path, overwrite=overwrite)
    first, second = landscape.first.numpy(), landscape.second.numpy()
    figure = Figure(figsize=(6.0, 5.2), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    mesh = axes.pcolormesh(
        first, second, landscape.density.numpy(), shading="nearest", vmin=0.0, vmax=1.0, cmap="viridis"
    )
    run = landscape.plane.coordinates.numpy()
    axes.plot(run[:, 0], run[:, 1], color="white", linewidth=0.6, alpha=0.8, marker=".", markersize=2)
    shares = [f"{100 * share:.0f} % of the variance" for share in landscape.plane.explained]
    axes.set_xlabel(f"first principal direction ({shares[0]})")
    axes.set_ylabel(f"second ({shares[1]})")
    axes.set_title(
        f"{name}: exp(-(R - min R) / T~), T~ = {landscape.shown_temperature:.3g}\nwhite: the Langevin run",
        fontsize=10,
    )
    figure.colorbar(mesh, ax=axes)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    write_whole_file(path, buffer.getbuffer(), overwrite=overwrite)
