"""How fast readouts go through the codec on one core (``pytest tests/benchmarks --benchmark-only``)."""

import platform
from typing import Any

import numpy as np
import pytest

from gadget.wire.codec import MrdDecoder, encode, encode_parts
from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.messages import Acquisition

STREAM_BYTES = 64 * 1024 * 1024
READ_BYTES = 256 * 1024


def _readout(n_channels: int, n_samples: int) -> Acquisition:
    header = np.zeros((), ACQUISITION_HEADER)
    header["number_of_samples"] = n_samples
    header["active_channels"] = n_channels
    data = np.ones((n_channels, n_samples), np.complex64)
    return Acquisition(header[()], np.zeros((n_samples, 0), np.float32), data)


@pytest.mark.parametrize(
    ("n_channels", "n_samples"), [(16, 512), (4, 128), (32, 1)], ids=["64 KiB", "4 KiB", "256 B"]
)
def test_decoding_readouts(benchmark: Any, n_channels: int, n_samples: int) -> None:
    message = encode(_readout(n_channels, n_samples))
    n_readouts = STREAM_BYTES // 8 // len(message) if n_samples < 128 else STREAM_BYTES // len(message)
    stream = message * n_readouts
    chunks = [stream[start : start + READ_BYTES] for start in range(0, len(stream), READ_BYTES)]

    def once() -> int:
        decoder = MrdDecoder()
        n_messages = 0
        for chunk in chunks:
            decoder.feed(chunk)
            for _ in decoder.messages():
                n_messages += 1
        return n_messages

    assert benchmark(once) == n_readouts
    _note(benchmark, len(stream), n_readouts)


def test_encoding_readouts(benchmark: Any) -> None:
    readout = _readout(16, 512)
    n_bytes = len(encode(readout))

    def once() -> int:
        return sum(len(part) for _ in range(1000) for part in encode_parts(readout))

    assert benchmark(once) == 1000 * n_bytes
    _note(benchmark, 1000 * n_bytes, 1000)


def _note(benchmark: Any, n_bytes: int, n_messages: int) -> None:
    seconds = benchmark.stats.stats.min
    benchmark.extra_info |= {
        "MB_per_s": round(n_bytes / seconds / 1e6),
        "us_per_message": round(seconds / n_messages * 1e6, 2),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
