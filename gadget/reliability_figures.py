"""Pictures of uncertainty: predicted against actual errors of many scans, and the maps of one."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gadget.figures import DPI, window_of
from gadget.whole_file import refuse_existing, write_whole_file
from reconlib.evaluation.coverage import LEVELS, PixelErrors, reliability

Plane = NDArray[np.floating[Any]]
PANEL_INCHES = 3.2


def save_reliability(
    path: Path, errors: PixelErrors, *, title: str, std_factor: float = 1.0, overwrite: bool = True
) -> None:
    """Save two plots as a PNG: error against predicted standard deviation, and coverage of intervals.

    The diagonal is what an honest map would have. Where the standard deviations contain a factor of the
    prior's card, the curves without it are dashed.
    """
    figure = Figure(figsize=(9.0, 4.4), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    end = 0.0
    for name, factor, style in _curves(std_factor):
        curve = reliability(errors, factor)
        predicted, error = 100 * curve.predicted, 100 * curve.rms_error
        left.plot(predicted, error, style, marker="o", markersize=3, color="tab:blue", label=name)
        right.plot(100 * curve.levels, 100 * curve.coverage, style, color="tab:blue", label=name)
        end = max(end, float(predicted.max()), float(error.max()))
    for level in LEVELS:
        found = 100 * errors.coverage(level)
        right.plot(100 * level, found, "o", markersize=4, color="tab:blue")
        right.annotate(f"{found:.1f}", (100 * level, found), (4, -11), textcoords="offset points", fontsize=8)
    for axis, limit in ((left, 1.05 * end or 1.0), (right, 100.0)):
        axis.plot([0, limit], [0, limit], color="0.6", linewidth=0.8, zorder=0)
        axis.set_xlim(0, limit)
        axis.set_ylim(0, limit)
        axis.set_aspect("equal")
        if std_factor != 1:
            axis.legend(fontsize=8, loc="upper left")
    left.set_xlabel("predicted standard deviation (% of the maximum)")
    left.set_ylabel("root-mean-square error (% of the maximum)")
    right.set_xlabel("interval (%)")
    right.set_ylabel("truth inside (% of the pixels of the head)")
    figure.suptitle(title, fontsize=10)
    _save(path, figure, overwrite)


def save_uncertainty(
    path: Path, image: Plane, std: Plane, reference: Plane, *, title: str, overwrite: bool = True
) -> None:
    """Save reference, image, absolute error and standard deviation (y, x) side by side as a PNG.

    All are in the units of the reference; error and standard deviation share one window, from 0 to the 99.9th
    percentile of the larger one.
    """
    shapes = {np.shape(one) for one in (image, std, reference)}
    if len(shapes) != 1 or np.ndim(image) != 2:
        raise ValueError(
            f"Image, standard deviation and reference have the shapes {shapes}; need one (y, x)."
        )
    error = np.abs(image - reference)
    grey = window_of(reference)
    fine = (0.0, max(window_of(error)[1], window_of(std)[1]))
    height = PANEL_INCHES * min(max(image.shape[0] / image.shape[1], 0.3), 3.0)
    figure = Figure(figsize=(4 * PANEL_INCHES + 1.0, height + 0.8), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, 4)
    panels = (
        ("reference", reference, grey, "gray"),
        (title, image, grey, "gray"),
        ("absolute error", error, fine, "magma"),
        ("standard deviation", std, fine, "magma"),
    )
    for axis, (name, pixels, window, colours) in zip(axes, panels, strict=True):
        shown = axis.imshow(pixels, cmap=colours, vmin=window[0], vmax=window[1], interpolation="nearest")
        axis.set_title(name, fontsize=8)
        axis.set_axis_off()
    figure.colorbar(shown, ax=axes[2:], shrink=0.8, label="in units of the reference")
    _save(path, figure, overwrite)


def _curves(std_factor: float) -> list[tuple[str, float, str]]:
    """Name, factor and line style of each curve."""
    with_it = [("as shown", 1.0, "-")]
    return (
        with_it
        if std_factor == 1
        else [*with_it, (f"without the factor {std_factor:.2f}", 1 / std_factor, "--")]
    )


def _save(path: Path, figure: Figure, overwrite: bool) -> None:
    refuse_existing(path, overwrite=overwrite)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png")
    write_whole_file(path, buffer.getbuffer(), overwrite=overwrite)
