"""Bring one axis of an image to another number of pixels and another field of view."""

from collections.abc import Callable

import torch
from torch import Tensor

Transform = Callable[..., Tensor]


def fit_axis(image: Tensor, axis: int, n_filled: int, n_kept: int) -> Tensor:
    """Zero-fill (or cut) the k-space of an axis to ``n_filled`` pixels, and keep the middle ``n_kept``."""
    n = image.shape[axis]
    if n_filled != n:
        spectrum = _centred(torch.fft.fft, image.to(torch.complex64), axis)
        image = _centred(torch.fft.ifft, _centre_fit(spectrum, n_filled, axis), axis) * (n_filled / n)
    return _centre_fit(image, n_kept, axis)


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
