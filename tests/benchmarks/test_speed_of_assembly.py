"""How fast readouts become k-space (``pytest tests/benchmarks --benchmark-only``).

The goal is 400 MB/s of readouts of 16 coils and 512 samples on two cores: assembling is one thread of the
program, so it may take a core of its own. What counts is the time of this thread on its processor
(``cpu_MB_per_s``): on a machine that is shared, the time on the wall says what the others did.
"""

import os
import platform
import time
from typing import Any

import numpy as np
import pytest
from synthetic_scan import Protocol, noise_readout, readout

from gadget.scan.assemble import AssemblySettings, NoiseSource, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.wire.headers import AcquisitionFlag as Flag

N_COILS, N_SAMPLES, N_LINES, N_SLICES = 16, 512, 256, 4


def _protocol() -> Protocol:
    return Protocol(
        encoded=(N_SAMPLES, N_LINES, 1),
        encoded_fov=(512.0, 256.0, 5.0),
        recon=(N_SAMPLES // 2, N_LINES, 1),
        recon_fov=(256.0, 256.0, 5.0),
        limits={"kspace_encoding_step_1": (0, N_LINES - 1, N_LINES // 2)},
    )


@pytest.mark.parametrize("noise", [NoiseSource.READOUTS, NoiseSource.DATA], ids=["whitened", "not whitened"])
def test_assembling_oversampled_slices(benchmark: Any, noise: NoiseSource) -> None:
    """Four slices: noise covariance, oversampling removed, coils whitened."""
    rng = np.random.default_rng(3)
    shape = (N_COILS, N_SAMPLES)
    data = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
    last = [Flag.LAST_IN_SLICE]
    readouts = [
        readout(data, line, *(last if line == N_LINES - 1 else []), slice=number)
        for number in range(N_SLICES)
        for line in range(N_LINES)
    ]
    noise_scan = noise_readout(n_coils=N_COILS, n_samples=2000)
    description = parse_scan_header(_protocol().xml())
    n_bytes = N_SLICES * N_LINES * data.nbytes
    cpu_seconds = []

    def once() -> int:
        assembler = SliceAssembler(description, AssemblySettings(noise=noise))
        assembler.add(noise_scan)
        started = time.thread_time()
        n_slices = sum(len(assembler.add(one)) for one in readouts)
        cpu_seconds.append(time.thread_time() - started)
        return n_slices

    once()
    assert benchmark(once) == N_SLICES
    benchmark.extra_info |= {
        "MB_per_s": round(n_bytes / benchmark.stats.stats.min / 1e6),
        "cpu_MB_per_s": round(n_bytes / min(cpu_seconds) / 1e6),
        "us_per_readout": round(min(cpu_seconds) / (N_SLICES * N_LINES) * 1e6),
        "load": os.getloadavg()[0],
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
