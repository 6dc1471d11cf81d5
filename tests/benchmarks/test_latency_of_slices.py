"""How long after its last line a slice's image is there, against the reconstruction alone.

The lines of the next slice come while a slice is reconstructed, as a scanner sends them; its last line comes
when the image of the slice before is there, so that nothing waits for the device. In turn with that, the same
slices are reconstructed in a process that does nothing else: a machine that is shared is then about as fast
for the one as for the other. What counts are medians (p50) and p95 over the slices.

Where uncertainty is sampled, a slice comes while the ones before it are being sampled. Another process would
compete with that, so the reconstruction alone is what the images say of it, ``EBM_Seconds``.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from alone_reconstruction import process, seconds_of
from serve_process import ServeProcess
from served_scans import Client, encoded, head, slice_readouts

from gadget.image_meta import read_meta

N_SLICES, N_ITERATIONS = 10, 10
MOST = 1.15
"""Latency, relative to the reconstruction alone."""
NO_POSTERIOR = "--no-posterior"


class Pace:
    """The bytes of a scan; the last line of a slice waits until :meth:`let` is called."""

    def __init__(self, n_slices: int) -> None:
        self.last_line_at: list[float] = []
        self._may_go = threading.Semaphore(0)
        self._pieces = []
        for number in range(n_slices):
            *lines, last = slice_readouts(number)
            before = [] if number else head(n_slices)
            self._pieces.append((encoded([*before, *lines]), encoded([last])))

    def let(self) -> None:
        self._may_go.release()

    def __iter__(self) -> Iterator[bytes]:
        for lines, last in self._pieces:
            yield lines
            self._may_go.acquire()
            self.last_line_at.append(time.monotonic())
            yield last


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("prior", ["tv", "brain-local"])
@pytest.mark.parametrize("posterior", [NO_POSTERIOR, "--posterior=5s"])
def test_latency(benchmark: Any, prior: str, posterior: str) -> None:
    settings = (
        *(("prior", prior), ("device", "cpu"), ("threads", 1)),
        ("solver.iterations", N_ITERATIONS),
    )
    options = [option for key, value in settings for option in ("--set", f"{key}={value}")]
    latency, seconds_alone, seconds_said = [], [], []

    def once() -> None:
        server = ServeProcess(*options, posterior)
        try:
            assert server.is_ready()
            pace = Pace(N_SLICES)
            client = Client(server.address, pace)
            pace.let()
            for at, image in client.images():
                if int(image.header["image_series_index"]) != 1:
                    continue
                number = int(image.header["slice"])
                latency.append(at - pace.last_line_at[number])
                seconds_said.append(float(read_meta(image)["EBM_Seconds"]))
                if alone is not None:
                    seconds_alone.append(alone.submit(seconds_of, number, N_SLICES, settings).result())
                pace.let()
            client.close()
            assert not client.texts or posterior != NO_POSTERIOR
        finally:
            server.close()

    with process() if posterior == NO_POSTERIOR else nullcontext() as alone:
        if alone is not None:
            alone.submit(seconds_of, 0, N_SLICES, settings).result()  # warms it up
        benchmark.pedantic(once, rounds=1, iterations=1)
    # The first slice of a server warms that up.
    figures = {
        name: [round(float(np.percentile(values[1:], p)), 3) for p in (50, 95)]
        for name, values in (
            ("latency", latency),
            ("alone", seconds_alone or seconds_said),
            ("said", seconds_said),
        )
    }
    ratios = [a / b for a, b in zip(figures["latency"], figures["alone"], strict=True)]
    benchmark.extra_info |= {
        "latency_s (p50, p95)": figures["latency"],
        "alone_s (p50, p95)": figures["alone"],
        "EBM_Seconds (p50, p95)": figures["said"],
        "ratio (p50, p95)": [round(ratio, 3) for ratio in ratios],
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
    }
    assert len(latency) == N_SLICES
    assert max(ratios) < MOST
