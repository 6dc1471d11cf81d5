r"""An image step that costs one gradient of the prior and solves the rest.

From an extrapolated point y it takes (inexactly) the minimiser of

.. math::
    H(x, S) + Q(x) + \langle \lambda \nabla R(y), x - y \rangle + \tfrac{L}{2} \| x - y \|^2

over the image x. A gradient of a network R costs as much as some ten applications of :math:`E^H E`, the data
term's Hessian in the image. Algorithm 1 linearises H as well, which binds its steps to the data term's L = 1
where nothing was measured, too; there the image moves by the prior alone, whose curvature
:math:`\lambda |\nabla^2 R|` is far smaller where there is little noise. Keeping H as it is lets L be that
curvature.

Q holds the energies that cost next to nothing: the total variation of the imaginary part, and the prior
itself where it is total variation. The problem is solved by a few steps of nonlinear conjugate gradients
(Polak and Ribiere, restarted where that is negative). The length of a step minimises the majoriser along the
search direction p that replaces a root :math:`\sqrt{|\nabla x|^2 + \epsilon^2}` in Q by the parabola that
touches it (Geman and Reynolds, IEEE Trans Pattern Anal 14:367, 1992), so no step raises the objective.

Where the image is ``real`` and not negative, pixels that are 0 at y and would become negative stay at 0
(Polyak, USSR Comput Math 9:94, 1969), and what is negative at the end becomes 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.data_consistency import DataTerm
from reconlib.joint.image_model import ImagePhase
from reconlib.operators.inner_product import real_dot


@dataclass(frozen=True, slots=True, eq=False)
class FixedMaps:
    """The data term as a function of the image, with normalised maps that stay for one step."""

    data: DataTerm
    directions: Tensor
    """e: complex64 (slice, coil, y, x)"""
    conjugates: Tensor
    backprojection: Tensor
    """E^H z: complex64 (slice, 1, y, x)"""

    @staticmethod
    def of(data: DataTerm, directions: Tensor, coil_backprojection: Tensor) -> "FixedMaps":
        """Prepare a step; ``coil_backprojection`` is A^H z, complex64 (slice, coil, y, x)."""
        conjugates = directions.conj().resolve_conj()
        return FixedMaps(data, directions, conjugates, combined(conjugates, coil_backprojection))

    def normal(self, image: Tensor) -> Tensor:
        """E^H E of an image (slice, 1, y, x)."""
        return self.data.combined_normal(self.directions, self.conjugates, image)


def combined(conjugates: Tensor, coil_images: Tensor) -> Tensor:
    """Sum of products over the coils, (slice, 1, y, x): coil by coil, which stays in a core's cache."""
    total = torch.zeros_like(coil_images[:, :1])
    for coil in range(coil_images.shape[1]):
        total.addcmul_(conjugates[:, coil : coil + 1], coil_images[:, coil : coil + 1])
    return total


@dataclass(frozen=True, slots=True, eq=False)
class QuickTerms:
    """Q: total variations of parts of the image, with weights float64 (slice,)."""

    real: tuple[TotalVariation, Tensor] | None
    imaginary: tuple[TotalVariation, Tensor] | None

    def value(self, image: Tensor) -> Tensor:
        """Q of an image (slice, 1, y, x): float64 (slice,)."""
        total = torch.zeros(len(image), dtype=torch.float64, device=image.device)
        for term, part in ((self.real, image.real), (self.imaginary, image.imag)):
            if term is not None:
                energy, weight = term
                total = total + weight * energy.value(part.contiguous())
        return total

    def tangent(self, image: Tensor) -> "QuickTangent":
        """Return what is known of Q at an image."""
        gradient = torch.zeros_like(image)
        weights: list[Tensor | None] = []
        for term, part, place in (
            (self.real, image.real, gradient.real),
            (self.imaginary, image.imag, gradient.imag),
        ):
            if term is None:
                weights.append(None)
            else:
                energy, weight = term
                pull, found = energy.tangent(part.contiguous())
                place.copy_(pull.mul_(_per_slice(weight)))
                weights.append(found.mul_(_per_slice(weight)))
        return QuickTangent(gradient, weights[0], weights[1])


@dataclass(frozen=True, slots=True, eq=False)
class QuickTangent:
    """The gradient of Q at an image, and its majoriser there."""

    gradient: Tensor
    """complex64 (slice, 1, y, x)"""
    real: Tensor | None
    """float32 (slice, 1, y, x): of :meth:`~reconlib.energies.total_variation.TotalVariation.curvature`."""
    imaginary: Tensor | None

    def curvature(self, direction: Tensor) -> Tensor | float:
        """<p, M p> with M the majoriser's Hessian: float64 (slice,)."""
        total: Tensor | float = 0.0
        for weights, along in ((self.real, direction.real), (self.imaginary, direction.imag)):
            if weights is not None:
                total = total + TotalVariation.curvature(weights, along.contiguous())
        return total


def split_step(
    maps: FixedMaps,
    quick: QuickTerms,
    point: Tensor,
    pull: Tensor,
    lipschitz: Tensor,
    *,
    phase: ImagePhase,
    n_steps: int,
) -> Tensor:
    """Return the image that minimises, about, the function of the module's text.

    Parameters
    ----------
    point
        y: complex64 (slice, 1, y, x).
    pull
        Gradient of lambda R at y, of the same shape.
    lipschitz
        L: float64 (slice,).
    phase
        Of the image model. L binds the imaginary part only where R sees it, in ``free``. In ``real``, y is
        real and not negative.
    """
    image, bound = point.clone(), _per_slice(lipschitz)
    tangent = quick.tangent(image)
    residual = maps.backprojection - maps.normal(image) - pull - tangent.gradient
    free = (image.real > 0) | (residual.real > 0) if phase == "real" else None
    precondition = maps.data.preconditioner
    residual = _movable(residual, free)
    conditioned = _movable(_conditioned(residual, precondition), free)
    direction, size = conditioned, real_dot(residual, conditioned)
    for left in reversed(range(n_steps)):
        hessian = maps.normal(direction)
        if phase == "free":
            hessian.addcmul_(direction, bound.to(direction.dtype))
        else:
            torch.view_as_real(hessian)[..., 0].addcmul_(direction.real, bound)
        hessian = _movable(hessian, free)
        curvature = real_dot(direction, hessian) + tangent.curvature(direction)
        length = _per_slice(real_dot(residual, direction) / curvature.clamp_min(1e-30)).to(direction.dtype)
        image.addcmul_(direction, length)
        if not left:
            break
        before, tangent = tangent.gradient, quick.tangent(image)
        change = hessian.mul_(length).add_(_movable(tangent.gradient - before, free))
        residual = residual - change
        conditioned = _movable(_conditioned(residual, precondition), free)
        turn = -real_dot(conditioned, change) / size.clamp_min(1e-30)
        size = real_dot(residual, conditioned)
        direction = torch.addcmul(conditioned, direction, _per_slice(turn.clamp_min(0)).to(direction.dtype))
    return image if free is None else torch.complex(image.real.clamp_min(0), torch.zeros_like(image.real))


def _movable(values: Tensor, free: Tensor | None) -> Tensor:
    """Return values with the imaginary part 0, and the real part where pixels are not free; None: all."""
    if free is None:
        return values
    return torch.complex(torch.where(free, values.real, 0.0), torch.zeros_like(values.real))


def _conditioned(residual: Tensor, factors: Tensor | None) -> Tensor:
    """Return the residual, or what the data term's preconditioner makes of it."""
    if factors is None:
        return residual
    conditioned: Tensor = torch.fft.ifft2(torch.fft.fft2(residual) * factors)
    return conditioned


def _per_slice(values: Tensor) -> Tensor:
    return values.float()[:, None, None, None]
