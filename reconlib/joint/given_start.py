"""Checks of maps and images that a reconstruction is given to start from, or to keep."""

import torch
from torch import Tensor

from reconlib.kspace import KSpace, NonuniformKSpace


def check_given(
    kspace: KSpace | NonuniformKSpace,
    *,
    coils: Tensor | None,
    initial_coils: Tensor | None,
    initial_image: Tensor | None,
) -> None:
    """Refuse what cannot belong to these samples.

    Raises
    ------
    ValueError
        As :func:`reconlib.reconstruction.reconstruct` says.
    """
    if coils is not None:
        _check_maps(coils, kspace)
        _check_not_zero(coils)
    if initial_coils is not None:
        if coils is not None:
            raise ValueError("coils and initial_coils are both given; maps either stay or are a start.")
        _check_maps(initial_coils, kspace)
    if initial_image is not None:
        _check_image(initial_image, initial_coils)


def _check_maps(coils: Tensor, kspace: KSpace | NonuniformKSpace) -> None:
    """Refuse maps that cannot belong to these samples."""
    grid = kspace.shape if isinstance(kspace, NonuniformKSpace) else tuple(kspace.samples.shape[2:])
    expected = (*kspace.samples.shape[:2], *grid)
    if tuple(coils.shape) != expected:
        raise ValueError(
            f"the given coil maps have shape {tuple(coils.shape)}, the samples {expected}; "
            "both need (slice, coil, y, x)."
        )
    if not bool(torch.isfinite(torch.view_as_real(coils.to(torch.complex64))).all()):
        raise ValueError("the given coil maps hold infinities or NaNs; give finite maps.")


def _check_image(image: Tensor, coils: Tensor | None) -> None:
    """Refuse an image that cannot belong to these samples."""
    if coils is None:
        raise ValueError(
            "initial_image is given without initial_coils, to which its phase is relative; give both."
        )
    expected = (coils.shape[0], 1, *coils.shape[2:])
    if tuple(image.shape) != expected:
        raise ValueError(f"initial_image has shape {tuple(image.shape)}; these samples need {expected}.")
    if not bool(torch.isfinite(torch.view_as_real(image.to(torch.complex64))).all()):
        raise ValueError("initial_image holds infinities or NaNs; give a finite image.")


def _check_not_zero(coils: Tensor) -> None:
    if not bool((coils != 0).flatten(1).any(dim=1).all()):
        raise ValueError("the given coil maps of a slice are zero everywhere; give maps of every slice.")
