"""From k-space to magnitude images, whatever happens: the joint reconstruction with a safety net.

A scanner that sent a scan must get an image. Where the joint reconstruction fails or runs out of memory, it
is tried again in smaller batches, and on the CPU (:mod:`gadget.streaming_ladder`). Where that does not help,
or the numbers are not finite, the result is the zero-filled root-sum-of-squares image (of non-Cartesian
samples that of their density-weighted adjoint), labelled as that.
"""

import copy
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
from gadget.settings import Settings
from gadget.streaming_ladder import Rung, is_out_of_memory
from gadget.streaming_priors import LoadedPriors
from gadget.turns import Turns
from reconlib.energies.replayed import release_replays
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.posterior.posterior import Posterior
from reconlib.posterior.run import PosteriorRun
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import Prior, energy_of
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
    solver: str | None = None
    """Name of the solver that was used."""
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
        initial_image: Tensor | None,
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
    """Reconstructs batches of slices on one device; loads each prior once. Several scans may share it.

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
    turns
        Those who share the device wait here for their turn (:class:`gadget.streaming_scan.ScanDevice`).
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
        turns: Turns | None = None,
        on_iteration: Callable[[Progress], None] | None = None,
        on_step: Callable[[int, int], None] = lambda _done, _steps: None,
    ) -> None:
        self.device = find_device(device)
        self.clock = clock
        self.sampling = sampling
        self.on_step = on_step
        self.turns = Turns() if turns is None else turns
        self._joint = joint
        self._on_iteration = on_iteration
        self._priors = LoadedPriors(prior_folders() if prior_search is None else prior_search, self.device)

    def load(self, settings: Settings) -> Prior:
        """Load the prior that the settings name, or return it where it is loaded and unchanged on disk.

        To be called when a scan starts: what it returns holds for all of that scan.
        """
        prior = self._priors.get(settings.prior)
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
        prior: Prior | None = None,
        initial_coils: NDArray[np.complex64] | None = None,
        initial_image: NDArray[np.complex64] | None = None,
        peak: float | None = None,
        judged: bool = True,
    ) -> list[SliceResult]:
        """Reconstruct slices of one shape and noise level together; one result for each.

        The reconstruction stops as at its time limit when ``cancelled`` turns true.

        Parameters
        ----------
        prior
            The one that was loaded when the scan started. None: the one that the settings name now.
        initial_coils
            complex64 (slice, coil, y, x): rough maps to start from, as
            :func:`reconlib.reconstruction.reconstruct` takes them. Not used where maps are fixed.
        initial_image
            complex64 (slice, 1, y, x): the image that belongs to these maps, to start from as well.
        peak
            The brightness that all are scaled by, where they belong together; None: each has its own.
        judged
            Whether to tell how typical each image is.
        """
        prior = self.load(settings) if prior is None else prior
        n_coils = slices[0].samples.shape[1]
        if settings.coils == "fixed" and n_coils != 1:
            raise SettingsError(
                f"coils: 'fixed' is for scans of a single coil, whose map is 1; this scan has {n_coils} "
                "coils. Set coils to joint."
            )
        results: list[SliceResult] = []
        rungs = [Rung(range(len(slices)), self.device)]
        while rungs:
            rung = rungs.pop(0)
            some, started = [slices[row] for row in rung.rows], self.clock()
            rows = slice(rung.rows.start, rung.rows.stop)
            maps, image = (None if one is None else one[rows] for one in (initial_coils, initial_image))
            found = self._tried(rung, some, settings, cancelled, started, prior, maps, image, peak, judged)
            # Only here is the memory of a failure free again: where it was caught, the error held it.
            if isinstance(found, tuple):
                if self.device.type == "cuda":
                    release_replays(prior.energy)
                    torch.cuda.empty_cache()
                rungs[:0] = found
            elif isinstance(found, str):
                seconds = self.clock() - started
                results.append(fallback(some[0], settings, found, prior=prior, seconds=seconds))
            else:
                results += found
        return results

    def _tried(
        self,
        rung: Rung,
        slices: Sequence[KSpace | NonuniformKSpace],
        settings: Settings,
        cancelled: Callable[[], bool],
        started: float,
        prior: Prior,
        initial_coils: NDArray[np.complex64] | None,
        initial_image: NDArray[np.complex64] | None,
        peak: float | None,
        judged: bool,
    ) -> list[SliceResult] | tuple[Rung, ...] | str:
        """Reconstruct on one rung of the ladder; return what to try next, or at its end why it failed."""
        limit = settings.solver.time_limit_s
        end = None if limit is None else started + limit * len(slices)

        def out_of_time() -> bool:
            return cancelled() or (end is not None and self.clock() >= end)

        is_fixed = settings.coils == "fixed"
        maps, image = (
            None if is_fixed or one is None else torch.from_numpy(one).to(rung.device)
            for one in (initial_coils, initial_image)
        )
        try:
            kspace = joined(slices).to(rung.device)
            result = self._joint(
                kspace,
                prior=prior if rung.device == self.device else _copied(prior, rung.device),
                settings=reconstruction_settings(settings),
                coils=_map_of_one(kspace) if is_fixed else None,
                initial_coils=maps,
                initial_image=image,
                peak=peak,
                seed=settings.seed,
                out_of_time=out_of_time,
                on_iteration=self._on_iteration,
            )
            images, coils = result.image.cpu().numpy(), result.coils.cpu().numpy()
        except Exception as error:  # whatever fails in there, the scanner gets an image
            reason = failure_reason(error, "the joint reconstruction")
            rungs = rung.next(reason, is_memory=is_out_of_memory(error))
            if not rungs:
                logger.error("The joint reconstruction failed.", exc_info=error)
            return rungs or reason
        seconds = (self.clock() - started) / len(slices)
        results = []
        for index, outcome in enumerate(result.outcomes):
            never_began = outcome is Outcome.OUT_OF_TIME and result.n_iterations[index] == 0
            if outcome is Outcome.NOT_FINITE or not np.isfinite(images[index]).all():
                outcome = Outcome.NOT_FINITE
            if never_began or outcome is Outcome.NOT_FINITE:
                results.append(fallback(slices[index], settings, outcome.value, prior=prior, seconds=seconds))
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
                    solver=result.solver,
                    iterations=result.n_iterations[index],
                    scale=result.scale[index],
                    noise_level=result.noise_level[index],
                    prior_weight=result.prior_weight[index],
                    mean_coil_magnitude=result.mean_coil_magnitude[index],
                    typicality=self.judge(prior, result.image[index : index + 1])
                    if judged and outcome is not Outcome.ALL_ZERO
                    else None,
                )
            )
        return results

    def judge(self, prior: Prior, image: Tensor) -> Typicality:
        """Say how typical an image (1, 1, y, x) is under the prior; a failure does not cost the image."""
        try:
            return typicality(prior, image.to(self.device))
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
        solver=solver.method,
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


def _copied(prior: Prior, device: torch.device) -> Prior:
    """Return a prior on another device, as it is in memory: its files may be others by now."""
    network = None if prior.network is None else copy.deepcopy(prior.network).to(device)
    return Prior(prior.card, energy_of(prior.card, network), network)


def fallback(
    kspace: KSpace | NonuniformKSpace,
    settings: Settings,
    reason: str,
    *,
    prior: Prior | None = None,
    seconds: float = 0.0,
) -> SliceResult:
    """Return the zero-filled root-sum-of-squares image of a slice, labelled as that.

    Parameters
    ----------
    reason
        Why it is no reconstruction: words without patient data.
    prior
        What would have been used; None where it was not even loaded.
    """
    return SliceResult(
        image=zero_filled(kspace).numpy()[0, 0],
        coils=None,
        kind=ImageKind.FALLBACK,
        outcome=reason,
        prior_name=settings.prior if prior is None else prior.card.name,
        prior_version="not loaded" if prior is None else prior.card.version,
        image_phase=settings.image_phase,
        prior_weight_rule=settings.prior_weight.rule,
        seconds=seconds,
    )


def failure_reason(error: Exception, where: str) -> str:
    """Say what failed and where, without the error's text, which may name a patient."""
    return "out of memory" if is_out_of_memory(error) else f"{type(error).__name__} in {where}"
