r"""The data term of the joint problem, in closed form.

.. math::
    H(x, S) = \tfrac12 \sum_c \| A (e_c x) - z_c \|^2, \qquad
    e_c = s_c / n, \quad n = \sqrt{\textstyle\sum_c |s_c|^2 + \delta^2}

with A = M F on the Cartesian grid (:class:`DataConsistency`), or the transform at the points of a trajectory
(:class:`~reconlib.operators.least_squares.LeastSquares`).

The division makes the image the root-sum-of-squares image and H independent of the scale of the maps.
Gradients follow the convention d/dRe + i d/dIm. With :math:`g_c = A^H (A e_c x - z_c)`:

.. math::
    \nabla_x H = \sum_c \bar e_c g_c, \qquad
    \nabla_{s_c} H = \frac1n \Big( \bar x g_c - e_c\, \mathrm{Re} \sum_j \bar e_j \bar x g_j \Big)

:math:`\delta` only keeps the division defined where all coils vanish.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from reconlib.operators.fourier import SampledFourier
from reconlib.operators.inner_product import half_square
from reconlib.operators.sense import root_sum_of_squares

COIL_FLOOR = 1e-4
"""delta: far below the maps' magnitude, which is held at about 1."""
CACHED_PIXELS = 2**16
"""Complex pixels of all slices and coils that each thread of a CPU works on at once: half a MiB."""


def normalise_coils(coils: Tensor) -> tuple[Tensor, Tensor]:
    """Return e = s / n (slice, coil, y, x) and n (slice, 1, y, x) of the module's text."""
    magnitude = torch.sqrt(root_sum_of_squares(coils).square() + COIL_FLOOR**2)
    return coils / magnitude, magnitude


@runtime_checkable
class DataTerm(Protocol):
    r"""What the solver asks of :math:`f(w) = \tfrac12 \|A w - z\|^2` at coil images w (slice, coil, y, x)."""

    @property
    def largest_eigenvalue(self) -> float:
        """Of A^H A, about: where steps start, and what they never exceed by inertia's sake."""
        ...

    def gradient(self, coil_images: Tensor, /) -> Tensor:
        """A^H (A w - z), shaped as w."""
        ...

    def gradient_and_value(self, coil_images: Tensor, /) -> tuple[Tensor, Tensor]:
        """The gradient, and f: float64 (slice,)."""
        ...

    def normal_of(self, maps: Tensor, image: Tensor, /) -> Tensor:
        """A^H A of the products of maps (slice, coil, y, x) and image (slice, 1, y, x)."""
        ...

    def half_norm(self, step: Tensor, /) -> Tensor:
        """|A d|^2 / 2, the part of f that is of second order in a step: float64 (slice,)."""
        ...

    @property
    def preconditioner(self) -> Tensor | None:
        """What the FFT of the image's gradient is multiplied with: float32 (slice, 1, y, x), or None.

        Where samples are spread so unevenly that steps of one length would be slow.
        """
        ...

    def combined_normal(self, directions: Tensor, conjugates: Tensor, images: Tensor, /) -> Tensor:
        """E^H E x of n images of each slice (slice, n, y, x).

        With maps e (slice, coil, y, x) and their conjugates.
        """
        ...

    def parts(self, n_coils: int, /) -> Sequence[tuple[slice, "DataTerm"]]:
        """The data terms of some coils each, as many at a time as are fast together; they add up to this."""
        ...

    def select(self, rows: Tensor, /) -> "DataTerm":
        """The data term of some of the slices."""
        ...

    def scaled(self, factor: Tensor, /) -> "DataTerm":
        """The data term of samples times a factor, float32 (slice,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DataConsistency:
    """The data term of samples on the Cartesian grid."""

    fourier: SampledFourier
    samples: Tensor
    """complex64 (slice, coil, ky, kx), in the layout of ``fourier``."""

    largest_eigenvalue = 1.0
    preconditioner = None

    def gradient(self, coil_images: Tensor, /) -> Tensor:
        """F^H M (M F w - z)."""
        return self.fourier.adjoint_in_place(self._residual(coil_images))

    def gradient_and_value(self, coil_images: Tensor, /) -> tuple[Tensor, Tensor]:
        """The gradient, and half the squared norm of the residual."""
        residual = self._residual(coil_images)
        value = half_square(residual)
        return self.fourier.adjoint_in_place(residual), value

    def normal_of(self, maps: Tensor, image: Tensor, /) -> Tensor:
        """F^H M F of the products."""
        return self.fourier.normal_in_place(maps * image)

    def half_norm(self, step: Tensor, /) -> Tensor:
        """|M F d|^2 / 2."""
        return half_square(self.fourier.forward(step))

    def combined_normal(self, directions: Tensor, conjugates: Tensor, images: Tensor, /) -> Tensor:
        """Sum of conj(e_c) F^H M F e_c x over the coils, some at a time."""
        fourier = SampledFourier(self.fourier.mask[:, None], self.fourier.axes)
        total, measured = torch.zeros_like(images), None
        for coils in _coils_at_once(directions.shape[1], images.numel(), images.device):
            maps, stack = directions[:, coils, None], images[:, None]
            measured = torch.mul(maps, stack, out=_room(measured, maps, stack))
            fourier.normal_in_place(measured)
            for coil in range(measured.shape[1]):
                total.addcmul_(conjugates[:, coils][:, coil : coil + 1], measured[:, coil])
        return total

    def parts(self, n_coils: int, /) -> Sequence[tuple[slice, "DataConsistency"]]:
        """Return data terms of as many coils as fit into the cores' caches; on a GPU all at once."""
        parts = _coils_at_once(n_coils, self.samples[:, 0].numel(), self.samples.device)
        return [(coils, replace(self, samples=self.samples[:, coils])) for coils in parts]

    def select(self, rows: Tensor, /) -> "DataConsistency":
        """Return the data term of some of the slices."""
        return DataConsistency(self.fourier.select(rows), self.samples[rows])

    def scaled(self, factor: Tensor, /) -> "DataConsistency":
        """Return the data term of samples times a factor."""
        return DataConsistency(self.fourier, self.samples * factor[:, None, None, None])

    def _residual(self, coil_images: Tensor) -> Tensor:
        return self.fourier.forward(coil_images).sub_(self.samples)


def _coils_at_once(n_coils: int, n_pixels: int, device: torch.device) -> list[slice]:
    """Return as many coils of ``n_pixels`` each as fit into the cores' caches; on a GPU all at once."""
    cached = CACHED_PIXELS * torch.get_num_threads()
    at_once = max(1, cached // max(1, n_pixels)) if device.type == "cpu" else n_coils
    return [slice(first, min(first + at_once, n_coils)) for first in range(0, n_coils, at_once)]


def _room(used: Tensor | None, maps: Tensor, stack: Tensor) -> Tensor:
    """Return memory for a product, the same where its shape is; new pages cost as much as an FFT."""
    shape = torch.Size((len(stack), maps.shape[1], *stack.shape[2:]))
    return used if used is not None and used.shape == shape else stack.new_empty(shape)


def image_gradient(directions: Tensor, pull: Tensor) -> Tensor:
    """Gradient of H in the image from the normalised maps e and the data term's gradient g at e x."""
    return torch.einsum("scyx,scyx->syx", directions.conj(), pull)[:, None]
