r"""Inertial proximal alternating linearised minimisation with backtracking, over a batch of slices.

Minimises over image x and coil maps S

.. math:: H(x, S) + \lambda R(x) + \mu F(S), \qquad |S(r)| \ge 1,

by alternating a proximal gradient step in x and one in S, each from an extrapolated point
:math:`y = x^k + \tfrac{k}{k+3} (x^k - x^{k-1})`, with a step 1/L that a sufficient-decrease test accepts
(Algorithms 1 and 2 of Zach, Knoll and Pock; Pock and Sabach, SIAM J Imaging Sci 9:1756, 2016).

Three things differ from the algorithm as printed:

* The decrease test compares second-order remainders, computed from differences, instead of two large,
  nearly equal objective values, which float32 cannot tell apart. In the image the data part of the
  remainder is exactly :math:`\tfrac12 \|A d\|^2`.
* H does not depend on the scale of S, not even pixel by pixel, so mu F(S) alone would draw S to zero: the
  joint problem as printed has no minimiser, and where S vanishes the curvature of H in S, about
  :math:`(|x|/|S|)^2`, grows without bound and the coil step with it shrinks to nothing. Here S is kept at
  :math:`|S(r)| \ge 1`: a step is followed by the nearest point of that set, which scales the maps of a
  pixel up and leaves H as it is. Every direction of S is still reachable, F is coercive on what is left,
  and L_S stays below about the largest :math:`|x|^2`.
* The inertia of the image block is limited, since the gradient of a prior that is evaluated with noise on the
  image is noisy. That of the coil block starts anew when the step turns against the last one (O'Donoghue and
  Candes, Found Comput Math 15:715, 2015); without that the maps oscillate where mu F is strong. In long runs
  the coil step falls (``coil_iterations``).

Every slice has its own steps and stops on its own; a slice's result does not depend on its neighbours in
the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.energies.protocol import ProximableEnergy
from reconlib.energies.view import View, Views
from reconlib.joint.backtracking import backtrack
from reconlib.joint.coil_step import CoilState, CoilStepSettings, coil_step, mean_coil_magnitude
from reconlib.joint.data_consistency import DataTerm, image_gradient, normalise_coils
from reconlib.joint.image_model import ImageModel
from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointProgress, JointResult, Recorder
from reconlib.operators.inner_product import half_square, real_dot

COIL_HALF_LIFE = 10
"""Iterations in which a falling coil step halves."""
MOST_COIL_HALVINGS = 20.0
"""So that the step stays a number; the maps rest by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IpalmSettings:
    """How to iterate."""

    iterations: int = 100
    tolerance: float = 0.0
    """Stop a slice when the relative change of its image stays below this for three iterations; 0: never."""
    estimate_coils: bool = True
    """False keeps the initial maps."""
    inertia: bool = True
    largest_image_inertia: float = 0.9
    """Limit of k / (k + 3) in the image block: the prior's gradient is noisy, and near 1 inertia adds its
    noise up until, after some 200 iterations, the image drifts from its best."""
    max_backtracks: int = 10
    """Most doublings of L in one step."""
    relaxation: float = 1.5
    """L is divided by this after an accepted step."""
    smallest_image_lipschitz: float = 1.0
    """Times the largest eigenvalue of the data term, which on the grid is 1. Below it inertia amplifies."""
    smallest_coil_lipschitz: float = 1.0
    """See :class:`~reconlib.joint.coil_step.CoilStepSettings`."""
    coil_iterations: int = 100
    """From here on the coil step halves every 10 iterations, so that the maps settle. Maps that go on at full
    step smooth themselves away from the truth: on four of five simulated scans of heads the image lost
    0.4 to 1.7 dB between iterations 100 and 300."""
    gradient_noise_std: float = 0.0
    """The prior is evaluated at the image plus noise of this size, drawn anew each iteration."""
    symmetric_views: bool = False
    """The prior sees the image shifted and turned, by a draw for each iteration."""


@dataclass(slots=True)
class _State:
    """The slices that still iterate."""

    rows: Tensor
    image: Tensor
    previous_image: Tensor
    coils: CoilState
    image_lipschitz: Tensor
    calm: Tensor
    """Iterations in a row with a change below the tolerance."""

    def select(self, keep: Tensor) -> None:
        self.coils = self.coils.select(keep)
        for name in ("rows", "image", "previous_image", "image_lipschitz", "calm"):
            setattr(self, name, getattr(self, name)[keep])


def ipalm(
    data: DataTerm,
    image_model: ImageModel,
    coil_energy: ProximableEnergy,
    *,
    initial_image: Tensor,
    initial_coils: Tensor,
    settings: IpalmSettings,
    generator: torch.Generator,
    out_of_time: Callable[[], bool] = lambda: False,
    on_iteration: Callable[[JointProgress], None] | None = None,
) -> JointResult:
    """Minimise the joint energy from a start; shapes as in :class:`JointResult`.

    ``generator`` draws how the prior sees the image, which is the same for every slice of the batch.
    ``out_of_time`` is asked before each iteration. Nothing is raised for slow or failed convergence: see
    ``outcomes``.
    """
    n_slices = initial_image.shape[0]
    device = initial_image.device
    ones = torch.ones(n_slices, dtype=torch.float64, device=device)
    state = _State(
        rows=torch.arange(n_slices, device=device),
        image=initial_image,
        previous_image=initial_image,
        coils=CoilState.start(initial_coils, data),
        image_lipschitz=_first_lipschitz(data, image_model) * ones,
        calm=torch.zeros(n_slices, dtype=torch.int64, device=device),
    )
    final_image, final_coils = initial_image.clone(), initial_coils.clone()
    outcomes = [Outcome.OUT_OF_ITERATIONS] * n_slices
    n_iterations = [0] * n_slices
    recorder = Recorder(settings.iterations, n_slices)
    iteration = 0
    views = Views(initial_image, generator, settings.gradient_noise_std, settings.symmetric_views)
    while iteration < settings.iterations and len(state.rows):
        if out_of_time():
            for row in state.rows.tolist():
                outcomes[row] = Outcome.OUT_OF_TIME
            break
        inertia = (
            min(iteration / (iteration + 3), settings.largest_image_inertia) if settings.inertia else 0.0
        )
        view = views.draw()
        change, prior_value = _image_step(data, image_model, state, inertia, view, settings)
        n_halvings = (iteration - settings.coil_iterations) / COIL_HALF_LIFE
        slowdown = 2.0 ** min(max(0.0, n_halvings), MOST_COIL_HALVINGS)
        data_value = _coil_block(data, coil_energy, state, slowdown, settings)
        iteration += 1
        energy = data_value + prior_value + coil_energy.value(state.coils.maps)
        recorder.put(
            iteration - 1,
            state.rows,
            energy=energy,
            image_lipschitz=state.image_lipschitz,
            coil_lipschitz=state.coils.lipschitz,
            coil_magnitude=mean_coil_magnitude(state.coils.maps, state.image),
            relative_change=change,
        )
        finite = torch.isfinite(energy) & torch.isfinite(change)
        state.calm = torch.where(change < settings.tolerance, state.calm + 1, 0)
        done = (state.calm >= 3) | ~finite
        for row, is_finite, is_done in zip(state.rows.tolist(), finite.tolist(), done.tolist(), strict=True):
            n_iterations[row] = iteration
            if is_done:
                outcomes[row] = Outcome.CONVERGED if is_finite else Outcome.NOT_FINITE
        final_image[state.rows], final_coils[state.rows] = state.image, state.coils.maps
        if bool(done.any()):
            keep = ~done
            state.select(keep)
            data = data.select(keep)
            image_model = image_model.select(keep)
        if on_iteration is not None:
            on_iteration(
                JointProgress(iteration=iteration, iterations=settings.iterations, n_active=len(state.rows))
            )
    return JointResult(
        image=final_image,
        coils=final_coils,
        outcomes=tuple(outcomes),
        n_iterations=tuple(n_iterations),
        trace=recorder.trace(iteration),
    )


def _image_step(
    data: DataTerm,
    model: ImageModel,
    state: _State,
    inertia: float,
    view: View,
    settings: IpalmSettings,
) -> tuple[Tensor, Tensor]:
    """Advance the image; return the relative change and the weighted prior energy, each (slice,)."""
    directions, _ = normalise_coils(state.coils.maps)
    point = state.image + inertia * (state.image - state.previous_image)
    gradient = image_gradient(directions, data.gradient(directions * point))
    prior_at_point, prior_gradient = model.value_and_gradient(point, view)
    if model.phase == "real":
        gradient = torch.complex(gradient.real, torch.zeros_like(gradient.real))
    gradient = gradient + prior_gradient
    direction = _direction(data, model, gradient)

    def attempt(lipschitz: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        new = model.project(point - direction / _as_step(lipschitz))
        step = new - point
        prior_at_new = model.value(new, view)
        linear = real_dot(prior_gradient, step)
        remainder = data.half_norm(directions * step) + (prior_at_new - prior_at_point - linear)
        # float32 energies are exact to about 1e-7 of their value: do not reject steps on their rounding
        slack = 1e-6 * prior_at_point.abs()
        bound = lipschitz * half_square(step) if direction is gradient else -real_dot(step, gradient) / 2
        accepted = remainder <= 1.01 * bound + slack
        return [new], prior_at_new, accepted

    (new,), prior_value, state.image_lipschitz = backtrack(
        attempt,
        state.image_lipschitz,
        smallest=settings.smallest_image_lipschitz * _first_lipschitz(data, model),
        relaxation=settings.relaxation,
        most_doublings=settings.max_backtracks,
    )
    change = half_square(new - state.image) / half_square(new).clamp_min(1e-30)
    state.previous_image, state.image = state.image, new
    return change.sqrt(), prior_value


def _direction(data: DataTerm, model: ImageModel, gradient: Tensor) -> Tensor:
    """Return the gradient, or P times it, P about the inverse of A^H A.

    With P a step is the proximal map in the norm of P^-1, which for an image that is not projected is
    -P gradient / L, and the decrease test compares with <step, P^-1 step> L / 2.
    """
    factors = data.preconditioner
    if factors is None or model.phase == "real":
        return gradient
    direction: Tensor = torch.fft.ifft2(torch.fft.fft2(gradient) * factors)
    return direction


def _first_lipschitz(data: DataTerm, model: ImageModel) -> float:
    """Return what L starts from in the image block: P leaves A^H A with eigenvalues of about 1."""
    return data.largest_eigenvalue if data.preconditioner is None or model.phase == "real" else 1.0


def _coil_block(
    data: DataTerm,
    coil_energy: ProximableEnergy,
    state: _State,
    slowdown: float,
    settings: IpalmSettings,
) -> Tensor:
    """Advance the maps, where they are estimated; return the data term (slice,)."""
    if not settings.estimate_coils:
        directions, _ = normalise_coils(state.coils.maps)
        return data.gradient_and_value(directions * state.image)[1]
    chosen = CoilStepSettings(
        inertia=settings.inertia,
        smallest_lipschitz=settings.smallest_coil_lipschitz,
        relaxation=settings.relaxation,
        most_doublings=settings.max_backtracks,
    )
    return coil_step(data, coil_energy, state.coils, state.image, chosen, slowdown)


def _as_step(per_slice: Tensor) -> Tensor:
    return per_slice.float()[:, None, None, None]
