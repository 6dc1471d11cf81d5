r"""The coil block of the joint problem: a proximal gradient step in the maps, from an extrapolated point.

Inertia k / (k + 3) starts anew when a step turns against the last one (O'Donoghue and Candes, Found Comput
Math 15:715, 2015); without that the maps oscillate where mu F is strong. A step is followed by the nearest
maps with :math:`|S(r)| \ge 1`, see :mod:`~reconlib.joint.ipalm`.

The decrease test compares second-order remainders: with e the normalised maps, x the image and
:math:`g_c = A^H (A e_c x - z_c)`, a turn :math:`t_c = (e_c^{new} - e_c) x` changes H by exactly
:math:`\mathrm{Re} \langle g, t \rangle + \tfrac12 \|A t\|^2`.

Maps are worked on a few coils at a time: what is in hand then stays in a core's cache.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.energies.protocol import ProximableEnergy
from reconlib.joint.backtracking import backtrack
from reconlib.joint.data_consistency import COIL_FLOOR, DataTerm
from reconlib.operators.inner_product import half_square, real_dot
from reconlib.operators.sense import real_products, root_sum_of_squares, sum_of_squares


@dataclass(slots=True)
class CoilState:
    """Maps and what their next step depends on."""

    maps: Tensor
    """complex64 (slice, coil, y, x)"""
    previous: Tensor
    lipschitz: Tensor
    """float64 (slice,)"""
    age: Tensor
    """Steps since the inertia started anew."""

    @staticmethod
    def start(maps: Tensor, data: DataTerm) -> "CoilState":
        """Return the state before the first step."""
        n_slices, device = len(maps), maps.device
        return CoilState(
            maps,
            maps,
            torch.full((n_slices,), data.largest_eigenvalue, dtype=torch.float64, device=device),
            torch.zeros(n_slices, dtype=torch.int64, device=device),
        )

    def select(self, keep: Tensor) -> "CoilState":
        """Return the state of some of the slices."""
        return CoilState(self.maps[keep], self.previous[keep], self.lipschitz[keep], self.age[keep])


@dataclass(frozen=True, slots=True, kw_only=True)
class CoilStepSettings:
    """How to step."""

    inertia: bool = True
    smallest_lipschitz: float = 1.0
    """Times the largest eigenvalue of the data term: about the curvature of H where the scaled image is 1.
    Below it inertia makes the maps oscillate."""
    relaxation: float = 1.5
    """L is divided by this after an accepted step."""
    most_doublings: int = 10
    """Of L in one step."""


def coil_step(
    data: DataTerm,
    energy: ProximableEnergy,
    state: CoilState,
    image: Tensor,
    settings: CoilStepSettings,
    slowdown: float = 1.0,
) -> Tensor:
    """Advance the maps by a step 1 / (slowdown L), the image held fixed; return H, float64 (slice,)."""
    parts = data.parts(state.maps.shape[1])
    inertia = _per_slice(state.age / (state.age + 3)) if settings.inertia else 0.0
    points = [
        state.maps[:, coils] + inertia * (state.maps[:, coils] - state.previous[:, coils])
        for coils, _ in parts
    ]
    inverse = _inverse_magnitude(points)
    conjugate = image.conj().resolve_conj()
    value = torch.zeros_like(state.lipschitz)
    radial = torch.zeros_like(inverse)
    directions, pulls, gradients = [], [], []
    for point, (_, part) in zip(points, parts, strict=True):
        direction = point * inverse
        pull, part_value = part.gradient_and_value(direction * image)
        value = value + part_value
        turned = conjugate * pull
        radial += real_products(direction, turned)
        directions.append(direction)
        pulls.append(pull)
        gradients.append(turned)
    for direction, gradient in zip(directions, gradients, strict=True):
        gradient.sub_(direction * radial).mul_(inverse)

    def attempt(lipschitz: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        lipschitz = slowdown * lipschitz
        step = 1 / lipschitz
        new = [
            energy.prox(point - gradient * _per_slice(step), step)
            for point, gradient in zip(points, gradients, strict=True)
        ]
        new_inverse = _inverse_magnitude(new)
        rise = torch.zeros_like(value)
        remainder, bound = torch.zeros_like(value), torch.zeros_like(value)
        for after, point, direction, pull, gradient, (_, part) in zip(
            new, points, directions, pulls, gradients, parts, strict=True
        ):
            turn = (after * new_inverse - direction).mul_(image)
            change = real_dot(pull, turn) + part.half_norm(turn)
            moved = after - point
            rise = rise + change
            remainder = remainder + change - real_dot(gradient, moved)
            bound = bound + half_square(moved)
        accepted = remainder <= lipschitz * bound * 1.01
        return new, value + rise, accepted

    new, reached, state.lipschitz = backtrack(
        attempt,
        state.lipschitz,
        smallest=settings.smallest_lipschitz * data.largest_eigenvalue,
        relaxation=settings.relaxation,
        most_doublings=settings.most_doublings,
    )
    scale = (1 / _root(new)).clamp(1.0, 1e12)
    maps = torch.empty_like(state.maps)
    turned_back = torch.zeros_like(value)
    for after, point, (coils, _) in zip(new, points, parts, strict=True):
        torch.mul(after, scale, out=maps[:, coils])
        turned_back = turned_back + real_dot(point - maps[:, coils], maps[:, coils] - state.maps[:, coils])
    state.age = torch.where(turned_back > 0, 0, state.age + 1)
    state.previous, state.maps = state.maps, maps
    return reached


def at_least_unit(coils: Tensor) -> Tensor:
    """Nearest maps with a root-sum-of-squares of at least 1 in every pixel; directions are kept."""
    return coils * (1 / root_sum_of_squares(coils).clamp(1e-12, 1.0))


def mean_coil_magnitude(coils: Tensor, image: Tensor) -> Tensor:
    """Mean magnitude of the maps, weighted by the image; float64 (slice,)."""
    weight, magnitude = root_sum_of_squares(image), root_sum_of_squares(coils)
    total = weight.sum(dim=(1, 2, 3), dtype=torch.float64).clamp_min(1e-30)
    return (weight * magnitude).sum(dim=(1, 2, 3), dtype=torch.float64) / total


def _squares(parts: Sequence[Tensor]) -> Tensor:
    """Sum of squared magnitudes over all coils: float32 (slice, 1, y, x)."""
    return functools.reduce(torch.add, map(sum_of_squares, parts))


def _root(parts: Sequence[Tensor]) -> Tensor:
    return _squares(parts).sqrt_()


def _inverse_magnitude(parts: Sequence[Tensor]) -> Tensor:
    """1 / n of :mod:`~reconlib.joint.data_consistency`."""
    return (_squares(parts) + COIL_FLOOR**2).rsqrt_()


def _per_slice(values: Tensor) -> Tensor:
    return values.float()[:, None, None, None]
