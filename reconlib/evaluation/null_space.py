r"""How well coil maps explain the coil images: what is left of these outside the span of the maps.

With the true maps e(r), of root-sum-of-squares 1, every coil image is e_c(r) times one image, so the part of
the fully sampled coil images x_c(r) that is orthogonal to e(r) is noise:

.. math:: 100 \cdot \frac{\sum_{c, r} |x_c - e_c \sum_j \bar e_j x_j|^2}{\sum_{c, r} |x_c|^2}

References
----------
Uecker et al., ESPIRiT, Magn Reson Med 71:990 (2014), section on the projection onto the null space.
"""

import torch
from torch import Tensor

from reconlib.operators.sense import root_sum_of_squares


def null_space_residual(coil_images: Tensor, coils: Tensor) -> Tensor:
    """Return the share of the coil images that the maps do not explain, in percent; float64 (slice,).

    Both are complex (slice, coil, y, x). The maps are divided by their root-sum-of-squares; where all of them
    vanish the coil images are left over completely.
    """
    if coil_images.shape != coils.shape or coil_images.ndim != 4:
        raise ValueError(
            f"Coil images of shape {tuple(coil_images.shape)} cannot be compared with maps of shape "
            f"{tuple(coils.shape)}; both need (slice, coil, y, x)."
        )
    images, maps = coil_images.to(torch.complex128), coils.to(torch.complex128)
    maps = maps / root_sum_of_squares(maps).clamp_min(1e-30)
    combined = (maps.conj() * images).sum(dim=1, keepdim=True)
    left, whole = (x.abs().square().sum(dim=(1, 2, 3)) for x in (images - maps * combined, images))
    if not bool((whole > 0).all()):
        raise ValueError("The coil images of a slice are all zero; there is nothing to explain.")
    return 100 * left / whole
