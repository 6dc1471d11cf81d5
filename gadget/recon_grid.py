"""From the grid of the reconstruction to the matrix and field of view of the images that are sent."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gadget.scan.context import ScanContext
from gadget.scan.fit_axis import fit_axis


def map_to_recon_grid(image: Tensor, context: ScanContext) -> Tensor:
    """Bring images (..., y, x), complex64 or float32, from the assembled grid to the recon matrix.

    Along each axis: zero-fill (or cut) k-space so that the pixels have the size of the recon matrix's, then
    keep the middle of the field of view (phase oversampling; an oversampled readout that could not be cropped
    before). The pixel with index n // 2 stays in place, and intensities stay as they are. Where no pixel
    changes its size, nothing is interpolated, and the type stays; else the result is complex64. A field of
    view that is not a whole number of pixels is met to half a pixel.

    The map is linear, so it may be taken of each draw of a posterior.
    """
    for axis, which in ((-2, 1), (-1, 0)):
        n_recon, fov_mm = context.recon_matrix[which], context.recon_fov_mm[which]
        n_filled = max(1, round(n_recon * context.grid_fov_mm[which] / fov_mm))
        image = fit_axis(image, axis, n_filled, n_recon)
    return image


def to_recon_grid(
    image: NDArray[np.complex64] | NDArray[np.float32], context: ScanContext
) -> NDArray[np.complex64] | NDArray[np.float32]:
    """Do what :func:`map_to_recon_grid` does, on an array."""
    result: NDArray[np.complex64] | NDArray[np.float32]
    result = map_to_recon_grid(torch.from_numpy(np.ascontiguousarray(image)), context).numpy()
    return result
