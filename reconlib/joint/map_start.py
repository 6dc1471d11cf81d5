r"""The start of the joint estimate where coil maps are known roughly, as from a separate calibration.

The maps e (normalised) give a first image by SENSE, a few steps of conjugate gradients on

.. math:: \min_x \tfrac12 \sum_c \| M F (e_c x) - z_c \|^2

from x = 0 (stopping early is all the regularisation there is). A calibration was measured at another time,
often with another contrast, so its maps do not carry the image's phase. Its smooth part,

.. math:: e^{i\varphi} = L x / |L x|, \qquad L: \text{low pass with a Hann window}

is moved from the image to the maps, as the joint model has it: the start is :math:`e\,e^{i\varphi}` and
:math:`x\,e^{-i\varphi}`.

References
----------
Pruessmann et al., Magn Reson Med 46:638 (2001).
"""

import math

import torch
from torch import Tensor

from reconlib.joint.data_consistency import normalise_coils
from reconlib.operators.fourier import SampledFourier, fft2c, ifft2c
from reconlib.operators.sense import SenseInImage, root_sum_of_squares

SENSE_STEPS = 10
SOLVED = 1e-10
"""Squared norm of the residual, relative to the first, at which float32 knows no direction to go on in."""
PHASE_WIDTH = 12
"""Samples of k-space along each axis that the smooth phase is made of."""
OWN_CALIBRATION = 8
"""Samples along each axis that a calibration in the data's own k-space must have."""


def start_from_maps(
    fourier: SampledFourier, samples: Tensor, coil_images: Tensor, maps: Tensor
) -> tuple[Tensor, Tensor]:
    """Return image (slice, 1, y, x) and normalised maps (slice, coil, y, x) to start from.

    Parameters
    ----------
    samples
        In the layout of ``fourier``, in any units, those of the image.
    coil_images
        The adjoint of the samples.
    maps
        complex64 (slice, coil, y, x), of any magnitude. Where all coils of a pixel are zero nothing is known:
        there the coil images over their root-sum-of-squares stand in, and a slice of which nothing is known
        starts as one without maps: with these and their root-sum-of-squares.
    """
    start = root_sum_of_squares(coil_images)
    ordinary = coil_images / start.clamp_min(torch.finfo(start.dtype).tiny)
    known = (maps != 0).any(dim=1, keepdim=True)
    directions = torch.where(known, normalise_coils(maps)[0], ordinary)
    image = _sense(SenseInImage(directions, fourier), samples)
    phase = _smooth_phase(image)
    is_known = known.any(dim=(2, 3), keepdim=True)
    image = torch.where(is_known, image * phase.conj(), start.to(image.dtype))
    return image, torch.where(is_known, directions * phase, ordinary)


def has_own_calibration(mask: Tensor) -> bool:
    """Whether the centre of k-space (its 8 x 8 samples) was measured in each slice (slice, 1, ky, kx).

    Without, nothing in the data tells coils and image apart, and a joint estimate drifts away from any start.
    """
    n_y, n_x = mask.shape[-2:]
    centre = mask
    for axis, n in ((-2, n_y), (-1, n_x)):
        width = min(OWN_CALIBRATION, n)
        centre = centre.narrow(axis, n // 2 - width // 2, width)
    return bool(centre.all())


def _sense(model: SenseInImage, samples: Tensor) -> Tensor:
    residual = direction = model.adjoint(samples)
    image = torch.zeros_like(residual)
    tiny = torch.finfo(torch.float32).tiny
    power = first = _power(residual)
    for _ in range(SENSE_STEPS):
        pull = model.adjoint(model.forward(direction))
        length = power / (direction.conj() * pull).real.sum(dim=(1, 2, 3), keepdim=True).clamp_min(tiny)
        # with maps that do not tell folded pixels apart it is solved in a step or two; the rest is rounding
        length = torch.where(power > SOLVED * first, length, 0)
        image = image + length * direction
        residual = residual - length * pull
        before, power = power, _power(residual)
        direction = residual + power / before.clamp_min(tiny) * direction
    return image


def _power(image: Tensor) -> Tensor:
    return torch.view_as_real(image).square().sum(dim=(1, 2, 3, 4)).reshape(-1, 1, 1, 1)


def _smooth_phase(image: Tensor) -> Tensor:
    low = ifft2c(fft2c(image) * _window(image))
    magnitude = low.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return torch.where(low == 0, torch.ones_like(low), low / magnitude)


def _window(image: Tensor) -> Tensor:
    """Separable Hann window round the zero frequency."""
    n_y, n_x = image.shape[-2:]
    y, x = (_hann(n).to(image.device) for n in (n_y, n_x))
    return y[:, None] * x


def _hann(n: int) -> Tensor:
    distance = (torch.arange(n) - n // 2).abs() / (PHASE_WIDTH / 2)
    return torch.where(distance < 1, 0.5 + 0.5 * torch.cos(math.pi * distance), torch.zeros(()))
