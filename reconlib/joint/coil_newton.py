r"""The coil block of the split solver: a Gauss-Newton step of the maps, the image held fixed.

Maps of magnitude 1 lie on a sphere in every pixel. With e the maps, x the image and the residual linearised
at e, the step v is tangent to the spheres, :math:`\mathrm{Re} \sum_c \bar e_c v_c = 0`, and minimises about

.. math::
    \mathrm{Re} \langle g + \nabla \mu F(e), v \rangle + \tfrac12 \| A (v x) \|^2 + \mu F(v), \qquad
    g_c = \bar x A^H (A e_c x - z_c),

by a few steps of conjugate gradients. (The spheres' curvature, by which F rises less along them than in
space, is left out: with it the model need not be convex.) mu F joins pixels that the data term knows nothing
of, and a gradient step carries that only a few pixels on, so the residual is preconditioned by
:math:`(\mu D^T D + m)^{-1}`, with the differences D continued periodically (an FFT does it) and m the mean
curvature of the data term.

The new maps are e + t v divided by their root-sum-of-squares. What H + mu F changes by is computed from
differences, without cancellation. Where it would rise the maps stay, and t is a quarter next time; where it
falls t doubles, up to 1. All of that is decided slice by slice, on the device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.joint.data_consistency import DataTerm
from reconlib.operators.inner_product import real_dot
from reconlib.operators.sense import real_products, root_sum_of_squares

SMALLEST_CURVATURE = 1e-6
"""m where the image is zero."""


@dataclass(frozen=True, slots=True, eq=False)
class CoilMaps:
    """Maps of magnitude 1, and the share t of a step that the next one takes."""

    maps: Tensor
    """complex64 (slice, coil, y, x)"""
    length: Tensor
    """float64 (slice,)"""

    @staticmethod
    def start(maps: Tensor) -> "CoilMaps":
        """Return maps divided by their root-sum-of-squares, where that is not 0."""
        return CoilMaps(unit_maps(maps), torch.ones(len(maps), dtype=torch.float64, device=maps.device))


def newton_coil_step(
    data: DataTerm, smoothness: CoilSmoothness, state: CoilMaps, image: Tensor, *, n_steps: int
) -> tuple[CoilMaps, Tensor]:
    """Return better maps, and H + mu F with them: float64 (slice,).

    Parameters
    ----------
    image
        x: complex64 (slice, 1, y, x).
    n_steps
        Of conjugate gradients.
    """
    maps = state.maps
    parts = data.parts(maps.shape[1])
    conjugate = image.conj().resolve_conj()
    gradient = torch.empty_like(maps)

    def for_parts(work: Callable[[slice, DataTerm], Tensor]) -> Tensor:
        """Return the sum over the parts of what is (slice,) of each."""
        return torch.stack([work(*one) for one in parts]).sum(dim=0)

    def linearised(coils: slice, part: DataTerm) -> Tensor:
        pull, misfit = part.gradient_and_value(maps[:, coils] * image)
        slope = smoothness.gradient(maps[:, coils])
        torch.addcmul(slope, pull, conjugate, out=gradient[:, coils])
        return misfit + real_dot(maps[:, coils], slope) / 2

    value = for_parts(linearised)
    mean = (2 * data.half_norm(image) / image[0].numel()).clamp_min(SMALLEST_CURVATURE)
    inverse = 1 / (smoothness.periodic_spectrum(image.shape[-2:], maps.device) + _per_slice(mean))

    def hessian(step: Tensor) -> Tensor:
        product = torch.empty_like(step)
        for coils, part in parts:
            pulled = part.normal_of(step[:, coils], image).mul_(conjugate)
            torch.add(smoothness.gradient(step[:, coils]), pulled, out=product[:, coils])
        return _tangent(maps, product)

    def condition(residual: Tensor) -> Tensor:
        smooth = torch.empty_like(residual)
        for coils, _ in parts:
            torch.fft.fft2(residual[:, coils], out=smooth[:, coils])
            torch.fft.ifft2(smooth[:, coils].mul_(inverse), out=smooth[:, coils])
        return _tangent(maps, smooth)

    residual = _tangent(maps, gradient.clone()).neg_()
    direction = condition(residual)
    size = real_dot(residual, direction)
    step = torch.zeros_like(maps)
    for left in reversed(range(n_steps)):
        product = hessian(direction)
        length = _per_slice(size / real_dot(direction, product).clamp_min(1e-30)).to(maps.dtype)
        step.addcmul_(direction, length)
        if not left:
            break
        residual.addcmul_(product, length, value=-1)
        conditioned = condition(residual)
        next_size = real_dot(residual, conditioned)
        turn = _per_slice(next_size / size.clamp_min(1e-30)).to(maps.dtype)
        direction = conditioned.addcmul_(direction, turn)
        size = next_size

    new = unit_maps(step.mul_(_per_slice(state.length)).add_(maps))

    def rise_of(coils: slice, part: DataTerm) -> Tensor:
        turn = new[:, coils] - maps[:, coils]
        linear = real_dot(gradient[:, coils], turn) + smoothness.value(turn)
        return linear + part.half_norm(turn.mul_(image))

    rise = for_parts(rise_of)
    falls = rise <= 0
    return (
        CoilMaps(
            torch.where(falls[:, None, None, None], new, maps),
            torch.where(falls, (2 * state.length).clamp_max(1.0), state.length / 4),
        ),
        torch.where(falls, value + rise, value),
    )


def unit_maps(maps: Tensor) -> Tensor:
    """Maps divided by their root-sum-of-squares, where that is not 0."""
    magnitude = root_sum_of_squares(maps)
    return maps * (1 / magnitude.clamp_min(torch.finfo(magnitude.dtype).tiny))


def _tangent(maps: Tensor, step: Tensor) -> Tensor:
    """Take the radial part from a step, in place."""
    return step.addcmul_(maps, real_products(maps, step).to(maps.dtype), value=-1)


def _per_slice(values: Tensor) -> Tensor:
    return values.float()[:, None, None, None]
