r"""The joint problem of :mod:`~reconlib.joint.ipalm` with a quarter of its network gradients.

Minimises the same function over the same set, again by turns:

* the image by :func:`~reconlib.joint.split_image_step.split_step`, one gradient of the prior each;
* the maps by a Gauss-Newton step (:mod:`~reconlib.joint.coil_newton`);

each from a point extrapolated as in Algorithm 1. Without that of the maps, phase that maps and image share
would wander from one to the other slowly: H does not feel it, but each block alone moves against H.

**L of the prior.** With noise of standard deviation t on the image (``gradient_noise_std``) a score-matching
prior is, at temperature T, minus T times the log of a density that was blurred with that noise, and so
:math:`\nabla^2 R \le T / t^2` (Tweedie's formula: the Hessian is that bound less a covariance). What is met
along steps is about half of it, so L starts at :data:`SHARE_OF_BOUND` of :math:`\lambda T / t^2`; for priors
without such noise it starts at 1, that of the data term. As in Algorithm 2 it is tested, in the first steps
and now and then; where it does not hold it is doubled and the step done again.

**The mean of two gradients.** The noise comes in pairs, n and then -n (:mod:`~reconlib.energies.view`).
A step goes by the mean of its own gradient and the one before (:data:`SHARE_OF_LAST_GRADIENT`), which is
without most of what is linear in n, for no further evaluation. It is also half a step late, and so of two
gradients only: with three the iterates swing.

**Maps that rest.** The joint problem's minimum is not what one wants: where nothing is, maps that follow the
noise under a faint haze cost less than an image of that noise. It takes long to get there; until then maps
get better. On two of twelve simulated scans 64 iterations with total variation lost 8 dB to it, with maps
that rest from the 20th on 0.4 dB at most.

**The mean of the last iterates.** The prior is evaluated with noise and in views that are drawn anew, so the
iterates go on moving about the minimiser, the more the larger the steps are. The image is the mean of the
last of them, which has less of that noise than any one (Polyak and Juditsky, SIAM J Control Optim 30:838,
1992). Nothing else changes: steps go on from the last iterate.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.total_variation import TotalVariation
from reconlib.energies.view import View, Views
from reconlib.joint.batch_record import BatchRecord
from reconlib.joint.coil_newton import CoilMaps, newton_coil_step, unit_maps
from reconlib.joint.coil_step import mean_coil_magnitude
from reconlib.joint.data_consistency import DataTerm, normalise_coils
from reconlib.joint.image_model import ImageModel
from reconlib.joint.result import JointProgress, JointResult
from reconlib.joint.split_image_step import FixedMaps, QuickTerms, split_step
from reconlib.operators.inner_product import half_square, real_dot

MOST_DOUBLINGS = 10
TESTED_AT_FIRST, TESTED_EVERY = 3, 8
"""Iterations in which L of the prior is tested."""
SHARE_OF_BOUND = 0.5
"""On three simulated scans of heads the curvature met along steps was at most 0.45 of the bound."""
MOST_AVERAGED = 18
"""Iterates in the mean: with the last 30 of 40, a phase in ``tests/gadget/test_phase_differences.py`` was
0.07 rad short, with these less than 0.05."""
SHARE_OF_LAST_GRADIENT = 0.4
"""On 16 simulated scans of validation images with Cartesian 4-fold sampling, 0.3, 0.4 and 0.5 were 0.21, 0.23
and 0.22 dB above steps by their own gradients with noise that was not in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSettings:
    """How to iterate."""

    iterations: int = 24
    inner_steps: int = 5
    """Conjugate gradient steps per image step that asked a network."""
    quick_inner_steps: int = 24
    """The same where the prior is total variation, which costs next to nothing; half as many where the data
    term has a preconditioner, as they do there."""
    coil_steps: int = 3
    """Conjugate gradient steps per coil step."""
    coil_iterations: int = 20
    """From here on the maps rest; see above."""
    largest_inertia: float = 0.8
    """Of image and maps alike."""
    averaged: float = 0.75
    """Share of the iterations, the last ones, whose mean is the image; at most :data:`MOST_AVERAGED`."""
    tolerance: float = 0.0
    """Stop a slice when the relative change of its image stays below this for three iterations; 0: never."""
    estimate_coils: bool = True
    """False keeps the initial maps."""
    gradient_noise_std: float = 0.0
    """The prior is evaluated at the image plus noise of this size, drawn anew each iteration."""
    symmetric_views: bool = False
    """The prior sees the image shifted and turned, by a draw for each iteration."""


def split_solve(
    data: DataTerm,
    image_model: ImageModel,
    coil_energy: CoilSmoothness,
    *,
    initial_image: Tensor,
    initial_coils: Tensor,
    settings: SplitSettings,
    generator: torch.Generator,
    out_of_time: Callable[[], bool] = lambda: False,
    on_iteration: Callable[[JointProgress], None] | None = None,
) -> JointResult:
    """Do what :func:`~reconlib.joint.ipalm.ipalm` does.

    The trace's energy has the prior's value at the extrapolated point, the only one that is known; its
    ``coil_lipschitz`` is 1 / t of the coil step, 1 where steps are whole.
    """
    n_slices, device = len(initial_image), initial_image.device
    record = BatchRecord.start(n_slices, device, settings.tolerance)
    prior = _Prior.of(image_model, settings, preconditioned=data.preconditioner is not None)
    nothing = torch.zeros_like(initial_coils)
    coil_backprojection = -data.gradient(nothing) if n_slices else nothing  # FFTs take no empty batches
    image = previous = initial_image
    coils = CoilMaps.start(initial_coils)
    if not settings.estimate_coils:
        coils = replace(coils, maps=normalise_coils(initial_coils)[0])
    last_maps = coils.maps
    mean, n_averaged = torch.zeros_like(image), 0
    most_averaged = min(round(settings.averaged * settings.iterations), MOST_AVERAGED)
    first_averaged = settings.iterations - max(1, most_averaged)
    result = initial_image, initial_coils
    is_late = False
    views = Views(initial_image, generator, settings.gradient_noise_std, settings.symmetric_views)
    for iteration in range(settings.iterations if n_slices else 0):
        is_late = out_of_time()
        if is_late:
            break
        view = views.draw()
        inertia = min(iteration / (iteration + 3), settings.largest_inertia)
        maps_move = settings.estimate_coils and iteration < settings.coil_iterations
        if maps_move:
            ahead = unit_maps(torch.lerp(last_maps, coils.maps, 1 + inertia))
            last_maps, coils = coils.maps, replace(coils, maps=ahead)
        fixed = FixedMaps.of(data, coils.maps, coil_backprojection)
        point = image_model.project(torch.lerp(previous, image, 1 + inertia))
        new, value = prior.step(fixed, point, view, iteration)
        change = (half_square(new - image) / half_square(new).clamp_min(1e-30)).sqrt()
        previous, image = image, new
        if maps_move:
            coils, rest = newton_coil_step(data, coil_energy, coils, image, n_steps=settings.coil_steps)
        else:
            rest = data.gradient_and_value(coils.maps * image)[1] + coil_energy.value(coils.maps)
        if iteration >= first_averaged:
            n_averaged += 1
            mean += (image - mean) / n_averaged
        now = mean if n_averaged else image, coils.maps if settings.estimate_coils else initial_coils
        if settings.tolerance > 0:  # slices that have ended keep what they had
            ended = record.has_ended[:, None, None, None]
            now = torch.where(ended, result[0], now[0]), torch.where(ended, result[1], now[1])
        result = now
        record.put(
            energy=rest + value,
            image_lipschitz=prior.lipschitz,
            coil_lipschitz=1 / coils.length,
            coil_magnitude=mean_coil_magnitude(coils.maps, image),
            relative_change=change,
        )
        if on_iteration is not None:
            on_iteration(
                JointProgress(
                    iteration=iteration + 1, iterations=settings.iterations, n_active=record.n_active
                )
            )
        if record.is_over():
            break
    outcomes, n_iterations = record.ends(out_of_time=is_late)
    return JointResult(
        image=result[0].clone(),
        coils=result[1],
        outcomes=outcomes,
        n_iterations=n_iterations,
        trace=record.trace(),
    )


@dataclass(slots=True)
class _Prior:
    """lambda R, linearised in each step or among the quick terms, and the bound of its curvature."""

    model: ImageModel
    linearised: ImageModel | None
    quick: QuickTerms
    lipschitz: Tensor
    n_steps: int
    last_pull: Tensor | None = None

    @staticmethod
    def of(model: ImageModel, settings: SplitSettings, *, preconditioned: bool) -> "_Prior":
        if not isinstance(model.imaginary, TotalVariation):
            raise ValueError(
                f"the energy of the imaginary part is {type(model.imaginary).__name__}; this solver takes "
                "TotalVariation. Use ipalm."
            )
        imaginary = (model.imaginary, model.imaginary_weight) if model.phase == "soft" else None
        real = None
        linearised: ImageModel | None = replace(model, imaginary_weight=torch.zeros_like(model.weight))
        if isinstance(model.energy, TotalVariation) and model.signed:
            linearised, real = None, (model.energy, model.weight)
            if model.phase == "free":
                imaginary = real
        t = settings.gradient_noise_std
        bound = model.weight * model.energy.temperature / t**2 if t > 0 else None
        first = torch.ones_like(model.weight) if bound is None else SHARE_OF_BOUND * bound
        quick_steps = settings.quick_inner_steps // (2 if preconditioned else 1)
        n_steps = quick_steps if linearised is None else settings.inner_steps
        return _Prior(model, linearised, QuickTerms(real, imaginary), first, n_steps)

    def step(self, maps: FixedMaps, point: Tensor, view: View, iteration: int) -> tuple[Tensor, Tensor]:
        """Make one image step from an extrapolated point; return the image, and lambda R there or near."""
        if self.linearised is None:
            new = self._solved(maps, point, torch.zeros_like(point))
            return new, self.quick.value(new)
        value, pull = self.linearised.value_and_gradient(point, view)
        mean = pull if self.last_pull is None else torch.lerp(pull, self.last_pull, SHARE_OF_LAST_GRADIENT)
        self.last_pull = pull
        new = self._solved(maps, point, mean)
        if iteration >= TESTED_AT_FIRST and iteration % TESTED_EVERY:
            return new, value + self.quick.value(new)
        for _ in range(MOST_DOUBLINGS):
            step = new - point
            reached = self.linearised.value(new, view)
            remainder = reached - value - real_dot(pull, step)
            holds = remainder <= 1.01 * self.lipschitz * half_square(step) + 1e-6 * value.abs()
            if bool(holds.all()):
                break
            self.lipschitz = torch.where(holds, self.lipschitz, 2 * self.lipschitz)
            again = self._solved(maps, point, mean)
            new = torch.where(holds[:, None, None, None], new, again)
        return new, reached + self.quick.value(new)

    def _solved(self, maps: FixedMaps, point: Tensor, pull: Tensor) -> Tensor:
        return split_step(
            maps,
            self.quick,
            point,
            pull,
            self.lipschitz if self.linearised is not None else torch.zeros_like(self.lipschitz),
            phase=self.model.phase,
            n_steps=self.n_steps,
        )
