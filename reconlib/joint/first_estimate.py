"""Image and maps that the joint estimate begins with, from all that is known of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.joint.coil_map_start import continued_maps
from reconlib.joint.data_consistency import DataConsistency, DataTerm, normalise_coils
from reconlib.joint.image_model import ImageModel
from reconlib.joint.map_start import start_from_maps
from reconlib.joint.nonuniform_start import smooth_maps
from reconlib.joint.phase_start import phase_to_image
from reconlib.operators.sense import root_sum_of_squares


@dataclass(frozen=True, slots=True, eq=False)
class FirstEstimate:
    """Of a batch of slices."""

    image: Tensor
    """complex64 (slice, 1, y, x), in the units of the samples."""
    coils: Tensor
    """complex64 (slice, coil, y, x)"""
    is_close: bool = False
    """It is an image that was given, and explains the samples of every slice better than the ordinary one."""


def first_estimate(
    data: DataTerm,
    coil_images: Tensor,
    model: ImageModel,
    *,
    on_grid: bool,
    coils: Tensor | None,
    initial_coils: Tensor | None,
    initial_image: Tensor | None,
) -> FirstEstimate:
    """Return the paper's start, or that of given maps or a given image.

    Parameters
    ----------
    data
        Of the samples as they are.
    coil_images
        complex64 (slice, coil, y, x): A^H z, density-weighted off the grid.
    coils, initial_coils, initial_image
        As for :func:`~reconlib.reconstruction.reconstruct`.
    """
    start = root_sum_of_squares(coil_images)
    image = start.to(coil_images.dtype)
    first = coil_images / start.clamp_min(torch.finfo(start.dtype).tiny)
    maps = coils if coils is not None else initial_coils
    if maps is None and not on_grid:
        maps = smooth_maps(coil_images)
    if maps is not None:
        first = maps.to(device=coil_images.device, dtype=coil_images.dtype)
        if coils is None and isinstance(data, DataConsistency):
            combined, first = start_from_maps(data.fourier, data.samples, coil_images, first)
        else:
            combined = (normalise_coils(first)[0].conj() * coil_images).sum(dim=1, keepdim=True)
        image = model.project(combined)
    if initial_image is not None and maps is not None:
        first = maps.to(first)
        directions, given = normalise_coils(first)[0], model.project(initial_image.to(image))
        misfits = [data.gradient_and_value(directions * one)[1] for one in (given, image)]
        is_closer = misfits[0] < misfits[1]
        image = torch.where(is_closer[:, None, None, None], given, image)
        return FirstEstimate(image, first, bool(is_closer.all()))
    if model.phase == "free" and coils is None:
        peak = start.amax(dim=(1, 2, 3), keepdim=True).clamp_min(torch.finfo(start.dtype).tiny)
        image, first = phase_to_image(image / peak, first)
        image = image * peak
    return FirstEstimate(image, first)


def with_smooth_maps(
    first: FirstEstimate, coil_images: Tensor | None, smoothness: CoilSmoothness, scale: Tensor
) -> FirstEstimate:
    """Return a start for steps that need smooth maps: low-passed where nothing is known, then continued.

    Parameters
    ----------
    coil_images
        To take the maps from; None keeps those of the start.
    scale
        float32 (slice, 1, 1, 1): takes the image to about 1.
    """
    maps = first.coils if coil_images is None else smooth_maps(coil_images)
    return FirstEstimate(first.image, continued_maps(maps, first.image * scale, smoothness), first.is_close)
