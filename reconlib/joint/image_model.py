r"""What is assumed of the image's phase.

``real``: the paper's model. The image is real and not negative; smooth coil maps carry its phase.

``soft``: a complex image a + i b relative to the smooth phase of the maps, the prior on the real part and a
light total variation on the part that smooth maps do not explain:

.. math:: \lambda R(a) + \lambda_{im} TV_\epsilon(b)

The real part may be negative: where blood flows the phase differs by up to pi from that of the tissue around
it, and no smooth map carries that. A prior whose training images had such regions (``signed``), and total
variation, take a as it is. A prior that has only seen magnitudes knows nothing of negative values; it gets

.. math:: |a|_\epsilon = \sqrt{a^2 + \epsilon^2} - \epsilon

Both hold the image as complex64 (slice, 1, y, x); in ``real`` its imaginary part is zero.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.energies.quadratic_variation import QuadraticVariation
from reconlib.energies.total_variation import TotalVariation
from reconlib.energies.view import View

ImagePhase = Literal["real", "soft"]
SIGN_EPSILON = 0.01
"""epsilon of the magnitude of the real part, in units of the scaled image: about the noise of a scan."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageModel:
    """The prior terms of the image block, weighted per slice."""

    phase: ImagePhase
    energy: Energy
    weight: Tensor
    """lambda, float64 (slice,)"""
    imaginary_weight: Tensor
    """lambda_im, float64 (slice,); not used in ``real``"""
    imaginary: TotalVariation | QuadraticVariation = TotalVariation()
    signed: bool = True
    """The energy knows negative values; else it sees the magnitude of the real part."""

    def value(self, image: Tensor, view: View) -> Tensor:
        """Weighted energy (slice,) in float64, R taken of the ``view`` of its argument."""
        argument, _ = self._argument(image)
        total = self.weight * self.energy.value(view.of(argument)).double()
        if self.phase == "soft":
            total = total + self.imaginary_weight * self.imaginary.value(image.imag.contiguous())
        return total

    def value_and_gradient(self, image: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Weighted energy (slice,) and its gradient, complex (real-valued in ``real``)."""
        argument, slope = self._argument(image)
        value, gradient = self.energy.value_and_gradient(view.of(argument))
        total = self.weight * value.double()
        real_part = view.back(gradient) * slope * _per_slice(self.weight)
        if self.phase == "real":
            return total, torch.complex(real_part, torch.zeros_like(real_part))
        value, gradient = self.imaginary.value_and_gradient(image.imag.contiguous())
        total = total + self.imaginary_weight * value
        return total, torch.complex(real_part, gradient * _per_slice(self.imaginary_weight))

    def _argument(self, image: Tensor) -> tuple[Tensor, Tensor | float]:
        """What R sees of the image, and its derivative with respect to the real part."""
        if self.signed:
            return image.real, 1.0
        root = torch.sqrt(image.real.square() + SIGN_EPSILON**2)
        return root - SIGN_EPSILON, image.real / root

    def project(self, image: Tensor) -> Tensor:
        """Nearest admissible image: real and not negative in ``real``, any in ``soft``."""
        if self.phase == "soft":
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
