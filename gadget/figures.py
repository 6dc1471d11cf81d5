"""Pictures of reconstructions: one image as a grey PNG, several side by side with their errors, coil maps."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib import image as picture_files
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gadget.whole_file import refuse_existing, write_whole_file
from reconlib.evaluation.metrics import fit_scale, nmse, psnr, ssim

Magnitude = NDArray[np.floating[Any]]
WHITE_PERCENTILE = 99.9
ERROR_GAIN = 5.0
"""Errors are shown on a scale this much finer than the images."""
PHASE_COLOURS = "twilight"
"""A cyclic colour map: -pi and pi have the same colour, 0 is the darkest."""
PANEL_INCHES = 3.0
DPI = 100


def window_of(magnitude: Magnitude) -> tuple[float, float]:
    """Return the values that are shown black and white: 0 and the 99.9th percentile of the finite pixels."""
    finite = magnitude[np.isfinite(magnitude)]
    white = float(np.percentile(finite, WHITE_PERCENTILE)) if finite.size else 0.0
    if not white > 0:
        white = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    return 0.0, white


def save_image(
    path: Path,
    magnitude: Magnitude,
    window: tuple[float, float] | None = None,
    *,
    pixel_mm: tuple[float, float] = (1.0, 1.0),
    overwrite: bool = True,
) -> None:
    """Save a magnitude (y, x) as a grey PNG, one pixel of the file per pixel of the image.

    ``window`` (black, white) is by default that of :func:`window_of`. Where pixels are not square
    (``pixel_mm`` along y and x) the coarser direction is stretched, so that the picture has the proportions
    of the object. Pixels that are not finite come out black.
    """
    pixels = _plane(magnitude)
    black, white = window_of(pixels) if window is None else window
    if not white > black:
        raise ValueError(f"The window ({black}, {white}) is empty; white must lie above black.")
    grey = np.clip(
        (np.nan_to_num(pixels, nan=0.0, posinf=white, neginf=0.0) - black) / (white - black), 0.0, 1.0
    )
    levels = _square_pixels(np.round(255.0 * grey).astype(np.uint8), pixel_mm)
    # As colours, or the colour map would round the levels once more.
    _save_colours(path, np.repeat(levels[..., None], 3, axis=-1), overwrite)


def save_phase(
    path: Path, phase: Magnitude, *, pixel_mm: tuple[float, float] = (1.0, 1.0), overwrite: bool = True
) -> None:
    """Save a phase (y, x) in radians as a PNG in the colours of a circle, which has no edge at pi.

    One pixel of the file per pixel of the image, but for the proportions, as :func:`save_image`. Phases that
    are not finite count as 0.
    """
    finite = np.nan_to_num(_plane(phase), nan=0.0, posinf=0.0, neginf=0.0)
    turns = np.mod((finite + math.pi) / (2 * math.pi), 1)
    levels = _square_pixels(np.floor(256 * turns).astype(np.uint8), pixel_mm)
    wheel = np.round(255 * colormaps[PHASE_COLOURS](np.linspace(0, 1, 256, endpoint=False))[:, :3])
    _save_colours(path, wheel.astype(np.uint8)[levels], overwrite)


def save_comparison(
    path: Path,
    images: Mapping[str, Magnitude],
    reference: Magnitude | None = None,
    *,
    pixel_mm: tuple[float, float] = (1.0, 1.0),
    overwrite: bool = True,
) -> None:
    """Save images (y, x) side by side under their titles, all with one window.

    With a reference it comes first, each image is scaled to it (one least-squares factor), its metrics stand
    above it and five times its error below it.
    """
    if not images:
        raise ValueError("There is no image to show; give at least one.")
    panels = {title: _plane(image) for title, image in images.items()}
    target = None if reference is None else _plane(reference)
    first = target if target is not None else next(iter(panels.values()))
    for title, image in panels.items():
        if image.shape != first.shape:
            raise ValueError(f"Image {title!r} has the shape {image.shape}; the others have {first.shape}.")
    n_columns = len(panels) + (target is not None)
    n_rows = 1 if target is None else 2
    aspect = pixel_mm[0] / pixel_mm[1]
    figure, axes = panel_figure(n_rows, n_columns, first.shape[0] * aspect / first.shape[1])
    black, white = window_of(first)
    if target is not None:
        show_panel(axes[0][0], target, "reference", (black, white), aspect)
        axes[1][0].set_axis_off()
        axes[1][0].text(
            0.5, 0.5, f"errors x {ERROR_GAIN:g}", ha="center", va="center", transform=axes[1][0].transAxes
        )
    for column, (title, image) in enumerate(panels.items(), start=n_columns - len(panels)):
        if target is None:
            show_panel(axes[0][column], image, title, (black, white), aspect)
            continue
        scaled, numbers = _compared(image, target)
        show_panel(axes[0][column], scaled, f"{title}\n{numbers}", (black, white), aspect)
        show_panel(axes[1][column], np.abs(scaled - target), "", (0.0, white / ERROR_GAIN), aspect, "magma")
    save_figure(path, figure, overwrite)


def save_coils(path: Path, coils: NDArray[np.complexfloating[Any, Any]], *, overwrite: bool = True) -> None:
    """Save complex coil maps (coil, y, x): magnitudes above, phases below, coils from left to right."""
    maps = np.asarray(coils)
    if maps.ndim != 3 or 0 in maps.shape:
        raise ValueError(f"Coil maps have the shape {maps.shape}; they need the axes (coil, y, x).")
    per_row = min(len(maps), 8)
    n_rows = math.ceil(len(maps) / per_row)
    figure, axes = panel_figure(2 * n_rows, per_row, maps.shape[1] / maps.shape[2], inches=0.6 * PANEL_INCHES)
    magnitudes = np.abs(maps)
    window = window_of(magnitudes)
    for row in axes:
        for axis in row:
            axis.set_axis_off()
    for number, (magnitude, one) in enumerate(zip(magnitudes, maps, strict=True)):
        row, column = 2 * (number // per_row), number % per_row
        show_panel(axes[row][column], magnitude, f"coil {number + 1}", window)
        show_panel(axes[row + 1][column], np.angle(one), "", (-math.pi, math.pi), colours=PHASE_COLOURS)
    save_figure(path, figure, overwrite)


def save_mask(path: Path, mask: NDArray[np.bool_], *, overwrite: bool = True) -> None:
    """Save a sampling mask (ky, kx): measured points white."""
    save_image(path, mask.astype(np.float64), (0.0, 1.0), overwrite=overwrite)


def _save_colours(path: Path, colours: NDArray[np.uint8], overwrite: bool) -> None:
    """Write colours (y, x, 3) as PNG, whole or not at all."""
    refuse_existing(path, overwrite=overwrite)
    buffer = io.BytesIO()
    picture_files.imsave(buffer, colours, format="png", pil_kwargs={"optimize": True})
    write_whole_file(path, buffer.getbuffer(), overwrite=overwrite)


def _plane(image: Magnitude) -> NDArray[np.float64]:
    pixels = np.asarray(image)
    if pixels.ndim != 2 or 0 in pixels.shape or np.iscomplexobj(pixels):
        raise ValueError(
            f"An image to show is real with the axes (y, x); this is {pixels.dtype} of shape {pixels.shape}."
        )
    return pixels.astype(np.float64)


def _square_pixels(levels: NDArray[np.uint8], pixel_mm: tuple[float, float]) -> NDArray[np.uint8]:
    """Repeat rows or columns until the pixels are square, by nearest neighbours: no value is invented."""
    height, width = pixel_mm
    if not height > 0 or not width > 0:
        raise ValueError(f"pixel_mm is {pixel_mm}; both sides of a pixel need a positive length.")
    fine = min(height, width)
    rows, columns = (max(1, round(n * side / fine)) for n, side in zip(levels.shape, pixel_mm, strict=True))
    row_of = np.floor((np.arange(rows) + 0.5) * levels.shape[0] / rows).astype(int)
    column_of = np.floor((np.arange(columns) + 0.5) * levels.shape[1] / columns).astype(int)
    return levels[np.ix_(row_of, column_of)]


def _compared(image: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Scale an image to its reference, and say how close it then is."""
    one, other = torch.from_numpy(image)[None, None], torch.from_numpy(reference)[None, None]
    scaled = one * fit_scale(one, other)
    numbers = f"PSNR {float(psnr(scaled, other)):.1f} dB, NMSE {float(nmse(scaled, other)):.4f}"
    if min(reference.shape) >= 7:
        numbers += f"\nSSIM {float(ssim(scaled, other)):.3f}"
    return scaled[0, 0].numpy(), numbers


def panel_figure(
    n_rows: int, n_columns: int, height: float, inches: float = PANEL_INCHES
) -> tuple[Figure, Any]:
    """Return a figure without global state, and its axes by row and column."""
    panel_height = inches * min(max(height, 0.3), 3.0)
    figure = Figure(
        figsize=(n_columns * inches, n_rows * (panel_height + 0.2) + 0.6), dpi=DPI, layout="constrained"
    )
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def show_panel(
    axis: Any,
    pixels: Magnitude,
    title: str,
    window: tuple[float, float],
    aspect: float = 1.0,
    colours: str | Colormap = "gray",
) -> Any:
    """Show pixels (y, x) under a title; return matplotlib's picture, for a colour bar."""
    picture = axis.imshow(
        pixels,
        cmap=colours,
        vmin=window[0],
        vmax=window[1],
        aspect=aspect,
        interpolation="nearest",
        origin="upper",
    )
    axis.set_title(title, fontsize=8)
    axis.set_axis_off()
    return picture


def save_figure(path: Path, figure: Figure, overwrite: bool) -> None:
    """Save a figure as PNG, whole or not at all."""
    refuse_existing(path, overwrite=overwrite)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_whole_file(path, buffer.getbuffer(), overwrite=overwrite)
