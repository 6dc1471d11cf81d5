r"""What is assumed of the image's phase.

``real``: the paper's model. The image is real and not negative; smooth coil maps carry its phase.

``soft``: a complex image a + i b relative to the smooth phase of the maps, the prior on the real part and a
light total variation on the part that smooth maps do not explain:

.. math:: \lambda R(a) + \lambda_{im} TV_\epsilon(b)

The real part may be negative: where blood flows the phase differs by up to pi from that of the tissue around
it, and no smooth map carries that. A prior whose training images had such regions (``signed``), and total
variation, take a as it is. A prior that has only seen magnitudes knows nothing of negative values; it gets

.. math:: |a|_\epsilon = \sqrt{a^2 + \epsilon^2} - \epsilon

``free``: a complex image without a reference phase, for velocities, field maps and whatever else turns the
phase from one pixel to the next. No direction in the complex plane is the prior's own, so both parts count
alike, and nothing is laid on b beside:

.. math:: \lambda \, (R(a) + R(b)), \quad\text{for priors of magnitudes}\quad
    \lambda R(|x|_\epsilon), \; |x|_\epsilon = \sqrt{a^2 + b^2 + \epsilon^2} - \epsilon

The latter leaves the phase of every pixel to the data alone: half of the unknowns have no prior, and
under-sampling shows in them. For such a prior ``soft`` is the better choice where the phase is smooth.

All hold the image as complex64 (slice, 1, y, x); in ``real`` its imaginary part is zero.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.energies.quadratic_variation import QuadraticVariation
from reconlib.energies.total_variation import TotalVariation
from reconlib.energies.view import View

ImagePhase = Literal["real", "soft", "free"]
SIGN_EPSILON = 0.01
"""epsilon of magnitudes, in units of the scaled image: about the noise of a scan."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageModel:
    """The prior terms of the image block, weighted per slice."""

    phase: ImagePhase
    energy: Energy
    weight: Tensor
    """lambda, float64 (slice,)"""
    imaginary_weight: Tensor
    """lambda_im, float64 (slice,); used in ``soft`` only"""
    imaginary: TotalVariation | QuadraticVariation = TotalVariation()
    signed: bool = True
    """The energy knows negative values; else it sees a magnitude."""

    def value(self, image: Tensor, view: View) -> Tensor:
        """Weighted energy (slice,) in float64, R taken of the ``view`` of its arguments."""
        values = [self.energy.value(view.of(seen)).double() for seen in self._seen(image)]
        total = self.weight * torch.stack(values).sum(dim=0)
        if self.phase == "soft":
            total = total + self.imaginary_weight * self.imaginary.value(image.imag.contiguous())
        return total

    def value_and_gradient(self, image: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Weighted energy (slice,) and its gradient, complex (real-valued in ``real``)."""
        found = [self.energy.value_and_gradient(view.of(seen)) for seen in self._seen(image)]
        total = self.weight * torch.stack([value.double() for value, _ in found]).sum(dim=0)
        pulls = [view.back(gradient) * _per_slice(self.weight) for _, gradient in found]
        gradient = self._of_image(pulls, image)
        if self.phase != "soft":
            return total, gradient
        value, imaginary = self.imaginary.value_and_gradient(image.imag.contiguous())
        total = total + self.imaginary_weight * value
        return total, torch.complex(gradient.real, imaginary * _per_slice(self.imaginary_weight))

    def _seen(self, image: Tensor) -> list[Tensor]:
        """Return the arguments of R, float32 (slice, 1, y, x) each."""
        if self.signed:
            return [image.real, image.imag.contiguous()] if self.phase == "free" else [image.real]
        return [self._root(image) - SIGN_EPSILON]

    def _of_image(self, pulls: list[Tensor], image: Tensor) -> Tensor:
        """Return the gradient with respect to the image, given those with respect to what R saw."""
        if self.signed:
            return torch.complex(pulls[0], pulls[1] if len(pulls) > 1 else torch.zeros_like(pulls[0]))
        turned = image if self.phase == "free" else torch.complex(image.real, torch.zeros_like(image.real))
        return pulls[0] * turned / self._root(image)

    def _root(self, image: Tensor) -> Tensor:
        square = image.real.square()
        if self.phase == "free":
            square = square + image.imag.square()
        return torch.sqrt(square + SIGN_EPSILON**2)

    def project(self, image: Tensor) -> Tensor:
        """Nearest admissible image: real and not negative in ``real``, any in the others."""
        if self.phase != "real":
            return image
        real_part = image.real.clamp_min(0)
        return torch.complex(real_part, torch.zeros_like(real_part))

    def select(self, rows: Tensor) -> "ImageModel":
        """Return the model of some of the slices."""
        imaginary = self.imaginary
        if isinstance(imaginary, QuadraticVariation):
            imaginary = imaginary.select(rows)
        return replace(
            self,
            weight=self.weight[rows],
            imaginary_weight=self.imaginary_weight[rows],
            imaginary=imaginary,
        )


def _per_slice(weight: Tensor) -> Tensor:
    return weight.float()[:, None, None, None]
