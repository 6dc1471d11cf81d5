r"""The normal operator of a non-uniform transform as a convolution, at a cost that is free of the points.

.. math::
    (A^H A w)(r) = \sum_{r'} K(r - r')\, w(r'), \qquad
    K(d) = \frac{1}{n_y n_x} \sum_j \exp(2 \pi i\, \kappa_j \cdot d)

is exact: shifts of -(n - 1) to n - 1 pixels are all that occur, so a periodic convolution on a grid of twice
the size does not wrap. K(-d) is the conjugate of K(d), so its transform is real. It is computed once, in
double precision.

The fine grid's transform of a zero-filled image splits into its even and odd frequencies along an axis: the
plain transform of the image, and that of the image times :math:`\exp(-\pi i r / n)`. Nothing is padded, and a
quarter of the work and two thirds of the memory are saved.

All that a least-squares problem needs is A^H A and, once, A^H z:

.. math::
    \nabla \tfrac12 \|A w - z\|^2 = A^H A w - A^H z, \qquad
    \|A d\|^2 = \mathrm{Re} \langle d, A^H A d \rangle

References
----------
Fessler et al., IEEE Trans Signal Process 53:3393 (2005).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reconlib.operators.inner_product import real_dot
from reconlib.operators.nonuniform import NonuniformFourier

KERNEL_EPS = 1e-12
"""Relative error of K, which is computed once."""
PIXELS_PER_POINT = 8
"""On a CPU the convolution is chosen where there is at least one point for so many pixels."""


@dataclass(frozen=True, slots=True, eq=False)
class ToeplitzNormal:
    """A^H A of the module's text for every slice of a batch; make it with :meth:`of`.

    Coil images (slice, ..., y, x) to the same; a derivative is the operator itself. On a CPU the images are
    done one by one, which keeps the work in the cache; on other devices all those of a slice at once.
    """

    kernels: tuple[Tensor, ...]
    """Per trajectory the transform of K, complex (2, 2, x, y): even and odd frequencies along y, along x.

    Its imaginary part is zero: torch multiplies two complex tensors in half the time that it takes for a
    complex and a real one.
    """
    twists: tuple[Tensor, Tensor]
    """exp(-pi i r / n) along y, (y,), and along x, (x,)."""
    which: tuple[int, ...] | None
    """The trajectory of each slice; None where all slices of any batch have the only one."""

    @staticmethod
    def of(fourier: NonuniformFourier, trust: Tensor | None = None) -> "ToeplitzNormal":
        """Compute the kernels of a transform's trajectories.

        With ``trust`` p, (slice, point), of A^H P A: one kernel for each slice.
        """
        device, dtype = fourier.points.device, fourier.dtype
        twists = [_twist(n).to(device=device, dtype=dtype) for n in fourier.shape]
        weights: list[Tensor | None] = [None] * len(fourier.points)
        points, which = list(fourier.points), fourier.which
        if trust is not None:
            weights, which = list(trust), tuple(range(len(trust)))
            points = [points[row] for row in fourier.which or (0,) * len(trust)]
        return ToeplitzNormal(
            tuple(_kernel(*pair, fourier.shape).to(dtype) for pair in zip(points, weights, strict=True)),
            (twists[0], twists[1]),
            which,
        )

    def normal(self, coil_images: Tensor, /) -> Tensor:
        """A^H A of coil images."""
        return _normal(coil_images, self)

    def half_norm(self, coil_images: Tensor, /) -> Tensor:
        """|A w|^2 / 2 of each slice, float64 (slice,)."""
        return real_dot(coil_images, self.normal(coil_images)) / 2

    def select(self, rows: Tensor) -> "ToeplitzNormal":
        """Return the operator of some of the slices, given by number or as a mask."""
        if self.which is None:
            return self
        kept = torch.tensor(self.which)[rows.cpu()].tolist()
        return ToeplitzNormal(self.kernels, self.twists, tuple(kept))

    def kernel_of(self, row: int) -> Tensor:
        """Return the kernel of one slice."""
        return self.kernels[0 if self.which is None else self.which[row]]


def normal_operator(
    fourier: NonuniformFourier, trust: Tensor | None = None
) -> NonuniformFourier | ToeplitzNormal:
    """Return what computes A^H A in the least time: the convolution, or the transform and its adjoint.

    On a CPU the convolution's cost goes with the pixels only. The pair's is 0.7 to 0.9 of that for few points
    and grows; an iteration of the joint solver needs four convolutions, or two pairs and two transforms
    one way. The two meet at about one point for :data:`PIXELS_PER_POINT` pixels
    (``tests/benchmarks/test_speed_of_nufft.py``). Elsewhere, and with ``trust`` (slice, point), it is always
    the convolution.
    """
    if trust is not None:
        return ToeplitzNormal.of(fourier, trust)
    n_points = fourier.points.shape[1]
    few = n_points * PIXELS_PER_POINT < math.prod(fourier.shape)
    return fourier if few and fourier.points.device.type == "cpu" else ToeplitzNormal.of(fourier)


class _Normal(torch.autograd.Function):
    """A^H A as a differentiable function; it is its own adjoint."""

    @staticmethod
    def forward(ctx: Any, coil_images: Tensor, operator: ToeplitzNormal) -> Tensor:
        ctx.operator = operator
        _check_batch(coil_images, operator)
        result = torch.empty_like(coil_images, memory_format=torch.contiguous_format)
        for row, (given, found) in enumerate(zip(coil_images, result, strict=True)):
            kernel = operator.kernel_of(row)
            if given.device.type == "cpu":
                for image, place in zip(given.flatten(0, -3), found.flatten(0, -3), strict=True):
                    place.copy_(_convolve(image, kernel, operator.twists))
            else:
                found.copy_(_convolve(given, kernel, operator.twists))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _normal(gradients[0], ctx.operator), None


_normal: Callable[[Tensor, ToeplitzNormal], Tensor] = _Normal.apply


def _convolve(image: Tensor, kernel: Tensor, twists: tuple[Tensor, Tensor]) -> Tensor:
    """Return the convolution of images (..., y, x) with K.

    The transform along y runs on transposed copies: contiguous lines are faster by more than the copies cost.
    """
    twist_y, twist_x = twists
    parts: list[Tensor] = []
    for odd_x in (0, 1):
        lines = torch.fft.fft(image * twist_x if odd_x else image, dim=-1).mT.contiguous()
        columns = _filter(lines, kernel[0, odd_x])
        columns.addcmul_(_filter(lines.mul_(twist_y), kernel[1, odd_x]), twist_y.conj())
        parts.append(torch.fft.ifft(columns.mT.contiguous(), dim=-1, norm="forward"))
    even, odd = parts
    return even.addcmul_(odd, twist_x.conj())


def _filter(lines: Tensor, spectrum: Tensor) -> Tensor:
    """Multiply the transform along the last axis; the inverse is not divided by the length."""
    filtered: Tensor = torch.fft.ifft(torch.fft.fft(lines, dim=-1).mul_(spectrum), dim=-1, norm="forward")
    return filtered


def _kernel(points: Tensor, weights: Tensor | None, shape: tuple[int, int]) -> Tensor:
    """Transform of K on the doubled grid, split as in :class:`ToeplitzNormal`; (2, 2, x, y), complex128.

    ``weights`` (point,) multiply the points' parts of K; None: 1.
    """
    doubled = (2 * shape[0], 2 * shape[1])
    fourier = NonuniformFourier.plan(points[None], doubled, eps=KERNEL_EPS, dtype=torch.complex128)
    ones = torch.ones(len(points), device=points.device)
    given = (ones if weights is None else weights).to(torch.complex128)
    kernel = fourier.adjoint(given[None, None])[0, 0] * (2 / math.sqrt(math.prod(shape)))
    # imaginary parts come from the shifts of -n alone, which have no partner and never occur
    spectrum = torch.fft.fft2(torch.fft.ifftshift(kernel), norm="forward").real
    parts = [torch.stack([spectrum[y::2, x::2].T for x in (0, 1)]) for y in (0, 1)]
    return torch.stack(parts).to(torch.complex128)


def _twist(n: int) -> Tensor:
    """exp(-pi i r / n) for r = 0..n - 1, complex128 (n,)."""
    turns = torch.arange(n, dtype=torch.float64) / n
    return torch.polar(torch.ones(n, dtype=torch.float64), -math.pi * turns)


def _check_batch(coil_images: Tensor, operator: ToeplitzNormal) -> None:
    kernel = operator.kernels[0]
    n_slices = None if operator.which is None else len(operator.which)
    shape = tuple(kernel.mT.shape[-2:])
    if (
        coil_images.ndim < 3
        or tuple(coil_images.shape[-2:]) != shape
        or n_slices not in (None, coil_images.shape[0])
    ):
        slices = "any number of slices" if n_slices is None else f"{n_slices} slices"
        raise ValueError(
            f"the coil images have shape {tuple(coil_images.shape)}; the convolution needs "
            f"(slice, ..., y, x) with {slices} of {shape} pixels."
        )
    if coil_images.dtype != kernel.dtype:
        raise ValueError(f"the coil images are {coil_images.dtype}; the kernel is {kernel.dtype}.")
