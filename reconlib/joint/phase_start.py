r"""The start of the joint estimate where the image has a phase of its own (``free``).

The paper's start gives the whole phase of the coil images to the maps, from which their smoothness takes away
what is not smooth. Where the object's own phase is steep, that loses signal which the image does not find
again. The start of ``free`` leaves the maps only what differs between the coils, and that is smooth:

.. math:: v = \sum_c \overline{w_c} \, s_c x, \qquad
    s_c x \; \text{as it was}, \qquad \arg x = \arg v

w is the dominant eigenvector of :math:`\sum_r (s x)(s x)^H`, so v is the one combination of the coil images
that holds most of their energy (a virtual body coil). Where v vanishes the phase stays where it is.

References
----------
Buehrer et al., Magn Reson Med 57:1131 (2007), for the combination; Parker et al., Magn Reson Med 72:563
(2014), for the phase of a virtual coil as a reference.
"""

import torch
from torch import Tensor


def phase_to_image(image: Tensor, coils: Tensor) -> tuple[Tensor, Tensor]:
    """Move phase from maps (slice, coil, y, x) to the image (slice, 1, y, x); the coil images stay.

    Slices that are not finite stay as they are; the solver reports them.
    """
    coil_images = coils * image
    turn = _unit(_virtual_coil(coil_images)) * _unit(image).conj()
    return image * turn, coils * turn.conj()


def _virtual_coil(coil_images: Tensor) -> Tensor:
    n_slices, n_coils = coil_images.shape[:2]
    flat = coil_images.reshape(n_slices, n_coils, -1)
    finite = torch.isfinite(torch.view_as_real(flat)).all(dim=3).all(dim=2).all(dim=1)
    flat = torch.where(finite[:, None, None], flat, torch.zeros_like(flat))
    weights = torch.linalg.eigh(flat @ flat.mH)[1][..., -1]
    # An eigenvector has no phase of its own: its largest entry shall be positive.
    largest = weights.gather(1, weights.abs().argmax(dim=1, keepdim=True))
    weights = weights * _unit(largest).conj()
    return torch.einsum("nc,ncp->np", weights.conj(), flat).reshape(n_slices, 1, *coil_images.shape[2:])


def _unit(values: Tensor) -> Tensor:
    """Return values / |values|; 1 where they vanish or are not finite."""
    size = values.abs()
    known = (size > 0) & torch.isfinite(size)
    return torch.where(known, values / torch.where(known, size, 1), 1)
