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

    def gradient(self, image: Tensor) -> Tensor:
        """Gradient of Q, complex64 shaped as the image."""
        parts = []
        for term, part in ((self.real, image.real), (self.imaginary, image.imag)):
            if term is None:
                parts.append(torch.zeros_like(part))
            else:
                energy, weight = term
                parts.append(energy.value_and_gradient(part.contiguous())[1] * _per_slice(weight))
        return torch.complex(parts[0], parts[1])

    def curvature(self, image: Tensor, direction: Tensor) -> Tensor:
        """<p, M p> with M the majoriser's Hessian at an image: float64 (slice,)."""
        total = torch.zeros(len(image), dtype=torch.float64, device=image.device)
        for term, part, along in (
            (self.real, image.real, direction.real),
            (self.imaginary, image.imag, direction.imag),
        ):
            if term is not None:
                energy, weight = term
                total = total + weight * energy.curvature(part.contiguous(), along.contiguous())
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
    image = point
    bound = _per_slice(lipschitz)
    variation = quick.gradient(image)
    residual = maps.backprojection - maps.normal(image) - pull - variation
    free = (image.real > 0) | (residual.real > 0) if phase == "real" else None
    precondition = maps.data.preconditioner
    residual = _movable(residual, free)
    conditioned = _movable(_conditioned(residual, precondition), free)
    direction, size = conditioned, real_dot(residual, conditioned)
    for _ in range(n_steps):
        hessian = maps.normal(direction)
        if phase == "free":
            hessian = hessian + bound * direction
        else:
            hessian = torch.complex(hessian.real + bound * direction.real, hessian.imag)
        hessian = _movable(hessian, free)
        curvature = real_dot(direction, hessian) + quick.curvature(image, direction)
        length = _per_slice(real_dot(residual, direction) / curvature.clamp_min(1e-30))
        image = image + length * direction
        varied = quick.gradient(image)
        new = residual - length * hessian - _movable(varied - variation, free)
        variation = varied
        conditioned = _movable(_conditioned(new, precondition), free)
        turn = (real_dot(conditioned, new) - real_dot(conditioned, residual)) / size.clamp_min(1e-30)
        residual, size = new, real_dot(new, conditioned)
        direction = conditioned + _per_slice(turn.clamp_min(0)) * direction
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
