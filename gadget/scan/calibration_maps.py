r"""From separate calibration lines to rough coil maps, on any grid.

A coil's image from the centre of k-space is

.. math:: c(r) = \sum_k h(k)\, z_k \exp(2 \pi i\, k r / F), \qquad k = -n/2 \ldots

with F the calibration's field of view and h a Hann window, which is a smooth function of the place r: it is
evaluated where the pixels of the slice are, whatever their size and field of view. The maps are these images
over their root-sum-of-squares. Coils vary slowly, so the window ends, in cycles per mm, where the first axis
runs out of measured lines, and at ``MOST_CYCLES`` per field of view at most. Outside of the calibration's
field of view nothing is known, and the maps are zero.
"""

import numpy as np
from numpy.typing import NDArray

from gadget.scan.calibration import CalibrationLines

MOST_CYCLES = 16


def coil_maps(
    lines: CalibrationLines, matrix: tuple[int, int], fov_mm: tuple[float, float]
) -> NDArray[np.complex64] | None:
    """Return maps complex64 (coil, y, x) for a slice's grid; matrix and field of view along x and y.

    None where the centre of k-space was not measured: then the lines say nothing.
    """
    window = _window_ends(lines)
    if window is None:
        return None
    images = lines.samples
    for axis in (0, 1):
        images = _evaluate(
            images, axis, lines.fov_mm[axis], window[axis], _places(matrix[axis], fov_mm[axis])
        )
    magnitude = np.sqrt((np.abs(images) ** 2).sum(axis=0))
    return np.where(magnitude > 0, images / np.where(magnitude > 0, magnitude, 1), 0).astype(np.complex64)


def split_calibration(
    lines: CalibrationLines, axis: int, n: int, fov_mm: float
) -> tuple[CalibrationLines, ...] | None:
    """Transform the calibration of a volume along one axis (0, 1, 2: x, y, z) and cut it there.

    Returns ``n`` calibrations with the other two axes, one for each pixel along that axis, ``fov_mm`` its
    field of view; None where the centre of k-space was not measured.
    """
    window = _window_ends(lines)
    if window is None:
        return None
    images = _evaluate(lines.samples, axis, lines.fov_mm[axis], window[axis], _places(n, fov_mm))
    array_axis = lines.mask.ndim - 1 - axis
    mask = np.asarray(np.any(lines.mask, axis=array_axis))
    rest = tuple(fov for which, fov in enumerate(lines.fov_mm) if which != axis)
    parts = np.moveaxis(images, array_axis + 1, 0)
    return tuple(CalibrationLines(samples=part, mask=mask, fov_mm=rest) for part in parts)


def _window_ends(lines: CalibrationLines) -> list[float] | None:
    """Return for x, y (and z) the first index, counted from the zero frequency, at which the window is 0."""
    centre = tuple(n // 2 for n in lines.mask.shape)
    if not lines.mask[centre]:
        return None
    ends = []
    for axis, fov_mm in enumerate(lines.fov_mm):
        array_axis = lines.mask.ndim - 1 - axis
        through = np.moveaxis(lines.mask, array_axis, 0)
        line = through[(slice(None), *(c for which, c in enumerate(centre) if which != array_axis))]
        ends.append((_first_gap(line), fov_mm))
    largest = min(min(end, MOST_CYCLES) / fov_mm for end, fov_mm in ends)
    return [largest * fov_mm for _, fov_mm in ends]


def _first_gap(line: NDArray[np.bool_]) -> int:
    """Return the distance from the zero frequency to the nearest sample that was not measured, or the end."""
    centre = line.size // 2
    gaps = np.flatnonzero(~line)
    to_gap = int(np.abs(gaps - centre).min()) if gaps.size else line.size
    return min(to_gap, centre + 1, line.size - centre)


def _places(n: int, fov_mm: float) -> NDArray[np.float64]:
    return np.asarray((np.arange(n) - n // 2) * (fov_mm / n), np.float64)


def _evaluate(
    samples: NDArray[np.complex64], axis: int, fov_mm: float, end: float, places: NDArray[np.float64]
) -> NDArray[np.complex64]:
    """Transform one axis (counted from the last) to image space, at these places in mm."""
    n = samples.shape[-1 - axis]
    k = np.arange(n) - n // 2
    distance = np.abs(k) / end
    window = np.where(distance < 1, 0.5 + 0.5 * np.cos(np.pi * distance), 0)
    matrix = window * np.exp(2j * np.pi * k * places[:, None] / fov_mm) / np.sqrt(n)
    # To half a pixel beyond the edge, so that a grid of the same field of view is covered.
    matrix[np.abs(places) > 0.5 * fov_mm * (1 + 1 / max(places.size, 1))] = 0
    moved = np.moveaxis(samples, -1 - axis, -1) @ matrix.T.astype(np.complex64)
    result: NDArray[np.complex64] = np.moveaxis(moved, -1, -1 - axis)
    return result
