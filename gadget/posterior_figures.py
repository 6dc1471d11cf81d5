"""A picture of a slice's uncertainty: reconstruction, posterior mean, standard deviation in two units."""

from pathlib import Path

import numpy as np
from matplotlib import colormaps

from gadget.figures import Magnitude, panel_figure, save_figure, show_panel, window_of

BRIGHT_ENOUGH = 0.05
"""Pixels darker than this part of white have no relative standard deviation: the number would say nothing."""
LARGEST_SHOWN = 0.5
"""Relative standard deviations above this all have the brightest colour."""
COLOUR_BAR_INCHES = 0.2


def save_posterior(
    path: Path,
    image: Magnitude,
    mean: Magnitude,
    std: Magnitude,
    *,
    comment: str = "",
    pixel_mm: tuple[float, float] = (1.0, 1.0),
    overwrite: bool = True,
) -> None:
    """Save reconstruction and posterior (y, x), all in the same units, side by side, under the comment.

    The reconstruction and the mean share a window. The standard deviation stands in the units of the image,
    and once more relative to the mean, where that is bright enough; colour bars give the numbers.
    """
    for name, other in (("mean", mean), ("standard deviation", std)):
        if other.shape != image.shape:
            raise ValueError(
                f"the {name} has the shape {other.shape}, the image {image.shape}; they must agree."
            )
    black, white = window_of(image)
    aspect = pixel_mm[0] / pixel_mm[1]
    figure, (axes,) = panel_figure(1, 4, image.shape[0] * aspect / image.shape[1])
    bright = mean > BRIGHT_ENOUGH * white
    relative = np.where(bright, 100 * std / np.where(bright, mean, 1), np.nan)
    top = min(window_of(relative)[1], 100 * LARGEST_SHOWN) if bright.any() else 100 * LARGEST_SHOWN
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + COLOUR_BAR_INCHES)
    grey = (black, white)
    for axis, pixels, title, window, colours, unit in (
        (axes[0], image, "reconstruction", grey, "gray", "image units"),
        (axes[1], mean, "posterior mean", grey, "gray", "image units"),
        (axes[2], std, "standard deviation", window_of(std), "magma", "image units"),
        (axes[3], relative, "standard deviation / mean", (0.0, top), "magma", "%"),
    ):
        picture = show_panel(axis, pixels, title, window, aspect, colormaps[colours].with_extremes(bad="0.5"))
        bar = figure.colorbar(picture, ax=axis, location="bottom", shrink=0.9, pad=0.02)
        bar.set_label(unit, fontsize=8)
        bar.ax.tick_params(labelsize=7)
        bar.ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
        bar.ax.xaxis.get_offset_text().set_fontsize(7)
    figure.suptitle(comment, fontsize=8, wrap=True)
    save_figure(path, figure, overwrite)
