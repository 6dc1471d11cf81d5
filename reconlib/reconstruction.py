"""From k-space to image and coil maps: the one function that the stream side calls."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.joint.axis_order import (
    exchanged,
    exchanged_axes,
    is_better_exchanged,
    seeing_exchanged,
)
from reconlib.joint.coil_step import mean_coil_magnitude
from reconlib.joint.echo_shift import echo_centred
from reconlib.joint.first_estimate import first_estimate, with_smooth_maps
from reconlib.joint.given_start import check_given
from reconlib.joint.image_model import ImageModel, ImagePhase
from reconlib.joint.map_start import has_own_calibration
from reconlib.joint.measured import Measured, solve_trusting, weighted_adjoint
from reconlib.joint.outcome import Outcome
from reconlib.joint.prior_weight import WeightRule, prior_weight
from reconlib.joint.result import JointProgress, JointResult, JointTrace
from reconlib.joint.solving import ITERATIONS, JointProblem, Solver
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.fourier import ifft2c
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.operators.sense import root_sum_of_squares
from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior

Progress = JointProgress
DEFAULT_COIL_SMOOTHNESS = 0.3
"""mu that suits both shipped priors, from simulated scans of validation images."""
MU_HOLDS_FROM = 160
"""Pixels along an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconstructionSettings:
    """What a user may choose; None leaves the choice to the prior's card."""

    solver: Solver = "fast"
    """``fast``: :mod:`~reconlib.joint.split_solver`. ``paper``: Algorithm 1, :mod:`~reconlib.joint.ipalm`."""
    image_phase: ImagePhase | None = None
    iterations: int | None = None
    """None: 24 of ``fast``, 100 of ``paper``, which end about equally far."""
    coil_smoothness: float | None = None
    """mu, in units of the scaled data term, for matrices of 160 x 160 pixels and more; smaller ones have
    less, see :func:`coil_smoothness`. Where neither this nor the card says it, 0.3."""
    imaginary_weight: float = 0.2
    """lambda_im is this times the noise level (``soft`` only)."""
    tolerance: float = 0.0
    """Relative change of the image below which a slice stops; 0: never."""
    prior_weight_rule: WeightRule | None = None
    prior_weight: float | None = None
    """lambda itself, for the rule ``fixed``."""
    prior_weight_factor: float = 1.0
    """Multiplies the weight that the rule gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """Images and maps of a batch, how each slice ended, and the numbers that were used."""

    image: Tensor
    """complex64 (slice, 1, y, x), in the units of the samples; the phase is relative to that of the maps."""
    coils: Tensor
    """complex64 (slice, coil, y, x); their root-sum-of-squares is 1 (0 in an all-zero slice)."""
    outcomes: tuple[Outcome, ...]
    n_iterations: tuple[int, ...]
    scale: tuple[float, ...]
    """The samples were multiplied by this."""
    noise_level: tuple[float, ...]
    """sigma: standard deviation of the noise per real component after scaling."""
    prior_weight: tuple[float, ...]
    """lambda."""
    mean_coil_magnitude: tuple[float, ...]
    """Mean magnitude of the maps in the object before they are normalised: drift shows here."""
    prior_weight_rule: WeightRule
    image_phase: ImagePhase
    solver: Solver
    trace: JointTrace
    """Per iteration; its columns are the slices that are not all zero, in order."""
    trust: Tensor | None = None
    """float32 (slice, point), see :mod:`~reconlib.joint.sample_trust`; None: 1 for all samples."""


def coil_smoothness(settings: ReconstructionSettings, card: PriorCard, shape: Sequence[int]) -> float:
    """Return mu for images of a shape (y, x): that of the settings, else the card's, else the default.

    Maps of the same coils are steeper from pixel to pixel on a coarser grid, so below :data:`MU_HOLDS_FROM`
    pixels along an axis, geometric mean of both, mu falls with that number. On simulated heads the
    best of 0.3, 0.1, 0.03 ... was 0.1 for nearly all of 48 and 80 pixels, and for 144 0.1 and 0.3 were alike.
    """
    of_card = card.prior_weight.coil_smoothness
    told = settings.coil_smoothness if settings.coil_smoothness is not None else of_card
    mu = DEFAULT_COIL_SMOOTHNESS if told is None else told
    return mu * min(1.0, math.sqrt(shape[-2] * shape[-1]) / MU_HOLDS_FROM)


def iterations_of(settings: ReconstructionSettings) -> int:
    """Return the number of iterations: that of the settings, or the solver's own."""
    return ITERATIONS[settings.solver] if settings.iterations is None else settings.iterations


def zero_filled(kspace: KSpace | NonuniformKSpace) -> Tensor:
    """Root-sum-of-squares of the zero-filled coil images: float32 (slice, 1, y, x).

    Of samples at any points: of the adjoint of the weighted samples.
    """
    if isinstance(kspace, NonuniformKSpace):
        fourier = NonuniformFourier.plan(kspace.trajectory, kspace.shape)
        return root_sum_of_squares(weighted_adjoint(fourier, kspace))
    return root_sum_of_squares(ifft2c(kspace.samples * kspace.mask))


def reconstruct(
    kspace: KSpace | NonuniformKSpace,
    *,
    prior: Prior,
    settings: ReconstructionSettings = ReconstructionSettings(),
    coils: Tensor | None = None,
    initial_coils: Tensor | None = None,
    initial_image: Tensor | None = None,
    peak: float | None = None,
    seed: int = 0,
    out_of_time: Callable[[], bool] = lambda: False,
    on_iteration: Callable[[Progress], None] | None = None,
) -> Reconstruction:
    """Estimate image and coil maps jointly, or the image alone where ``coils`` gives the maps.

    The start is the paper's: the zero-filled root-sum-of-squares u0 and the coil images divided by it; the
    samples are scaled by 1 / max(u0) and the result is scaled back. Samples at any points of k-space start
    from their weighted adjoint, with smooth maps (:mod:`~reconlib.joint.nonuniform_start`). An image with a
    ``free`` phase starts with the phase that the coil images share (:mod:`~reconlib.joint.phase_start`).
    ``prior`` must be on the device of the samples.

    Given maps, complex64 (slice, coil, y, x), stay as they are but for their magnitude, which the model
    divides by; where all of them vanish there is no signal. The start is then the zero-filled image combined
    with them.

    Parameters
    ----------
    initial_coils
        Rough maps of the same shape, as from a separate calibration, zero where they are not known: the start
        is then that of :func:`~reconlib.joint.map_start.start_from_maps`. They are never data. Where the
        centre of k-space was not measured, nothing in the data could make them better, and they stay.
    initial_image
        complex64 (slice, 1, y, x), in the units of the samples, its phase relative to ``initial_coils``,
        which it needs: both as in a :class:`Reconstruction` of the same object, say of the frame before. The
        estimate starts from it where it explains the samples better than the ordinary start, and needs fewer
        iterations then; what moved too far would leave a ghost.
    peak
        Take this for max(u0) of each slice. For slices of one object, whose brightness, noise and weight of
        the prior must go together.

    Raises
    ------
    ValueError
        Given maps do not have the samples' shape, are not finite, or are zero everywhere (for initial ones
        that is allowed); or the peak is not positive; or both kinds of maps are given; or the initial image
        has no initial maps, another shape than the slices, or is not finite.
    """
    check_given(kspace, coils=coils, initial_coils=initial_coils, initial_image=initial_image)
    if peak is not None and not 0 < peak < math.inf:
        raise ValueError(f"peak is {peak}; it must be positive, in the units of the samples.")
    if isinstance(kspace, KSpace) and is_better_exchanged(kspace):
        turned = reconstruct(
            exchanged(kspace),
            prior=replace(prior, energy=seeing_exchanged(prior.energy)),
            settings=settings,
            coils=coils if coils is None else exchanged_axes(coils),
            initial_coils=initial_coils if initial_coils is None else exchanged_axes(initial_coils),
            initial_image=initial_image if initial_image is None else exchanged_axes(initial_image),
            peak=peak,
            seed=seed,
            out_of_time=out_of_time,
            on_iteration=on_iteration,
        )
        return replace(turned, image=exchanged_axes(turned.image), coils=exchanged_axes(turned.coils))
    card = prior.card
    phase: ImagePhase = settings.image_phase or card.image_phase
    has_centre = _has_centre(kspace)
    kspace, turn = echo_centred(kspace)
    if turn is not None:
        coils, initial_coils = (one if one is None else one * turn.conj() for one in (coils, initial_coils))
    measured = Measured.of(kspace, peak)
    data, coil_images, scales, used = measured.data, measured.coil_images, measured.scales, measured.used
    levels = [kspace.noise_std * scale for scale in scales]
    weights = [
        prior_weight(
            card,
            level,
            rule=settings.prior_weight_rule,
            value=settings.prior_weight,
            factor=settings.prior_weight_factor,
        )
        for level in levels
    ]
    device = coil_images.device
    per_slice = measured.factors[:, None, None, None]
    noise_level = torch.tensor(levels, dtype=torch.float64, device=device)[used]
    model = ImageModel(
        phase,
        prior.energy,
        torch.tensor([weight for weight, _ in weights], dtype=torch.float64, device=device)[used],
        settings.imaginary_weight * noise_level,
        signed=card.input.values == "signed",
    )
    first = first_estimate(
        data,
        coil_images,
        model,
        on_grid=isinstance(kspace, KSpace),
        coils=coils,
        initial_coils=initial_coils,
        initial_image=initial_image,
    )
    smoothness = CoilSmoothness(coil_smoothness(settings, card, coil_images.shape))
    estimates_coils = coils is None and (initial_coils is None or has_centre)
    if settings.solver == "fast" and estimates_coils and initial_image is None:
        is_known = initial_coils is not None or phase == "free"
        first = with_smooth_maps(first, None if is_known else coil_images, smoothness, per_slice)
    problem = JointProblem(
        solver=settings.solver,
        model=model,
        smoothness=smoothness,
        noise_level=noise_level,
        image=(first.image * per_slice)[used],
        coils=first.coils[used],
        is_close=first.is_close,
        estimate_coils=estimates_coils,
        gradient_noise_std=card.gradient_noise_std,
        symmetric_views=card.symmetric_views,
        tolerance=settings.tolerance,
        seed=seed,
        out_of_time=out_of_time,
    )
    result, trust = solve_trusting(measured, problem, iterations_of(settings), on_iteration)
    collected = _collected(measured, result, trust, levels, weights, phase, settings.solver)
    if turn is not None:
        collected = replace(collected, coils=collected.coils * turn)
    return collected


def _has_centre(kspace: KSpace | NonuniformKSpace) -> bool:
    """Whether the data can tell coils and image apart; trajectories that are not Cartesian can."""
    return isinstance(kspace, NonuniformKSpace) or has_own_calibration(kspace.mask)


def _collected(
    measured: Measured,
    result: JointResult,
    trust: Tensor | None,
    levels: list[float],
    weights: list[tuple[float, WeightRule]],
    phase: ImagePhase,
    solver: Solver,
) -> Reconstruction:
    """Put the slices that were reconstructed back between the all-zero ones, in the units of the samples."""
    used, n_slices = measured.used, len(measured.scales)
    image = result.image.new_zeros((n_slices, *result.image.shape[1:]))
    coils = torch.zeros_like(measured.coil_images)
    magnitude = root_sum_of_squares(result.coils)
    image[used] = result.image * (1 / measured.factors[used][:, None, None, None])
    coils[used] = result.coils / magnitude.clamp_min(torch.finfo(magnitude.dtype).tiny)
    outcomes = [Outcome.ALL_ZERO] * n_slices
    n_iterations, magnitudes = [0] * n_slices, [0.0] * n_slices
    mean_magnitude = mean_coil_magnitude(result.coils, result.image).tolist()
    for column, row in enumerate(torch.nonzero(used).flatten().tolist()):
        outcomes[row] = result.outcomes[column]
        n_iterations[row] = result.n_iterations[column]
        magnitudes[row] = mean_magnitude[column]
    return Reconstruction(
        image=image,
        coils=coils,
        outcomes=tuple(outcomes),
        n_iterations=tuple(n_iterations),
        scale=tuple(measured.scales),
        noise_level=tuple(levels),
        prior_weight=tuple(weight for weight, _ in weights),
        mean_coil_magnitude=tuple(magnitudes),
        prior_weight_rule=weights[0][1],
        image_phase=phase,
        solver=solver,
        trace=result.trace,
        trust=trust,
    )
