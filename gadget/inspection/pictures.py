"""Pictures of an inspection: sampling, noise correlation, trajectory. They show nothing about the patient."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from gadget.counted import counted
from gadget.errors import FileError
from gadget.figures import DPI, save_figure
from gadget.inspection.content import Inspection, Pattern
from gadget.inspection.inspect_file import Inspector
from gadget.inspection.sampling import LETTERS, EncodingSampling

COLOURS = ("#e8e8e8", "#1f6fb4", "#2a9d8f", "#e8871e")
"""By the numbers of ``LETTERS``."""
CLASSES = ("never measured", "imaging", "imaging and calibration", "calibration only")
NAMES_SHOWN = 32
"""With more coils the picture of their correlation shows numbers instead of names."""


def save_pictures(
    inspector: Inspector, inspection: Inspection, folder: Path, *, overwrite: bool
) -> list[Path]:
    """Save what there is to show; return the files that were written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot make the folder {folder} for pictures: {error}.") from error
    figures: dict[str, Figure] = {}
    for index, sampling in sorted(inspector.sampling.items()):
        if sampling.images:
            figures[f"sampling_encoding_{index}.png"] = sampling_figure(index, sampling)
        patterns = [one for one in inspection.sampling if one.encoding == index]
        if len(patterns) > 1 and sampling.n_partitions == 1:
            figures[f"patterns_encoding_{index}.png"] = patterns_figure(patterns)
    if inspection.noise is not None:
        figures["noise_correlation.png"] = noise_figure(inspection)
    if inspector.trajectory_points is not None:
        figures["trajectory.png"] = trajectory_figure(inspector.trajectory_points)
    for name, figure in figures.items():
        save_figure(folder / name, figure, overwrite)
    return [folder / name for name in figures]


def sampling_figure(index: int, sampling: EncodingSampling) -> Figure:
    """Show which samples were measured, and how often by line and by column, all images together.

    Two-dimensional scans: lines (ky) downwards, columns (kx) to the right. Volumes: partitions (kz)
    downwards, lines to the right, and the columns below in a plot of their own.
    """
    total = sampling.total()
    is_volume = sampling.n_partitions > 1
    by_line, by_column = total.counts.sum(axis=1), sampling.column_counts()
    codes, down, right, n_down, n_right = (
        (total.codes(), "kz partition", "ky row", sampling.n_partitions, sampling.n_rows)
        if is_volume
        else (sampling.sample_codes(), "ky row", "kx column", sampling.n_rows, sampling.n_columns)
    )
    figure = _figure(8.0, 7.5 if is_volume else 6.5)
    layout: Any = [["image", "down"], ["right", "legend"], *([["columns", "legend"]] if is_volume else [])]
    ratios = [4.0, 1.0, *([1.0] if is_volume else [])]
    axes = figure.subplot_mosaic(layout, gridspec_kw={"width_ratios": [4.0, 1.0], "height_ratios": ratios})
    _show_codes(axes["image"], codes, (n_down, n_right))
    axes["image"].set(ylabel=down, title=f"encoding {index}: {_images(len(sampling.images))}")
    _plot_counts(axes["down"], total.counts.sum(axis=2) if is_volume else by_line, is_vertical=True)
    _plot_counts(axes["right"], by_line if is_volume else by_column, is_vertical=False)
    if is_volume:
        _plot_counts(axes["columns"], by_column, is_vertical=False)
        axes["columns"].set(xlabel="kx column", ylabel="readouts", xlim=(-0.5, sampling.n_columns - 0.5))
    axes["down"].set(xlabel="readouts", ylim=(n_down - 0.5, -0.5))
    axes["right"].set(xlabel=right, ylabel="readouts", xlim=(-0.5, n_right - 0.5))
    axes["legend"].set_axis_off()
    axes["legend"].legend(
        handles=[Patch(facecolor=colour, label=name) for colour, name in zip(COLOURS, CLASSES, strict=True)],
        loc="center",
        fontsize=7,
        frameon=False,
    )
    return figure


def patterns_figure(patterns: list[Pattern]) -> Figure:
    """Show the patterns that occur in an encoding side by side: rows (ky) downwards, one column each."""
    codes = {letter: number for number, letter in LETTERS.items()}
    pixels = np.array([[codes[letter] for letter in pattern.codes[0]] for pattern in patterns], np.uint8).T
    figure = _figure(8.0, 5.0)
    axis = figure.subplots()
    _show_codes(axis, pixels, (pixels.shape[0], pixels.shape[1]))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(
        xlabel=f"pattern; 0: {patterns[0].images}",
        ylabel="ky row",
        title=f"encoding {patterns[0].encoding}: {len(patterns)} patterns",
    )
    return figure


def noise_figure(inspection: Inspection) -> Figure:
    """Show how the noise of the coils is correlated."""
    if inspection.noise is None:
        raise ValueError("There are no noise readouts to show.")
    correlation = np.array(inspection.noise.correlation)
    n_coils = len(correlation)
    figure = _figure(6.5, 5.5)
    axis = figure.subplots()
    picture = axis.imshow(correlation, cmap="magma", vmin=0.0, vmax=1.0, interpolation="nearest")
    figure.colorbar(picture, ax=axis, label="magnitude of the correlation")
    if len(inspection.coils) == n_coils <= NAMES_SHOWN:
        names = [coil.name or str(coil.number) for coil in inspection.coils]
        # Names come from the file: a dollar sign would be taken for mathematics.
        names = ["".join(c if c.isprintable() else " " for c in name).replace("$", r"\$") for name in names]
        axis.set_xticks(range(n_coils), names, rotation=90, fontsize=6)
        axis.set_yticks(range(n_coils), names, fontsize=6)
    axis.set_title(
        f"noise of {counted(n_coils, 'coil')}, {counted(inspection.noise.n_samples, 'sample')} of "
        f"{counted(inspection.noise.n_readouts, 'readout')}",
        fontsize=9,
    )
    return figure


def trajectory_figure(points: NDArray[np.float32]) -> Figure:
    """Show the first two coordinates of points, (point, 2)."""
    figure = _figure(6.0, 6.0)
    axis = figure.subplots()
    finite = points[np.isfinite(points).all(axis=1)]
    axis.plot(finite[:, 0], finite[:, 1], ".", markersize=1.0, color=COLOURS[1])
    axis.set(xlabel="coordinate 0", ylabel="coordinate 1", title=f"the first {len(points)} points")
    axis.set_aspect("equal", adjustable="datalim")
    return figure


def _show_codes(axis: Any, codes: NDArray[np.uint8], size: tuple[int, int]) -> None:
    axis.imshow(
        codes,
        cmap=ListedColormap(COLOURS),
        norm=BoundaryNorm(np.arange(len(COLOURS) + 1) - 0.5, len(COLOURS)),
        aspect="auto",
        interpolation="nearest",
        origin="upper",
        extent=(-0.5, size[1] - 0.5, size[0] - 0.5, -0.5),
    )


def _plot_counts(axis: Any, counts: NDArray[np.integer[Any]], *, is_vertical: bool) -> None:
    """Draw counts (class, place) as bars on top of one another."""
    edges = np.arange(counts.shape[1] + 1) - 0.5
    base = np.zeros(counts.shape[1] + 1)
    fill = axis.fill_betweenx if is_vertical else axis.fill_between
    for one, colour in zip(counts.astype(float), COLOURS[1:], strict=True):
        top = base + np.append(one, one[-1:])
        fill(edges, base, top, step="post", color=colour, linewidth=0)
        base = top
    (axis.xaxis if is_vertical else axis.yaxis).set_major_locator(MaxNLocator(integer=True))
    axis.tick_params(labelsize=7)


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _images(n: int) -> str:
    return "1 image" if n == 1 else f"{n} images together"
