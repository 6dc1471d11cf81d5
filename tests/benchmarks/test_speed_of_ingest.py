"""How fast the bytes of small readouts become k-space (``pytest tests/benchmarks --benchmark-only``).

The whole way in one thread, but for sockets: a stream in pieces as a socket gives them, decoded, checked,
placed, and whitened slice by slice. ``placing_us`` is that without what is done once per slice. What counts
is the processor's time of this thread: on a machine that is shared, that on the wall says what others did.
"""

import os
import platform
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from synthetic_scan import Protocol, noise_readout, readout

from gadget.scan.assemble import SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

READ_BYTES = 256 * 1024
N_SLICES = 8


@pytest.mark.parametrize(
    ("n_coils", "n_samples", "n_lines"), [(8, 256, 256), (4, 128, 128), (32, 1, 64)], ids=str
)
@pytest.mark.parametrize("order", ["one after another", "interleaved"])
def test_bytes_of_small_readouts_become_slices(
    benchmark: Any, n_coils: int, n_samples: int, n_lines: int, order: str
) -> None:
    protocol = Protocol(
        encoded=(n_samples, n_lines, 1),
        encoded_fov=(256.0, 256.0, 5.0),
        recon=(n_samples, n_lines, 1),
        recon_fov=(256.0, 256.0, 5.0),
        limits={"kspace_encoding_step_1": (0, n_lines - 1, n_lines // 2)},
    )
    description = parse_scan_header(protocol.xml())
    rng = np.random.default_rng(3)
    shape = (n_coils, n_samples)
    data = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
    places = [(number, line) for number in range(N_SLICES) for line in range(n_lines)]
    if order == "interleaved":
        places.sort(key=lambda place: place[1])
    readouts = [noise_readout(n_coils=n_coils, n_samples=500)]
    for number, line in places:
        last = [Flag.LAST_IN_SLICE] if line == n_lines - 1 else []
        readouts.append(readout(data, line, *last, slice=number))
    stream = b"".join(map(encode, readouts))
    chunks = [stream[start : start + READ_BYTES] for start in range(0, len(stream), READ_BYTES)]
    seconds: dict[str, list[float]] = {"decoding": [], "placing": [], "all": []}

    def received() -> Iterator[Acquisition]:
        decoder = MrdDecoder()
        for chunk in chunks:
            decoder.feed(chunk)
            for message in decoder.messages():
                if isinstance(message, Acquisition):
                    yield message

    def once() -> int:
        started = time.thread_time()
        for _ in received():
            pass
        seconds["decoding"].append(time.thread_time() - started)
        assembler, n_slices, per_slice = SliceAssembler(description), 0, 0.0
        started = time.thread_time()
        for message in received():
            before = time.thread_time() if message.header["flags"] else 0.0
            n_slices += len(assembler.add(message))
            per_slice += time.thread_time() - before if before else 0.0
        seconds["all"].append(time.thread_time() - started)
        seconds["placing"].append(seconds["all"][-1] - per_slice)
        return n_slices

    once()
    assert benchmark(once) == N_SLICES
    benchmark.extra_info |= {
        **{f"{stage}_us": round(min(times) / len(readouts) * 1e6, 1) for stage, times in seconds.items()},
        "KiB_per_readout": round(len(encode(readouts[1])) / 1024, 1),
        "MB_per_s": round(len(stream) / min(seconds["all"]) / 1e6),
        "load": os.getloadavg()[0],
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
