"""From k-space to magnitude images, whatever happens: the joint reconstruction with a safety net.

A scanner that sent a scan must get an image. Where the joint reconstruction fails, runs out of memory or
leaves the finite numbers, the result is the zero-filled root-sum-of-squares image (of non-Cartesian samples
that of their density-weighted adjoint), labelled as that.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gadget.configs import prior_folders
from gadget.errors import SettingsError
from gadget.prior_faults import prior_faults_as_settings_faults
from gadget.settings import Settings
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.posterior.posterior import Posterior
from reconlib.posterior.run import PosteriorRun
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.priors.typicality import Typicality, typicality
from reconlib.reconstruction import Progress, Reconstruction, ReconstructionSettings, reconstruct, zero_filled

logger = logging.getLogger(__name__)


class ImageKind(Enum):
    """What kind of image a slice got; each value is what its label says."""

    RECONSTRUCTED = "joint reconstruction"
    OUT_OF_TIME = "joint reconstruction, stopped at its time limit"
    ALL_ZERO = "image of zeros: the k-space is all zero"
    FALLBACK = "FALLBACK: zero-filled root sum of squares"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """The image of one slice and how it came about. Numbers are None where the image is a fallback."""

    image: NDArray[np.complex64] | NDArray[np.float32]
    """(y, x), in the units of the samples: complex64, or the float32 magnitude of a fallback."""
    coils: NDArray[np.complex64] | None
    """complex64 (coil, y, x); None where the image is a fallback."""
    kind: ImageKind
    outcome: str
    """How the reconstruction ended, or why there is a fallback: a sentence without patient data."""
    prior_name: str
    prior_version: str
    image_phase: str
    prior_weight_rule: str
    seconds: float
    """Those of the batch, divided by its slices."""
    iterations: int | None = None
    scale: float | None = None
    """The samples were multiplied by this."""
    noise_level: float | None = None
    """Standard deviation per real component after scaling."""
    prior_weight: float | None = None
    mean_coil_magnitude: float | None = None
    typicality: Typicality | None = None
    """How typical the image is under the prior; None also where the image is zero."""


class JointReconstruction(Protocol):
    """The signature of :func:`reconlib.reconstruction.reconstruct`."""

    def __call__(
        self,
        kspace: KSpace | NonuniformKSpace,
        *,
        prior: Prior,
        settings: ReconstructionSettings,
        coils: Tensor | None,
        initial_coils: Tensor | None,
        peak: float | None,
        seed: int,
        out_of_time: Callable[[], bool],
        on_iteration: Callable[[Progress], None] | None,
    ) -> Reconstruction: ...


class SamplingRun(Protocol):
    """What is used of a :class:`reconlib.posterior.run.PosteriorRun`."""

    @property
    def n_steps(self) -> int: ...
    @property
    def n_done(self) -> int: ...
    def advance(self) -> bool: ...
    def result(self, *, out_of_time: bool = False) -> Posterior: ...


class PosteriorSampling(Protocol):
    """How a :class:`reconlib.posterior.run.PosteriorRun` is made."""

    def __call__(
        self,
        kspace: KSpace | NonuniformKSpace,
        reconstruction: Reconstruction,
        *,
        prior: Prior,
        settings: PosteriorSettings,
        solver: ReconstructionSettings,
        seed: int,
        to_output: Callable[[Tensor], Tensor],
    ) -> SamplingRun: ...


class Reconstructor:
    """Reconstructs batches of slices on one device; loads each prior once.

    Parameters
    ----------
    device
        'auto', 'cpu' or 'cuda'; auto takes a CUDA device where there is one.
    prior_search
        Folders in which the names of priors are looked up.
    clock
        Seconds of a clock that never goes back.
    joint
        The joint reconstruction; another one for tests and comparisons.
    sampling
        What samples posteriors; another one for tests.
    on_iteration, on_step
        Called after each iteration of the reconstruction, and after each step of sampling (steps done, steps
        in all).
    """

    def __init__(
        self,
        device: str = "auto",
        *,
        prior_search: Sequence[Path] | None = None,
        clock: Callable[[], float] = time.monotonic,
        joint: JointReconstruction = reconstruct,
        sampling: PosteriorSampling = PosteriorRun,
        on_iteration: Callable[[Progress], None] | None = None,
        on_step: Callable[[int, int], None] = lambda _done, _steps: None,
    ) -> None:
        self.device = find_device(device)
        self.clock = clock
        self.sampling = sampling
        self.on_step = on_step
        self._prior_search = prior_folders() if prior_search is None else prior_search
        self._joint = joint
        self._on_iteration = on_iteration
        self._priors: dict[Path, Prior] = {}

    def load(self, settings: Settings) -> Prior:
        """Load the prior that the settings name, or return it where it is loaded already."""
        with prior_faults_as_settings_faults():
            folder = find_prior(settings.prior, self._prior_search)
            if folder not in self._priors:
                self._priors[folder] = load_prior(folder, self.device)
        prior = self._priors[folder]
        if settings.prior_weight.rule == "fit" and prior.card.prior_weight.slope is None:
            raise SettingsError(
                f"prior_weight.rule: the card of the prior {prior.card.name} has no fit of the weight; "
                "choose another rule."
            )
        return prior

    def __call__(
        self,
        slices: Sequence[KSpace | NonuniformKSpace],
        settings: Settings,
        cancelled: Callable[[], bool] = lambda: False,
        *,
        initial_coils: NDArray[np.complex64] | None = None,
        peak: float | None = None,
        judged: bool = True,
    ) -> list[SliceResult]:
        """Reconstruct slices of one shape and noise level together; one result for each.

        The reconstruction stops as at its time limit when ``cancelled`` turns true.

        Parameters
        ----------
        initial_coils
            complex64 (slice, coil, y, x): rough maps to start from, as
            :func:`reconlib.reconstruction.reconstruct` takes them. Not used where maps are fixed.
        peak
            The brightness that all are scaled by, where they belong together; None: each has its own.
        judged
            Whether to tell how typical each image is.
        """
        prior = self.load(settings)
        n_coils = slices[0].samples.shape[1]
        if settings.coils == "fixed" and n_coils != 1:
            raise SettingsError(
                f"coils: 'fixed' is for scans of a single coil, whose map is 1; this scan has {n_coils} "
                "coils. Set coils to joint."
            )
        started = self.clock()
        limit = settings.solver.time_limit_s
        end = None if limit is None else started + limit * len(slices)

        def out_of_time() -> bool:
            return cancelled() or (end is not None and self.clock() >= end)

        is_fixed = settings.coils == "fixed"
        try:
            kspace = joined(slices).to(self.device)
            result = self._joint(
                kspace,
                prior=prior,
                settings=reconstruction_settings(settings),
                coils=_map_of_one(kspace) if is_fixed else None,
                initial_coils=None
                if is_fixed or initial_coils is None
                else torch.from_numpy(initial_coils).to(self.device),
                peak=peak,
                seed=settings.seed,
                out_of_time=out_of_time,
                on_iteration=self._on_iteration,
            )
            images, coils = result.image.cpu().numpy(), result.coils.cpu().numpy()
        except Exception as error:  # whatever fails in there, the scanner gets an image
            if len(slices) > 1:
                logger.warning(
                    "A batch of %d slices failed (%s): one by one now.",
                    len(slices),
                    failure_reason(error, "the joint reconstruction"),
                )
                torch.cuda.empty_cache()
                return [
                    result
                    for index, one in enumerate(slices)
                    for result in self(
                        [one],
                        settings,
                        cancelled,
                        initial_coils=None if initial_coils is None else initial_coils[index : index + 1],
                        peak=peak,
                        judged=judged,
                    )
                ]
            logger.error("The joint reconstruction failed.", exc_info=error)
            return [
                _fallback(
                    slices[0],
                    settings,
                    prior,
                    self.clock() - started,
                    failure_reason(error, "the joint reconstruction"),
                )
            ]
        seconds = (self.clock() - started) / len(slices)
        results = []
        for index, outcome in enumerate(result.outcomes):
            if outcome is Outcome.NOT_FINITE or not np.isfinite(images[index]).all():
                reason = Outcome.NOT_FINITE.value
                results.append(_fallback(slices[index], settings, prior, seconds, reason))
                continue
            kinds = {Outcome.OUT_OF_TIME: ImageKind.OUT_OF_TIME, Outcome.ALL_ZERO: ImageKind.ALL_ZERO}
            results.append(
                SliceResult(
                    image=images[index, 0],
                    coils=coils[index],
                    kind=kinds.get(outcome, ImageKind.RECONSTRUCTED),
                    outcome=outcome.value,
                    prior_name=prior.card.name,
                    prior_version=prior.card.version,
                    image_phase=result.image_phase,
                    prior_weight_rule=result.prior_weight_rule,
                    seconds=seconds,
                    iterations=result.n_iterations[index],
                    scale=result.scale[index],
                    noise_level=result.noise_level[index],
                    prior_weight=result.prior_weight[index],
                    mean_coil_magnitude=result.mean_coil_magnitude[index],
                    typicality=self.judge(settings, result.image[index : index + 1])
                    if judged and outcome is not Outcome.ALL_ZERO
                    else None,
                )
            )
        return results

    def judge(self, settings: Settings, image: Tensor) -> Typicality:
        """Say how typical an image (1, 1, y, x) is under the prior; a failure does not cost the image."""
        try:
            return typicality(self.load(settings), image)
        except Exception as error:  # whatever fails in there, the image is good
            logger.error("How typical an image is could not be told.", exc_info=error)
            return Typicality(word="unknown", sentence=f"unknown: {failure_reason(error, 'the comparison')}")


def find_device(name: str) -> torch.device:
    """Return the device of that name; 'auto' is a CUDA device where there is one."""
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise SettingsError(
            "device: 'cuda' was asked for, but there is no CUDA device here; set it to auto or cpu."
        )
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def reconstruction_settings(settings: Settings) -> ReconstructionSettings:
    """Translate what the user chose; None in the result: as the prior's card says."""
    solver, weight = settings.solver, settings.prior_weight
    return ReconstructionSettings(
        image_phase=None if settings.image_phase == "prior" else settings.image_phase,
        iterations=solver.iterations,
        coil_smoothness=solver.coil_smoothness,
        imaginary_weight=solver.imaginary_weight,
        tolerance=solver.tolerance,
        prior_weight_rule=None if weight.rule == "prior" else weight.rule,
        prior_weight=weight.value,
        prior_weight_factor=weight.factor,
    )


def sampling_settings(settings: Settings) -> PosteriorSettings:
    """Translate what the user chose."""
    chosen = settings.posterior
    return PosteriorSettings(
        sampler=chosen.sampler,
        chains=chosen.chains,
        warmup=chosen.warmup,
        draws=chosen.draws,
        thin=chosen.thin,
    )


def joined(slices: Sequence[KSpace | NonuniformKSpace]) -> KSpace | NonuniformKSpace:
    """Return the k-space of slices of one kind, shape and noise level as one batch.

    Non-Cartesian slices that have one trajectory share it.
    """
    samples, noise_std = torch.cat([one.samples for one in slices]), slices[0].noise_std
    anywhere = [one for one in slices if isinstance(one, NonuniformKSpace)]
    if not anywhere:
        masks = torch.cat([one.mask for one in slices if isinstance(one, KSpace)])
        return KSpace(samples=samples, mask=masks, noise_std=noise_std)
    first = anywhere[0]
    is_shared = all(
        torch.equal(one.trajectory, first.trajectory) and torch.equal(one.weights, first.weights)
        for one in anywhere
    )
    kept = anywhere[:1] if is_shared else anywhere
    return NonuniformKSpace(
        samples=samples,
        trajectory=torch.cat([one.trajectory for one in kept]),
        weights=torch.cat([one.weights for one in kept]),
        shape=first.shape,
        noise_std=noise_std,
    )


def _map_of_one(kspace: KSpace | NonuniformKSpace) -> Tensor:
    """Return the map of a single coil, 1 everywhere: (slice, 1, y, x)."""
    grid = kspace.shape if isinstance(kspace, NonuniformKSpace) else kspace.samples.shape[2:]
    return torch.ones((len(kspace.samples), 1, *grid), dtype=torch.complex64, device=kspace.samples.device)


def _fallback(
    kspace: KSpace | NonuniformKSpace, settings: Settings, prior: Prior, seconds: float, reason: str
) -> SliceResult:
    return SliceResult(
        image=zero_filled(kspace).numpy()[0, 0],
        coils=None,
        kind=ImageKind.FALLBACK,
        outcome=reason,
        prior_name=prior.card.name,
        prior_version=prior.card.version,
        image_phase=settings.image_phase,
        prior_weight_rule=settings.prior_weight.rule,
        seconds=seconds,
    )


def failure_reason(error: Exception, where: str) -> str:
    """Say what failed and where, without the error's text, which may name a patient."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return "out of memory"
    return f"{type(error).__name__} in {where}"
