r"""Sampling of the posterior of a batch of slices: step by step, or in one go.

Chains start at the reconstruction plus noise of the size of the scan's, and make their warm-up; then every
``thin``-th image enters mean and standard deviation. All slices and chains move together. A run is cheap to
pause: between two steps it holds its state and computes nothing.

How it ended is part of the result. With R-hat above 1.1, or fewer than 50 effective draws in the worst of the
watched statistics (the error of a standard deviation is then 10 %), mean and width are not to be relied on,
and the outcome says so.
"""

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from reconlib.energies.view import draw_view
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.posterior.curvature import ITERATIONS, largest_curvature
from reconlib.posterior.diagnostics import effective_sample_size, split_rhat
from reconlib.posterior.memory import bytes_per_chain
from reconlib.posterior.moments import Moments
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.posterior import Posterior
from reconlib.posterior.samplers import start_sampler
from reconlib.posterior.settings import PosteriorSettings
from reconlib.posterior.target import PosteriorTarget, posterior_target
from reconlib.posterior.watched import WatchedStatistics
from reconlib.priors.library import Prior
from reconlib.reconstruction import Reconstruction, ReconstructionSettings

__all__ = ["PosteriorRun", "bytes_per_chain", "sample_posterior"]

LARGEST_RHAT = 1.1
FEWEST_EFFECTIVE_DRAWS = 50.0


class PosteriorRun:
    """A sampling that can be paused between steps.

    ``n_steps`` counts the iterations that find the step size, the warm-up, and the steps of the draws;
    ``n_done`` those made so far; ``n_kept`` the images kept of each chain. The random numbers come from
    ``seed`` alone: on one device the same seed gives the same result, however often a run is paused.

    ``to_output`` maps complex images (n, 1, y, x) linearly to the grid on which the result is wanted.
    """

    def __init__(
        self,
        kspace: KSpace | NonuniformKSpace,
        reconstruction: Reconstruction,
        *,
        prior: Prior,
        settings: PosteriorSettings = PosteriorSettings(),
        solver: ReconstructionSettings = ReconstructionSettings(),
        seed: int = 0,
        to_output: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.settings = settings
        self.n_steps = ITERATIONS + settings.warmup + settings.draws * settings.thin
        self.n_done = self.n_kept = 0
        self._seconds = 0.0
        self._reconstruction = reconstruction
        self._to_output = to_output or (lambda image: image)
        card = prior.card
        self._std_factor = card.posterior.std_factor if card.posterior else 1.0
        self._symmetric_views = card.symmetric_views and settings.sampler != "mala"  # its test needs one E
        device = kspace.samples.device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._finite = [
            outcome is not Outcome.NOT_FINITE and bool(torch.isfinite(torch.view_as_real(image)).all())
            for outcome, image in zip(reconstruction.outcomes, reconstruction.image, strict=True)
        ]
        used = [
            finite and outcome is not Outcome.ALL_ZERO
            for finite, outcome in zip(self._finite, reconstruction.outcomes, strict=True)
        ]
        self._rows = [row for row, is_used in enumerate(used) if is_used]
        """The slices that are sampled; those of the state, in order."""
        self._moments = Moments()
        self._statistics: list[Tensor] = []
        self._accepted: list[Tensor] = []
        self._work: Iterator[None] = iter(())
        if self._rows:
            rows = torch.tensor(self._rows, device=device)
            self._work = self._sample(
                *posterior_target(kspace, reconstruction, prior, solver, settings, rows)
            )

    def advance(self) -> bool:
        """Make one step of all chains; False, without a step, when all draws are made or all chains lost."""
        started = time.perf_counter()
        try:
            next(self._work)
        except StopIteration:
            return False
        finally:
            self._seconds += time.perf_counter() - started
        self.n_done += 1
        return True

    def result(self, *, out_of_time: bool = False) -> Posterior:
        """Return the moments of the draws so far, and what they are worth; allowed at any time."""
        settings, reconstruction = self.settings, self._reconstruction
        early = out_of_time or self.n_done < self.n_steps
        enough = self.n_kept >= 2
        rhat, ess, acceptance = self._diagnose()
        outcomes = [PosteriorOutcome.ALL_ZERO] * len(reconstruction.scale)
        for row, finite in enumerate(self._finite):
            if not finite:
                outcomes[row] = PosteriorOutcome.NOT_FINITE
            elif row in self._rows:
                outcomes[row] = _judge(rhat[row], ess[row], early=early, enough=enough)
        image = self._to_output(torch.zeros_like(reconstruction.image))
        mean, std = image.to(torch.complex64), image.real.float().contiguous()
        if enough and self._rows:
            scale = torch.tensor(reconstruction.scale, dtype=torch.float64, device=image.device)
            unscale = 1 / scale[self._rows, None, None, None]
            mean[self._rows] = (self._moments.mean()[:, None] * unscale).to(mean)
            std[self._rows] = (self._moments.std()[:, None] * (self._std_factor * unscale)).to(std)
        for row, outcome in enumerate(outcomes):
            unknown = row in self._rows and not enough
            if unknown or outcome is PosteriorOutcome.NOT_FINITE:
                mean[row], std[row] = math.nan, math.nan
        return Posterior(
            mean=mean,
            std=std,
            outcomes=tuple(outcomes),
            n_chains=settings.chains,
            n_draws=self.n_kept,
            worst_rhat=tuple(rhat),
            smallest_ess=tuple(ess),
            sigma=reconstruction.noise_level,
            effective_temperature=tuple(
                level**2 / weight
                for level, weight in zip(reconstruction.noise_level, reconstruction.prior_weight, strict=True)
            ),
            std_factor=self._std_factor,
            sampler=settings.sampler,
            seconds=self._seconds,
            acceptance=tuple(acceptance) if self._accepted else None,
        )

    def _diagnose(self) -> tuple[list[float], list[float], list[float]]:
        """Return the worst R-hat, the smallest number of effective draws and the acceptance of each slice."""
        n_slices = len(self._finite)
        rhat, ess, acceptance = ([math.nan] * n_slices for _ in range(3))
        if not self._statistics:
            return rhat, ess, acceptance
        statistics = torch.stack(self._statistics, dim=2)
        for column, row in enumerate(self._rows):
            if self._finite[row]:
                rhat[row] = _worst(split_rhat(statistics[column]), largest=True)
                ess[row] = _worst(effective_sample_size(statistics[column]), largest=False)
            if self._accepted:
                acceptance[row] = float(torch.stack(self._accepted)[:, column].mean())
        return rhat, ess, acceptance

    def _sample(self, target: PosteriorTarget, image: Tensor, sigma: Tensor) -> Iterator[None]:
        """Do all the work, with a pause after each step; image (slice, 1, y, x) scaled, sigma (slice,)."""
        settings, generator = self.settings, self._generator
        n_chains = settings.chains
        watched = WatchedStatistics.choose(image, target.data)
        start = image.repeat_interleave(n_chains, dim=0)
        start = (
            start + target.noise(generator) * sigma.float().repeat_interleave(n_chains)[:, None, None, None]
        )
        if target.reflecting:
            start.real.abs_()
        curvature = 1 / sigma.square()
        for found in largest_curvature(target.with_one_chain(), start[::n_chains], sigma, generator):
            curvature = found
            yield
        sampler = start_sampler(
            settings.sampler, target, start, curvature.repeat_interleave(n_chains), generator
        )
        for step in range(1, settings.warmup + settings.draws * settings.thin + 1):
            if self._symmetric_views:
                matrix = (image.shape[-2], image.shape[-1])
                target.view = draw_view(matrix, generator, image.device, noise_std=0.0, symmetric=True)
            warming = step <= settings.warmup
            sampler.step(generator, warming=warming)
            self._notice_lost_chains(sampler.evaluation.prior + sampler.evaluation.data)
            if not any(self._finite[row] for row in self._rows):
                return
            if not warming and sampler.accepted is not None:
                self._accepted.append(sampler.accepted.reshape(-1, n_chains).mean(dim=1).cpu())
            if not warming and (step - settings.warmup) % settings.thin == 0:
                self._keep(sampler.image, watched.of(sampler.image, sampler.evaluation))
            yield

    def _notice_lost_chains(self, energy: Tensor) -> None:
        """Mark slices with a chain whose energy (row,) is not finite."""
        finite = torch.isfinite(energy).reshape(len(self._rows), -1).all(dim=1)
        for row, is_finite in zip(self._rows, finite.tolist(), strict=True):
            self._finite[row] &= is_finite

    def _keep(self, image: Tensor, statistics: Tensor) -> None:
        shown = self._to_output(image)
        self._moments.add(shown.reshape(len(self._rows), -1, *shown.shape[-2:]))
        self._statistics.append(statistics.cpu())
        self.n_kept += 1


def sample_posterior(
    kspace: KSpace | NonuniformKSpace,
    reconstruction: Reconstruction,
    *,
    prior: Prior,
    settings: PosteriorSettings = PosteriorSettings(),
    solver: ReconstructionSettings = ReconstructionSettings(),
    seed: int = 0,
    to_output: Callable[[Tensor], Tensor] | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, int], None] | None = None,
) -> Posterior:
    """Sample until all draws are made or time is up; arguments as in :class:`PosteriorRun`.

    ``out_of_time`` is asked before each step; ``on_step`` gets the steps done and the steps in all.
    """
    run = PosteriorRun(
        kspace,
        reconstruction,
        prior=prior,
        settings=settings,
        solver=solver,
        seed=seed,
        to_output=to_output,
    )
    while not (ended := out_of_time()) and run.advance():
        if on_step is not None:
            on_step(run.n_done, run.n_steps)
    return run.result(out_of_time=ended)


def _judge(rhat: float, ess: float, *, early: bool, enough: bool) -> PosteriorOutcome:
    """Return the outcome of a slice whose chains are finite; NaN is no reason to trust."""
    good = enough and rhat <= LARGEST_RHAT and ess >= FEWEST_EFFECTIVE_DRAWS
    if early:
        return PosteriorOutcome.OUT_OF_TIME if good else PosteriorOutcome.TOO_SHORT
    if not enough:
        return PosteriorOutcome.TOO_SHORT
    return PosteriorOutcome.DONE if good else PosteriorOutcome.NOT_MIXED


def _worst(values: Tensor, *, largest: bool) -> float:
    """Largest or smallest of the values that are known; NaN where none is."""
    known = values[~torch.isnan(values)]
    if not len(known):
        return math.nan
    return float(known.max() if largest else known.min())
