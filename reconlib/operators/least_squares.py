r"""The data term of linear samples through its normal equations, whatever the transform.

.. math::
    f(w) = \tfrac12 \|A w - z\|^2, \qquad
    \nabla f = A^H A w - b, \quad b = A^H z, \qquad
    f(w) = \tfrac12 \mathrm{Re} \langle w, \nabla f - b \rangle + \tfrac12 \|z\|^2

Samples that are not all trusted alike (:mod:`~reconlib.joint.sample_trust`) are multiplied, and so is A, by
the root of their trust.

A^H A is computed in the cheapest way (:func:`~reconlib.operators.toeplitz.normal_operator`) and b once, by
the transform that A^H A belongs to: for the convolution, which is exact, one in double precision.

The value is the difference of numbers as large as :math:`\|z\|^2`. The terms are added up in float64, but
A^H A w is rounded: for 320 x 320 pixels in float32 the value was right to 4e-8 of :math:`\|z\|^2` with the
convolution (2e-7 with the pair), which is 0.04 % of it where the noise is 1 % of the samples. Decisions of a
solver should rest on :meth:`LeastSquares.gradient` and :meth:`LeastSquares.half_norm`, where nothing cancels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from reconlib.operators.inner_product import half_square, real_dot
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.operators.power_iteration import largest_eigenvalue
from reconlib.operators.toeplitz import ToeplitzNormal, normal_operator

BACKPROJECTION_EPS = 1e-9
"""Relative error of A^H z beside an exact A^H A: at 1e-4 the value would be wrong by as much as the noise."""


@dataclass(frozen=True, slots=True, eq=False)
class LeastSquares:
    """f of the module's text for every slice of a batch, at coil images (slice, coil, y, x)."""

    operator: NonuniformFourier | ToeplitzNormal
    backprojection: Tensor
    """b: complex64 (slice, coil, y, x)"""
    half_data_norm: Tensor
    """|z|^2 / 2: float64 (slice,)"""
    largest_eigenvalue: float
    """Of A^H A, the largest of all slices, by power iteration: a little below the truth."""
    preconditioner: Tensor
    """float32 (slice, 1, y, x): what the FFT of a gradient is multiplied with, about the inverse of A^H A."""

    @staticmethod
    def of(fourier: NonuniformFourier, samples: Tensor, trust: Tensor | None = None) -> "LeastSquares":
        """Fold samples (slice, coil, point) and their trust (slice, point) into what iterations need."""
        operator = normal_operator(fourier, trust)
        half_data_norm = half_square(samples if trust is None else samples * trust[:, None].sqrt())
        samples = samples if trust is None else samples * trust[:, None]
        if isinstance(operator, NonuniformFourier):
            backprojection = fourier.adjoint(samples)
        else:
            backprojection = fourier.exactly(BACKPROJECTION_EPS).adjoint(samples.to(torch.complex128))
        one_coil = (samples.shape[0], 1, *fourier.shape)
        generator = torch.Generator(samples.device).manual_seed(0)
        largest = float(
            largest_eigenvalue(operator.normal, one_coil, generator=generator, dtype=samples.dtype).max()
        )
        density = _density(operator, samples.new_zeros(one_coil))
        return LeastSquares(
            operator,
            backprojection.to(samples.dtype),
            half_data_norm,
            largest,
            1 / density.clamp(1.0, max(largest, 1.0)),
        )

    def scaled(self, factor: Tensor) -> "LeastSquares":
        """Return the data term of samples times a factor, float32 (slice,)."""
        return replace(
            self,
            backprojection=self.backprojection * factor[:, None, None, None],
            half_data_norm=self.half_data_norm * factor.double().square(),
        )

    def normal(self, coil_images: Tensor, /) -> Tensor:
        """A^H A of coil images (slice, ..., y, x)."""
        return self.operator.normal(coil_images)

    def normal_of(self, maps: Tensor, image: Tensor, /) -> Tensor:
        """A^H A of the products of maps (slice, coil, y, x) and image (slice, 1, y, x)."""
        return self.operator.normal(maps * image)

    def gradient(self, coil_images: Tensor, /) -> Tensor:
        """A^H (A w - z)."""
        return self.operator.normal(coil_images).sub_(self.backprojection)

    def gradient_and_value(self, coil_images: Tensor, /) -> tuple[Tensor, Tensor]:
        """The gradient, and f of the module's text: float64 (slice,)."""
        gradient = self.gradient(coil_images)
        value = real_dot(coil_images, gradient - self.backprojection) / 2 + self.half_data_norm
        return gradient, value

    def half_norm(self, step: Tensor, /) -> Tensor:
        """|A d|^2 / 2: the part of f that is of second order in a step; float64 (slice,)."""
        return self.operator.half_norm(step)

    def combined_normal(self, directions: Tensor, conjugates: Tensor, images: Tensor, /) -> Tensor:
        """Sum of conj(e_c) A^H A e_c x over the coils, of n images of each slice (slice, n, y, x)."""
        measured = self.operator.normal(directions[:, :, None] * images[:, None])
        total = torch.zeros_like(images)
        for coil in range(measured.shape[1]):
            total.addcmul_(conjugates[:, coil : coil + 1], measured[:, coil])
        return total

    def parts(self, n_coils: int, /) -> Sequence[tuple[slice, "LeastSquares"]]:
        """Return all coils as one part: the operator is fastest on all of them."""
        return [(slice(0, n_coils), self)]

    def select(self, rows: Tensor, /) -> "LeastSquares":
        """Return the data term of some of the slices, given by number or as a mask."""
        return LeastSquares(
            self.operator.select(rows),
            self.backprojection[rows],
            self.half_data_norm[rows],
            self.largest_eigenvalue,
            self.preconditioner[rows],
        )


def _density(operator: NonuniformFourier | ToeplitzNormal, point: Tensor) -> Tensor:
    """Samples per cell of the grid's k-space, in FFT order, smoothed over two cells; shaped as ``point``.

    It is the spectrum of the circulant matrix nearest to A^H A under a triangular window (T. Chan, SIAM J Sci
    Stat Comput 9:766, 1988), found from the response to one pixel in the middle.
    """
    n_y, n_x = point.shape[-2:]
    point[..., n_y // 2, n_x // 2] = 1
    response = operator.normal(point)
    windows = [(1 - (torch.arange(n) - n // 2).abs() / (n // 2)).clamp_min(0) for n in (n_y, n_x)]
    window = (windows[0][:, None] * windows[1]).to(response.device)
    spectrum: Tensor = torch.fft.fft2(torch.fft.ifftshift(response * window, dim=(-2, -1))).real
    return spectrum.float()
