r"""The Fourier transform at any points of k-space, for radial, spiral and other trajectories.

.. math::
    (A w)_j = \frac{1}{\sqrt{n_y n_x}} \sum_r w(r)\,
              \exp\big(-2 \pi i\, \kappa_j \cdot (r - c)\big), \qquad c = (n_y // 2,\ n_x // 2)

with r the pixel's index and :math:`\kappa_j` a point in cycles per pixel, so the band of the grid is -0.5 to
0.5. With the scaling, the points of a complete Cartesian grid, :math:`\kappa = (k - n // 2) / n`, give the
centred unitary FFT of :mod:`reconlib.operators.fourier`.

The transform is approximate (relative error ``eps``), but its adjoint is the exact adjoint of what it does.
Both are differentiable any number of times: the derivative of a linear map is its adjoint.

Trajectories are two-dimensional. A stack of stars or spirals is transformed along the stack first; its
slices are then a batch here, with one trajectory for all or one for each.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from reconlib.operators.gridding import GriddingPlan
from reconlib.operators.inner_product import half_square
from reconlib.operators.library_plans import CufinufftPlan, FinufftPlan, TransformPlan, is_installed

Method = Literal["finufft", "cufinufft", "gridding"]
DEFAULT_EPS = 1e-4
"""Far below the noise of a scan; 1e-6 costs two to four times as much."""


@dataclass(frozen=True, slots=True, eq=False)
class NonuniformFourier:
    r"""The transform A of the module's text, for every slice of a batch.

    Coil images (slice, ..., y, x) to samples (slice, ..., point), complex64 or complex128, as planned. The
    norm depends on the points and is above 1 where they are denser than the Cartesian grid
    (:func:`~reconlib.operators.power_iteration.largest_eigenvalue`). Make it with :meth:`plan`.
    """

    points: Tensor
    """float64 (trajectory, point, 2): the distinct trajectories, (ky, kx) in cycles per pixel."""
    shape: tuple[int, int]
    """(y, x) of the images."""
    plans: tuple[TransformPlan, ...]
    """One for each trajectory."""
    which: tuple[int, ...] | None
    """The trajectory of each slice; None where all slices of any batch have the only one."""
    dtype: torch.dtype

    @staticmethod
    def plan(
        trajectory: Tensor,
        shape: tuple[int, int],
        *,
        eps: float = DEFAULT_EPS,
        dtype: torch.dtype = torch.complex64,
        method: Method | None = None,
    ) -> "NonuniformFourier":
        """Prepare the transform, once for all iterations, on the trajectory's device.

        Parameters
        ----------
        trajectory
            float32 or float64 (slice, point, 2): (ky, kx) in cycles per pixel. With a slice axis of 1 all
            slices of any batch share it. Slices with equal trajectories share a plan.
        method
            The default is finufft on a CPU and cufinufft on a CUDA device, where they are installed, else
            :class:`~reconlib.operators.gridding.GriddingPlan`.

        Raises
        ------
        ValueError
            The trajectory has another shape or type, or infinities or NaNs.
        """
        _check(trajectory, shape, eps, dtype)
        distinct, which = _distinct(trajectory.detach().double())
        make = _PLANS[method or default_method(trajectory.device)]
        plans = tuple(make(points, shape, eps=eps, dtype=dtype) for points in distinct)
        return NonuniformFourier(distinct, shape, plans, which if len(trajectory) > 1 else None, dtype)

    def forward(self, coil_images: Tensor, /) -> Tensor:
        """Coil images to samples."""
        return _forward(coil_images, self)

    def adjoint(self, samples: Tensor, /) -> Tensor:
        """Samples to coil images."""
        return _adjoint(samples, self)

    def normal(self, coil_images: Tensor, /) -> Tensor:
        """A^H A of coil images."""
        return self.adjoint(self.forward(coil_images))

    def half_norm(self, coil_images: Tensor, /) -> Tensor:
        """|A w|^2 / 2 of each slice, float64 (slice,)."""
        return half_square(self.forward(coil_images))

    def exactly(self, eps: float) -> "NonuniformFourier":
        """Return the same transform in double precision with another relative error."""
        trajectory = self.points if self.which is None else self.points[list(self.which)]
        return NonuniformFourier.plan(trajectory, self.shape, eps=eps, dtype=torch.complex128)

    def select(self, rows: Tensor) -> "NonuniformFourier":
        """Return the operator of some of the slices, given by number or as a mask."""
        if self.which is None:
            return self
        kept = torch.tensor(self.which)[rows.cpu()].tolist()
        return NonuniformFourier(self.points, self.shape, self.plans, tuple(kept), self.dtype)

    def plan_of(self, row: int) -> TransformPlan:
        """Return the plan of one slice."""
        return self.plans[0 if self.which is None else self.which[row]]


class _Forward(torch.autograd.Function):
    """A as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, coil_images: Tensor, operator: NonuniformFourier) -> Tensor:
        ctx.operator = operator
        _check_batch(coil_images, operator, operator.shape, "coil images", "(slice, ..., y, x)")
        n_points = operator.points.shape[1]
        return _slice_by_slice(coil_images, operator, 2, (n_points,), lambda plan: plan.forward)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _adjoint(gradients[0], ctx.operator), None


class _Adjoint(torch.autograd.Function):
    """The adjoint of A as a differentiable function."""

    @staticmethod
    def forward(ctx: Any, samples: Tensor, operator: NonuniformFourier) -> Tensor:
        ctx.operator = operator
        n_points = operator.points.shape[1]
        _check_batch(samples, operator, (n_points,), "samples", "(slice, ..., point)")
        return _slice_by_slice(samples, operator, 1, operator.shape, lambda plan: plan.adjoint)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _forward(gradients[0], ctx.operator), None


_forward: Callable[[Tensor, NonuniformFourier], Tensor] = _Forward.apply
_adjoint: Callable[[Tensor, NonuniformFourier], Tensor] = _Adjoint.apply


def default_method(device: torch.device) -> Method:
    """Return the fastest method that is installed for a device."""
    if device.type == "cuda":
        return "cufinufft" if is_installed("cufinufft") else "gridding"
    return "finufft" if device.type == "cpu" and is_installed("finufft") else "gridding"


_PLANS: dict[Method, Callable[..., TransformPlan]] = {
    "finufft": FinufftPlan,
    "cufinufft": CufinufftPlan,
    "gridding": GriddingPlan,
}


def _slice_by_slice(
    values: Tensor,
    operator: NonuniformFourier,
    n_axes: int,
    result_shape: tuple[int, ...],
    direction: Callable[[TransformPlan], Callable[[Tensor], Tensor]],
) -> Tensor:
    """Transform the last ``n_axes`` axes of each slice with its plan, all else in one go, and scale."""
    batch = values.shape[:-n_axes]
    result = values.new_empty(*batch, *result_shape)
    scale = 1 / math.sqrt(math.prod(operator.shape))
    for row, (given, found) in enumerate(zip(values, result, strict=True)):
        stack = given.reshape(-1, *given.shape[given.ndim - n_axes :])
        transformed = direction(operator.plan_of(row))(stack)
        torch.mul(transformed.reshape(found.shape), scale, out=found)
    return result


def _distinct(trajectory: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return trajectories without repetitions, in order, and the number of each slice's own."""
    kept: list[Tensor] = []
    which = []
    for points in trajectory:
        same = next((number for number, other in enumerate(kept) if torch.equal(points, other)), len(kept))
        if same == len(kept):
            kept.append(points)
        which.append(same)
    return torch.stack(kept), tuple(which)


def _check(trajectory: Tensor, shape: tuple[int, int], eps: float, dtype: torch.dtype) -> None:
    if trajectory.ndim != 3 or trajectory.shape[-1] != 2 or 0 in trajectory.shape:
        raise ValueError(
            f"the trajectory has shape {tuple(trajectory.shape)}; it needs (slice, point, 2), the last axis "
            "(ky, kx), and a slice axis of 1 where all slices share it."
        )
    if not trajectory.is_floating_point():
        raise ValueError(
            f"the trajectory is {trajectory.dtype}; give float32 or float64, in cycles per pixel."
        )
    n_bad = int((~torch.isfinite(trajectory)).any(dim=-1).sum())
    if n_bad:
        raise ValueError(f"{n_bad} points of the trajectory are infinite or NaN; give finite points.")
    if min(shape) < 2:
        raise ValueError(f"the image's shape is {shape}; it needs at least 2 pixels along y and x.")
    if dtype not in (torch.complex64, torch.complex128):
        raise ValueError(f"dtype is {dtype}; it must be torch.complex64 or torch.complex128.")
    if not 0 < eps < 1:
        raise ValueError(f"eps is {eps}; the transform's relative error must be between 0 and 1.")


def _check_batch(
    values: Tensor, operator: NonuniformFourier, expected: tuple[int, ...], what: str, axes: str
) -> None:
    n_slices = None if operator.which is None else len(operator.which)
    if (
        values.ndim <= len(expected)
        or tuple(values.shape[-len(expected) :]) != expected
        or n_slices not in (None, values.shape[0])
    ):
        slices = "any number of slices" if n_slices is None else f"{n_slices} slices"
        raise ValueError(
            f"the {what} have shape {tuple(values.shape)}; the transform needs {axes} with {slices} and "
            f"{expected} at the end."
        )
    if values.dtype != operator.dtype:
        raise ValueError(f"the {what} are {values.dtype}; the transform was planned for {operator.dtype}.")
