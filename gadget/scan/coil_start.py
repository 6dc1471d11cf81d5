"""Where the estimate of coil maps starts: at those of a separate calibration, where a slice has one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gadget.scan.assemble import AssembledSlice
from gadget.scan.calibration import CalibrationLines
from gadget.scan.calibration_maps import coil_maps
from reconlib.joint.map_start import has_own_calibration
from reconlib.kspace import KSpace, NonuniformKSpace

UNUSABLE = "separate calibration not used: the centre of its k-space was not measured"
STARTS = "coil maps: the estimate starts from the separate calibration"
STAYS = "coil maps: those of the separate calibration, as the centre of the image's k-space was not measured"


def maps_of(
    calibrations: Sequence[CalibrationLines | None], shape: tuple[int, int, int], fov_mm: tuple[float, float]
) -> NDArray[np.complex64] | None:
    """Return rough maps (slice, coil, y, x), zero where a slice has none; None where none has any.

    Parameters
    ----------
    shape
        (coil, y, x) of the slices.
    fov_mm
        Of the slices, along x and y.
    """
    maps = np.zeros((len(calibrations), *shape), np.complex64)
    for index, lines in enumerate(calibrations):
        found = None if lines is None else coil_maps(lines, (shape[2], shape[1]), fov_mm)
        if found is not None:
            maps[index] = found
    return maps if maps.any() else None


def coil_start(
    batch: Sequence[AssembledSlice],
) -> tuple[NDArray[np.complex64] | None, list[AssembledSlice]]:
    """Return the maps that a batch of slices starts from, and the slices with a note about them.

    Slices of a batch have one shape and field of view. Non-Cartesian slices have no separate calibration.
    """
    first = batch[0]
    if isinstance(first.kspace, NonuniformKSpace):
        return None, list(batch)
    n_coils, n_y, n_x = first.kspace.samples.shape[1:]
    maps = maps_of([one.calibration for one in batch], (n_coils, n_y, n_x), first.context.grid_fov_mm)
    return maps, [
        one if one.calibration is None else _noted(one, maps is not None and bool(maps[index].any()))
        for index, one in enumerate(batch)
    ]


def _noted(one: AssembledSlice, is_used: bool) -> AssembledSlice:
    note = UNUSABLE
    if is_used and isinstance(one.kspace, KSpace):
        note = STARTS if has_own_calibration(one.kspace.mask) else STAYS
    return replace(one, context=replace(one.context, notes=(*one.context.notes, note)))
