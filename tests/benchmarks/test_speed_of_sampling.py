"""Effective draws per second of each sampler, and the time until the chains agree, with the shipped prior."""

import math
import time
from typing import Any

import pytest
import torch

from gadget.configs import prior_folders
from reconlib.kspace import KSpace
from reconlib.posterior.run import PosteriorRun
from reconlib.posterior.settings import PosteriorSettings, SamplerName
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import Reconstruction, ReconstructionSettings, reconstruct
from reconlib.simulation.scan import simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

N_THREADS = 2
LIMIT_CPU_S = 300.0
AGREED = 1.05
"""The R-hat at which a sampler may stop."""
CHECK_EVERY = 20


@pytest.fixture(scope="module")
def prior() -> Prior:
    return load_prior(find_prior("brain-local", prior_folders()), torch.device("cpu"))


@pytest.fixture(scope="module")
def slice_of_head() -> KSpace:
    return simulate_head_scan(ScanSettings(matrix=(256, 256), n_coils=8, seed=3)).kspace


@pytest.fixture(scope="module")
def reconstruction(slice_of_head: KSpace, prior: Prior) -> Reconstruction:
    return reconstruct(slice_of_head, prior=prior, settings=ReconstructionSettings(iterations=60))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("sampler", ["kinetic", "langevin", "mala", "sk-rock"])
def test_sampling_of_256_by_256_with_8_coils(
    benchmark: Any, slice_of_head: KSpace, reconstruction: Reconstruction, prior: Prior, sampler: SamplerName
) -> None:
    """60 steps of warm-up; the time, that of the processor, includes them and the search for the step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(N_THREADS)
    found: dict[str, float] = {}

    def sample() -> None:
        started = time.process_time()
        run = PosteriorRun(
            slice_of_head,
            reconstruction,
            prior=prior,
            settings=PosteriorSettings(sampler=sampler, warmup=60, draws=100_000),
        )
        while run.advance():
            if run.n_kept % CHECK_EVERY or not run.n_kept:
                continue
            result = run.result()
            cpu = time.process_time() - started
            agreed = result.worst_rhat[0] < AGREED
            if agreed or cpu > LIMIT_CPU_S:
                found["seconds"] = result.seconds
                found["CPU seconds"] = cpu
                found["effective draws per CPU second"] = result.smallest_ess[0] / cpu
                found["R-hat"] = result.worst_rhat[0]
                found[f"CPU seconds to R-hat {AGREED}"] = cpu if agreed else math.inf
                found["steps"] = run.n_done
                return

    try:
        benchmark.pedantic(sample, rounds=1, iterations=1)
        benchmark.extra_info |= {"threads": N_THREADS, "torch": torch.__version__, **found}
    finally:
        torch.set_num_threads(threads)
