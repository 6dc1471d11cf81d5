"""Seconds per iteration of the joint reconstruction, split into its parts."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gadget.configs import prior_folders
from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.kspace import KSpace
from reconlib.operators.fourier import SampledFourier
from reconlib.priors.library import find_prior, load_prior
from reconlib.reconstruction import DEFAULT_COIL_SMOOTHNESS, ReconstructionSettings, reconstruct
from reconlib.simulation.scan import simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

N_ITERATIONS = 100
N_THREADS = 2


@pytest.fixture(scope="module")
def slice_of_head() -> KSpace:
    return simulate_head_scan(ScanSettings(matrix=(256, 256), n_coils=8, seed=3)).kspace


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Least time of a few runs."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["brain-local", "tv"])
def test_reconstruction_of_256_by_256_with_8_coils(benchmark: Any, slice_of_head: KSpace, name: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(N_THREADS)
    try:
        prior = load_prior(find_prior(name, prior_folders()), torch.device("cpu"))
        settings = ReconstructionSettings(iterations=N_ITERATIONS)
        result = benchmark.pedantic(
            lambda: reconstruct(slice_of_head, prior=prior, settings=settings), rounds=1, iterations=1
        )
        fourier, samples = SampledFourier.fold(slice_of_head)
        image = result.image.abs() * result.scale[0]
        smoothness = CoilSmoothness(DEFAULT_COIL_SMOOTHNESS)
        step = torch.ones(1)
        benchmark.extra_info |= {
            "threads": N_THREADS,
            "torch": torch.__version__,
            "outcome": result.outcomes[0].value,
            "energy": float(result.trace.energy[-1, 0]),
            "seconds_per_iteration": benchmark.stats["min"] / N_ITERATIONS,
            "network_value_and_gradient_s": seconds(lambda: prior.energy.value_and_gradient(image)),
            "network_value_s (one per line search)": seconds(lambda: prior.energy.value(image)),
            "six_coil_fft_stacks_s": 6 * seconds(lambda: fourier.adjoint(samples)),
            "coil_prox_s": seconds(lambda: smoothness.prox(result.coils, step)),
        }
    finally:
        torch.set_num_threads(threads)
