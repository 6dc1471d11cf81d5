"""CPU time of a data-term gradient with 15 coils on radial trajectories, beside other libraries' transforms.

The limits are on CPU time in one run, the least of several repeats that take turns. A spoke has 640 samples
for 320 pixels, the usual twofold oversampling; with 320 the times are measured but not limited.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from reconlib.operators.nonuniform import DEFAULT_EPS, NonuniformFourier
from reconlib.operators.toeplitz import ToeplitzNormal, normal_operator

N_COILS, N, N_THREADS, N_REPEATS = 15, 320, 2, 11
LIMITS = {(45, 640): 1.3, (200, 640): 0.4}
"""Gradient over finufft's own pair, for numbers of spokes and of samples."""

Run = Callable[[], object]


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(N_THREADS)
    yield
    torch.set_num_threads(threads)


def spokes(n_spokes: int, n_samples: int) -> Tensor:
    angle = torch.arange(n_spokes, dtype=torch.float64)[:, None] * (math.pi / n_spokes)
    radius = (torch.arange(n_samples, dtype=torch.float64) - n_samples // 2) / n_samples
    return torch.stack([angle.sin() * radius, angle.cos() * radius], dim=-1).reshape(1, -1, 2)


def least_cpu_seconds(runs: dict[str, Run], repeats: int) -> dict[str, float]:
    """Least CPU time of each, of several repeats that take turns, after one to warm up."""
    least = dict.fromkeys(runs, math.inf)
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            started = time.process_time()
            run()
            if repeat:
                least[name] = min(least[name], time.process_time() - started)
    return least


def gradient(operator: Any, directions: Tensor, image: Tensor, backprojection: Tensor) -> Run:
    """Sum of conj(e) (A^H A (e x) - b) over the coils."""

    def run() -> Tensor:
        pulled = operator.normal(directions * image).sub_(backprojection)
        return torch.linalg.vecdot(directions, pulled, dim=1)

    return run


def own_pair(points: Tensor, coil_images: Tensor) -> Run:
    """Run finufft's plan alone, forward and adjoint, into arrays that are already there."""
    finufft = pytest.importorskip("finufft")
    images = coil_images[0].numpy()
    plan = finufft.Plan(2, (N, N), N_COILS, DEFAULT_EPS, isign=-1, dtype="complex64", nthreads=N_THREADS)
    plan.setpts(*np.ascontiguousarray(2 * np.pi * points[0].numpy().T, np.float32))
    samples, back = np.empty((N_COILS, points.shape[1]), np.complex64), np.empty_like(images)

    def run() -> None:
        plan.execute(images, out=samples)
        plan.execute_adjoint(samples, out=back)

    return run


def torchkbnufft_pair(points: Tensor, coil_images: Tensor) -> Run | None:
    try:
        import torchkbnufft
    except ImportError:
        return None
    forward = torchkbnufft.KbNufft(im_size=(N, N), dtype=torch.complex64)
    adjoint = torchkbnufft.KbNufftAdjoint(im_size=(N, N), dtype=torch.complex64)
    angles = (2 * math.pi * points[0].T).float()
    return lambda: adjoint(forward(coil_images, angles), angles)


def sigpy_pair(points: Tensor, coil_images: Tensor) -> Run | None:
    try:
        import sigpy
    except ImportError:
        return None
    images, coordinates = coil_images[0].numpy(), (points[0] * N).numpy()
    return lambda: sigpy.nufft_adjoint(sigpy.nufft(images, coordinates), coordinates, images.shape)


# torchkbnufft compiles its kernels in a way that torch is about to drop
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("n_samples", [320, 640])
@pytest.mark.parametrize("n_spokes", [45, 200])
def test_a_data_term_gradient(benchmark: Any, n_spokes: int, n_samples: int) -> None:
    generator = torch.Generator().manual_seed(1)
    directions, backprojection = (
        torch.randn(1, N_COILS, N, N, dtype=torch.complex64, generator=generator) for _ in range(2)
    )
    image = torch.randn(1, 1, N, N, dtype=torch.complex64, generator=generator)
    points = spokes(n_spokes, n_samples)
    fourier = NonuniformFourier.plan(points, (N, N))
    given = (directions, image, backprojection)
    runs = {
        "finufft's own pair": own_pair(points, directions * image),
        "gradient by the pair": gradient(fourier, *given),
        "gradient by the convolution": gradient(ToeplitzNormal.of(fourier), *given),
    }
    others = {
        "torchkbnufft's pair": torchkbnufft_pair(points, directions * image),
        "sigpy's pair": sigpy_pair(points, directions * image),
    }

    def measure() -> dict[str, float]:
        slow = {name: run for name, run in others.items() if run is not None}
        return least_cpu_seconds(runs, N_REPEATS) | least_cpu_seconds(slow, 2)

    least = benchmark.pedantic(measure, rounds=1, iterations=1)
    convolved = normal_operator(fourier) is not fourier
    chosen = "gradient by the convolution" if convolved else "gradient by the pair"
    ratio = least[chosen] / least["finufft's own pair"]
    benchmark.extra_info |= {
        "threads": N_THREADS,
        "torch": torch.__version__,
        "chosen": chosen,
        "chosen over finufft's own pair": round(ratio, 2),
        **{f"{name}, CPU ms": round(1000 * seconds, 1) for name, seconds in least.items()},
    }
    assert ratio <= LIMITS.get((n_spokes, n_samples), math.inf)
