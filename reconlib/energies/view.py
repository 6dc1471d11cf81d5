r"""How a prior looks at an image in one evaluation: with noise on it, shifted, turned.

A prior that knows images in every orientation, and at every place, should give the same energy to each of
them. A network with strided convolutions does not quite: its features lie on a grid. With a view that is
drawn anew for each evaluation the prior becomes

.. math:: \bar R(x) = E_{g, n} \, R(g(x + n)),

with n normal noise and g one of the eight symmetries of the square after a (periodic) shift, and each
evaluation gives an unbiased estimate of it. The average over iterations is free of the grid's marks ("cycle
spinning": Coifman and Donoho, Lect Notes Stat 103:125, 1995).

Noise comes in pairs, n and then -n ("antithetic": Hammersley and Morton, Math Proc Camb Philos Soc 52:449,
1956). Each alone is as good as any; what the gradients of a pair have that is linear in n, which is most of
their noise, cancels where it is summed up, as over the steps of a solver.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

_AXES = (-2, -1)
LARGEST_SHIFT = 16
"""Shifts are below this many pixels along each axis: the coarsest stride of the networks here."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One view; without arguments the image as it is."""

    noise: Tensor | None = None
    """float32, broadcastable to the image: added before anything else."""
    shift: tuple[int, int] = (0, 0)
    """Pixels (y, x), periodic."""
    symmetry: int = 0
    """0 to 7: bit 0 mirrors x, bit 1 mirrors y, bit 2 exchanges x and y, in this order."""

    def of(self, image: Tensor) -> Tensor:
        """Return what the prior sees of an image (slice, 1, y, x)."""
        seen = image if self.noise is None else image + self.noise
        if self.shift != (0, 0):
            seen = torch.roll(seen, self.shift, _AXES)
        if self.symmetry & 3:
            seen = seen.flip(self._mirrored())
        return seen.transpose(*_AXES).contiguous() if self.symmetry & 4 else seen

    def back(self, gradient: Tensor) -> Tensor:
        """Return the gradient with respect to the image, given that with respect to what was seen."""
        if self.symmetry & 4:
            gradient = gradient.transpose(*_AXES)
        if self.symmetry & 3:
            gradient = gradient.flip(self._mirrored())
        if self.shift != (0, 0):
            gradient = torch.roll(gradient, (-self.shift[0], -self.shift[1]), _AXES)
        return gradient.contiguous()

    def _mirrored(self) -> list[int]:
        return [axis for bit, axis in ((1, -1), (2, -2)) if self.symmetry & bit]


def draw_view(
    matrix: tuple[int, int],
    generator: torch.Generator,
    device: torch.device,
    *,
    noise_std: float,
    symmetric: bool,
) -> View:
    """Draw a view of images (slice, 1, y, x) of that matrix; the same for all slices."""
    noise = None
    if noise_std > 0:
        noise = noise_std * torch.randn((1, 1, *matrix), generator=generator, device=generator.device).to(
            device
        )
    if not symmetric:
        return View(noise)
    drawn = torch.randint(0, LARGEST_SHIFT, (2,), generator=generator, device=generator.device).tolist()
    symmetry = int(torch.randint(0, 8, (1,), generator=generator, device=generator.device))
    return View(noise, (drawn[0], drawn[1]), symmetry)


@dataclass(slots=True, eq=False)
class Views:
    """Draws one view after another, the same for all slices of the images."""

    images: Tensor
    """(slice, 1, y, x), for their matrix and device."""
    generator: torch.Generator
    noise_std: float
    symmetric: bool
    _unpaired: Tensor | None = field(default=None, init=False)
    """Noise whose negative is still to come."""

    def draw(self) -> View:
        """Return the next one."""
        pair = self._unpaired
        view = draw_view(
            (self.images.shape[-2], self.images.shape[-1]),
            self.generator,
            self.images.device,
            noise_std=self.noise_std if pair is None else 0.0,
            symmetric=self.symmetric,
        )
        self._unpaired = view.noise
        return view if pair is None else replace(view, noise=-pair)
