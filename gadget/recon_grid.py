"""From the grid of the reconstruction to the matrix and field of view of the images that are sent."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gadget.scan.context import ScanContext

Transform = Callable[..., Tensor]


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
        n = image.shape[axis]
        if n_filled != n:
            spectrum = _centred(torch.fft.fft, image.to(torch.complex64), axis)
            image = _centred(torch.fft.ifft, _centre_fit(spectrum, n_filled, axis), axis) * (n_filled / n)
        image = _centre_fit(image, n_recon, axis)
    return image


def to_recon_grid(
    image: NDArray[np.complex64] | NDArray[np.float32], context: ScanContext
) -> NDArray[np.complex64] | NDArray[np.float32]:
    """Do what :func:`map_to_recon_grid` does, on an array."""
    result: NDArray[np.complex64] | NDArray[np.float32]
    result = map_to_recon_grid(torch.from_numpy(np.ascontiguousarray(image)), context).numpy()
    return result


def _centred(transform: Transform, array: Tensor, axis: int) -> Tensor:
    shifted: Tensor = transform(torch.fft.ifftshift(array, dim=axis), dim=axis)
    result: Tensor = torch.fft.fftshift(shifted, dim=axis)
    return result


def _centre_fit(array: Tensor, size: int, axis: int) -> Tensor:
    """Cut or zero-pad an axis, keeping index n // 2 at the new n // 2."""
    n = array.shape[axis]
    start = n // 2 - size // 2
    first, last = max(start, 0), min(start + size, n)
    kept = array.narrow(axis, first, last - first)
    if last - first == size:
        return kept
    shape = list(array.shape)
    shape[axis] = size
    result = array.new_zeros(shape)
    result.narrow(axis, first - start, last - first).copy_(kept)
    return result
