"""Slices whose image has left and whose posterior is still to be sampled.

The stream samples where it makes images, one step of all chains at a time, and only while it has nothing
else to do: between two steps it looks whether data waits. So another slice's image comes at most one step
later, the order of images is that of a stream without sampling, and nothing is left running when a stream
ends, however it ends.
"""

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import cast

import numpy as np
import torch
from torch import Tensor

from gadget.finished_slice import FinishedSlice, SampledSlice
from gadget.recon_grid import map_to_recon_grid
from gadget.reconstructor import (
    SamplingRun,
    failure_reason,
    joined,
    reconstruction_settings,
    sampling_settings,
)
from gadget.streaming_scan import ScanDevice, kspace_bytes
from gadget.wire.limits import MIB
from reconlib.energies.replayed import release_replays
from reconlib.joint.image_model import ImagePhase
from reconlib.joint.outcome import Outcome
from reconlib.joint.prior_weight import WeightRule
from reconlib.joint.result import JointTrace
from reconlib.joint.solving import Solver
from reconlib.posterior.posterior import Posterior
from reconlib.reconstruction import Reconstruction

logger = logging.getLogger(__name__)

WAITING_BYTES = 512 * MIB
"""How much k-space and coil maps may wait for their sampling before it goes first."""


class PosteriorQueue:
    """Batches of slices, sampled one after the other in the order in which they were added.

    Parameters
    ----------
    scan
        What made the images: it has settings, prior, sampler and clock.
    waiting_bytes
        Beyond it :attr:`is_full`.
    """

    def __init__(self, scan: ScanDevice, *, waiting_bytes: int = WAITING_BYTES) -> None:
        self._scan = scan
        self._reconstructor = scan.reconstructor
        self._settings = scan.settings
        self._waiting_bytes = waiting_bytes
        self._batches: deque[list[FinishedSlice]] = deque()
        self._run: SamplingRun | None = None
        """Of the first batch."""
        self._seconds = 0.0
        """Spent in it."""

    def __len__(self) -> int:
        """Slices that wait, or are being sampled."""
        return sum(map(len, self._batches))

    @property
    def n_bytes(self) -> int:
        """Memory of what waits."""
        return sum(_n_bytes(one) for batch in self._batches for one in batch)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that sampling should go first."""
        return self.n_bytes > self._waiting_bytes

    def add(self, slices: Sequence[FinishedSlice]) -> None:
        """Let slices of one reconstructed batch wait; those that are sent on different grids are parted."""
        for _, batch in groupby(slices, _grids):
            self._batches.append(list(batch))

    def clear(self) -> None:
        """Forget what waits."""
        self._batches.clear()
        self._run = None

    def step(self) -> list[SampledSlice]:
        """Make one step of the first batch; return its slices where that was the last one.

        The time limit holds for the sum of the seconds in here. A batch that fails is tried again slice by
        slice.
        """
        batch = self._batches[0]
        try:
            posterior = self._one_step(batch)
        except Exception as error:  # noqa: BLE001  # whatever fails in there, the images are out, and others go on
            self._finish_first()
            return self._after_failure(batch, error)
        if self._run is not None:
            self._reconstructor.on_step(self._run.n_done, self._run.n_steps)
        if posterior is None:
            return []
        self._finish_first()
        return [SampledSlice(finished=one, posterior=posterior, row=row) for row, one in enumerate(batch)]

    def _one_step(self, batch: list[FinishedSlice]) -> Posterior | None:
        """Make a step; return the posterior where it was the last one."""
        limit, clock = self._settings.posterior.time_limit_s, self._reconstructor.clock
        started = clock()
        if self._run is None:
            self._seconds = 0.0
            self._run = self._start(batch)
            goes_on = True
        else:
            goes_on = self._run.advance() and self._run.n_done < self._run.n_steps
        self._seconds += clock() - started
        out_of_time = goes_on and limit is not None and self._seconds >= limit * len(batch)
        return None if goes_on and not out_of_time else self._run.result(out_of_time=out_of_time)

    def _finish_first(self) -> None:
        self._batches.popleft()
        self._run = None

    def _start(self, batch: Sequence[FinishedSlice]) -> SamplingRun:
        reconstructor, settings, prior = self._reconstructor, self._settings, self._scan.prior
        if prior is None:
            raise RuntimeError("fallback images have no posterior")
        return reconstructor.sampling(
            joined([one.kspace for one in batch]).to(reconstructor.device),
            _reconstruction(batch, reconstructor.device),
            prior=prior,
            settings=sampling_settings(settings),
            solver=reconstruction_settings(settings),
            seed=settings.seed,
            to_output=partial(map_to_recon_grid, context=batch[0].slice.context),
        )

    def _after_failure(self, batch: list[FinishedSlice], error: Exception) -> list[SampledSlice]:
        reason, prior = failure_reason(error, "the sampling"), self._scan.prior
        if self._reconstructor.device.type == "cuda" and prior is not None:
            release_replays(prior.energy)
            torch.cuda.empty_cache()
        if len(batch) > 1:
            logger.warning("Sampling %d slices together failed (%s): one by one now.", len(batch), reason)
            self._batches.extendleft([one] for one in reversed(batch))
            return []
        logger.error("The sampling failed.", exc_info=error)
        return [SampledSlice(finished=batch[0], posterior=None, failure=reason)]


def _n_bytes(one: FinishedSlice) -> int:
    arrays = (one.result.image, one.result.coils)
    return kspace_bytes(one.kspace) + sum(array.nbytes for array in arrays if array is not None)


def _grids(one: FinishedSlice) -> object:
    """Return what a slice's map to the recon matrix depends on."""
    context = one.slice.context
    return (context.grid_matrix, context.grid_fov_mm, context.recon_matrix, context.recon_fov_mm)


def _reconstruction(batch: Sequence[FinishedSlice], device: torch.device) -> Reconstruction:
    """Put the results of slices together again; what happened per iteration is not kept."""
    results = [one.result for one in batch]
    nothing = torch.empty(0, len(batch), dtype=torch.float64)

    def stacked(arrays: Sequence[object]) -> Tensor:
        return torch.from_numpy(np.stack([np.asarray(array, np.complex64) for array in arrays])).to(device)

    def known(values: Sequence[float | None]) -> tuple[float, ...]:
        return tuple(value for value in values if value is not None)

    return Reconstruction(
        image=stacked([result.image for result in results])[:, None],
        coils=stacked([result.coils for result in results]),
        outcomes=tuple(Outcome(result.outcome) for result in results),
        n_iterations=tuple(result.iterations or 0 for result in results),
        scale=known([result.scale for result in results]),
        noise_level=known([result.noise_level for result in results]),
        prior_weight=known([result.prior_weight for result in results]),
        mean_coil_magnitude=known([result.mean_coil_magnitude for result in results]),
        prior_weight_rule=cast(WeightRule, results[0].prior_weight_rule),
        image_phase=cast(ImagePhase, results[0].image_phase),
        solver=cast(Solver, results[0].solver),
        trace=JointTrace(
            energy=nothing,
            image_lipschitz=nothing,
            coil_lipschitz=nothing,
            coil_magnitude=nothing,
            relative_change=nothing,
        ),
    )
