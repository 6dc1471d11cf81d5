"""Buffers as Gadgetron's BucketToBufferGadget makes them of readouts."""

from collections.abc import Sequence

import numpy as np

from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.messages import Acquisition, ReconDataArray

EMPTY = ReconDataArray(
    np.zeros((0,) * 7, np.complex64), None, None, np.zeros((0,) * 5, ACQUISITION_HEADER), bytes(56)
)


def accumulated(
    readouts: Sequence[Acquisition], shape: tuple[int, int, int, int, int] = (45, 1, 1, 1, 1)
) -> ReconDataArray:
    """Lay readouts into a buffer by their counters; ``shape`` (E1, E2, N, S, LOC), N repetitions, S sets."""
    n_coils, n_samples = readouts[0].data.shape
    data = np.zeros((n_samples, *shape[:2], n_coils, *shape[2:]), np.complex64, order="F")
    headers = np.zeros(shape, ACQUISITION_HEADER, order="F")
    headers["version"] = 1  # as the constructor of Gadgetron's headers has it
    names = ("kspace_encode_step_1", "kspace_encode_step_2", "repetition", "set", "slice")
    for readout in readouts:
        e1, e2, n, s, loc = (int(readout.header["idx"][name]) for name in names)
        data[:, e1, e2, :, n, s, loc] = readout.data.T
        headers[e1, e2, n, s, loc] = readout.header
    return ReconDataArray(data, None, None, headers, bytes(56))
