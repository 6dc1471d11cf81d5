"""Where the frames of real-time series start: at the image and the coil maps of the frame before."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gadget.reconstructor import SliceResult
from gadget.scan.assembled import AssembledSlice
from reconlib.kspace import NonuniformKSpace

STARTS = "image and coil maps: the estimate starts from those of the frame before"


class FrameStarts:
    """Image and coil maps of the latest frame of each series of a stream.

    A frame whose coils or grid are others starts as the first one does, without any.
    """

    def __init__(self) -> None:
        self._latest: dict[Hashable, tuple[NDArray[np.complex64], NDArray[np.complex64]]] = {}

    def start(
        self, frame: AssembledSlice
    ) -> tuple[NDArray[np.complex64] | None, NDArray[np.complex64] | None, AssembledSlice]:
        """Return what a frame starts from, and it with a note on that.

        Returns
        -------
        maps, image, frame
            complex64 (1, coil, y, x) and (1, 1, y, x), or None and None.
        """
        latest, kspace = self._latest.get(frame.series), frame.kspace
        n_coils = kspace.samples.shape[1]
        grid = kspace.shape if isinstance(kspace, NonuniformKSpace) else tuple(kspace.samples.shape[2:])
        if latest is None or latest[0].shape != (n_coils, *grid):
            return None, None, frame
        maps, image = latest
        context = replace(frame.context, notes=(*frame.context.notes, STARTS))
        return maps[None], image[None, None], replace(frame, context=context)

    def keep(self, frame: AssembledSlice, result: SliceResult) -> None:
        """Keep image and maps of a frame for the next; a fallback or an image of zeros is no start."""
        if result.coils is not None and result.coils.any():
            self._latest[frame.series] = result.coils, result.image.astype(np.complex64)
