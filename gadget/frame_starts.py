"""Where the frames of real-time series start: at the coil maps of the frame before."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gadget.reconstructor import SliceResult
from gadget.scan.assembled import AssembledSlice
from reconlib.kspace import NonuniformKSpace

STARTS = "coil maps: the estimate starts from those of the frame before"


class FrameStarts:
    """The coil maps of the latest frame of each series of a stream.

    A frame whose coils or grid are others starts as the first one does, without any.
    """

    def __init__(self) -> None:
        self._maps: dict[Hashable, NDArray[np.complex64]] = {}

    def start(self, frame: AssembledSlice) -> tuple[NDArray[np.complex64] | None, AssembledSlice]:
        """Return the maps complex64 (1, coil, y, x) that a frame starts from, and it with a note on them."""
        maps, kspace = self._maps.get(frame.series), frame.kspace
        n_coils = kspace.samples.shape[1]
        grid = kspace.shape if isinstance(kspace, NonuniformKSpace) else tuple(kspace.samples.shape[2:])
        if maps is None or maps.shape != (n_coils, *grid):
            return None, frame
        context = replace(frame.context, notes=(*frame.context.notes, STARTS))
        return maps[None], replace(frame, context=context)

    def keep(self, frame: AssembledSlice, result: SliceResult) -> None:
        """Keep the maps of a frame for the next; those of a fallback or an image of zeros are none."""
        if result.coils is not None and result.coils.any():
            self._maps[frame.series] = result.coils
