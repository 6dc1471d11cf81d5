"""A picture of where an image is unusual under its prior: the image, and the percentile of each region."""

from pathlib import Path

import numpy as np
from matplotlib import colormaps

from gadget.figures import Magnitude, panel_figure, save_figure, show_panel, window_of
from reconlib.priors.typicality import Typicality

COLOUR_BAR_INCHES = 0.2


def save_typicality(
    path: Path,
    image: Magnitude,
    found: Typicality,
    *,
    pixel_mm: tuple[float, float] = (1.0, 1.0),
    overwrite: bool = True,
) -> None:
    """Save an image (y, x) beside the percentiles of its regions among those of validation images.

    Blue regions have less energy than most of the validation images (smooth, blurred), red ones more (noise,
    something that the prior does not know); air is grey. The sentence stands above.

    Raises
    ------
    ValueError
        ``found`` has no map of regions: the prior is not local, or its card does not know regions.
    """
    if found.region_map is None or found.region_side is None:
        raise ValueError("There is no map of regions to show; only local priors have one.")
    aspect = pixel_mm[0] / pixel_mm[1]
    side = np.ones((found.region_side, found.region_side))
    n_y, n_x = image.shape
    regions = np.kron(found.region_map.numpy(), side)[:n_y, :n_x]
    figure, (axes,) = panel_figure(1, 2, n_y * aspect / n_x)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + COLOUR_BAR_INCHES)
    show_panel(axes[0], image, "reconstruction", window_of(image), aspect)
    colours = colormaps["coolwarm"].with_extremes(bad="0.5")
    picture = show_panel(axes[1], regions, "energy of regions", (0.0, 100.0), aspect, colours)
    bar = figure.colorbar(picture, ax=axes[1], location="bottom", shrink=0.9, pad=0.02)
    bar.set_label("percentile among validation images", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.suptitle(found.sentence, fontsize=7, wrap=True)
    save_figure(path, figure, overwrite)
