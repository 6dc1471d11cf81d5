"""Readouts that follow one another and are of one size, read at once.

Taking a small readout apart costs more than copying it. Those of a scan are nearly always alike, so headers,
trajectories and samples lie in the stream at equal distances, and each of the three is one copy for all.
"""

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.limits import Limits
from gadget.wire.message_ids import MessageId
from gadget.wire.messages import Acquisition

SMALL_BYTES = 32 * 1024
"""Of one message; to take larger ones together was measured to gain next to nothing, or less."""
MOST_BYTES = 256 * 1024
"""A run ends here: any of its readouts keeps the memory of all."""

_ID_BYTES = 2
_HEAD_BYTES = _ID_BYTES + ACQUISITION_HEADER.itemsize
_SAMPLES, _CHANNELS, _DIMENSIONS = (
    ACQUISITION_HEADER.fields[name][1]  # type: ignore[index]
    for name in ("number_of_samples", "active_channels", "trajectory_dimensions")
)
_ID_AND_SIZES = struct.Struct(
    f"<H{_SAMPLES}xH{_CHANNELS - _SAMPLES - 2}xH{_DIMENSIONS - _CHANNELS - 2}xH"
)  # all that tells where a readout's message ends


def read_run(raw: bytes, start: int, limits: Limits) -> tuple[int, int, Iterator[Acquisition]] | None:
    """Read the readouts from ``start`` on, where two or more lie there that are small, whole and of one size.

    Returns
    -------
    n_readouts, n_bytes, readouts
        How many, the bytes of each message, and the readouts, in copies of their own. None where there are
        none to be read at once, or such as are not acceptable: they go one by one.
    """
    if len(raw) - start < _ID_AND_SIZES.size:
        return None
    first = _ID_AND_SIZES.unpack_from(raw, start)
    message_id, n_samples, n_channels, n_dimensions = first
    n_trajectory_bytes, n_data_bytes = 4 * n_samples * n_dimensions, 8 * n_samples * n_channels
    n_bytes = _HEAD_BYTES + n_trajectory_bytes + n_data_bytes
    is_acceptable = n_channels > 0 and n_trajectory_bytes + n_data_bytes <= limits.readout_bytes
    is_small = n_bytes <= min(SMALL_BYTES, limits.message_bytes)
    if message_id != MessageId.ACQUISITION or not (is_acceptable and is_small):
        return None
    end = start + n_bytes * (min(MOST_BYTES, len(raw) - start) // n_bytes)
    at = start + n_bytes
    while at < end and _ID_AND_SIZES.unpack_from(raw, at) == first:
        at += n_bytes
    n_readouts = (at - start) // n_bytes
    if n_readouts < 2:
        return None

    def parts(offset: int, n_part_bytes: int) -> NDArray[np.uint8]:
        """Copy what lies at an offset in each message: (readout, byte)."""
        strided = np.ndarray((n_readouts, n_part_bytes), np.uint8, raw, start + offset, (n_bytes, 1))
        copy = strided.copy()
        copy.flags.writeable = False
        return copy

    headers = parts(_ID_BYTES, ACQUISITION_HEADER.itemsize).view(ACQUISITION_HEADER)[:, 0]
    trajectories = parts(_HEAD_BYTES, n_trajectory_bytes).view("<f4")
    data = parts(_HEAD_BYTES + n_trajectory_bytes, n_data_bytes).view("<c8")
    readouts = map(
        Acquisition,
        headers,
        trajectories.reshape(n_readouts, n_samples, n_dimensions),
        data.reshape(n_readouts, n_channels, n_samples),
    )
    return n_readouts, n_bytes, readouts
