"""From Gadgetron's accumulated buffers (IsmrmrdReconData) back to the readouts that they were made from.

Gadgetron's BucketToBufferGadget lays readouts into an array (RO, E1, E2, CHA, N, S, LOC) and keeps the header
of each. The headers stay the truth about where a line belongs; its place in the array says nothing that they
do not. So the readouts are taken out again, in the order in which they were acquired, and assembled like any
others: the rules of :mod:`gadget.scan.placement` hold for both.

* **Measured or not**: a place whose header has no samples (``number_of_samples`` 0) was never filled.
* **Samples**: where the array holds as many as the header says, they are as they were acquired. Where it
  holds what the header leaves after ``discard_pre`` and ``discard_post``, these were cut off. Any other
  number means that a gadget between changed the readout (oversampling removed, an asymmetric echo filled up)
  and left its header: then the zero frequency is at the middle, RO // 2, as Gadgetron's transforms have it.
* **Reference**: lines of an embedded calibration that are also image data stand in both buffers and are used
  once, as data. All other lines of the reference buffer are calibration only, whatever their flags say:
  averaged or filtered there, they are no image data. They come first, since the last line of the data
  completes a slice.
* **Trajectories** (dimension, RO, E1, E2, N, S, LOC) go with their readouts, as they were acquired.
* The **sampling description** repeats what the scan's header says: not used, nor is a separate array of
  density weights, which are found anew.

What gadgets before did to the samples stays done: where NoiseAdjustGadget whitened them, set ``noise.source``
to ``prewhitened``.
"""

from collections.abc import Iterator

import numpy as np

from gadget.errors import ScanError
from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Header, ReconBit, ReconData, ReconDataArray

_CALIBRATION_BITS = Flag.IS_PARALLEL_CALIBRATION.bit | Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING.bit


def readouts_of(message: ReconData) -> Iterator[Acquisition]:
    """Yield the readouts of all bits.

    Raises
    ------
    ScanError
        Data and headers of a buffer do not fit together.
    """
    for number, bit in enumerate(message.bits):
        yield from _readouts_of_bit(bit, f"Bit {number} of the recon data")


def _readouts_of_bit(bit: ReconBit, name: str) -> Iterator[Acquisition]:
    data = _measured(bit.data, f"{name}: its data")
    if bit.reference is not None:
        known = {_identity(bit.data.headers[place]) for place in data}
        reference = _measured(bit.reference, f"{name}: its reference")
        for place in reference:
            if _identity(bit.reference.headers[place]) not in known:
                yield _readout(bit.reference, place, is_calibration=True)
    for place in data:
        yield _readout(bit.data, place, is_calibration=False)


def _measured(buffer: ReconDataArray, name: str) -> list[tuple[int, ...]]:
    """Return the places (E1, E2, N, S, LOC) that were filled, in the order of acquisition."""
    if buffer.data.size == 0 and buffer.headers.size == 0:
        return []
    expected = (*buffer.data.shape[1:3], *buffer.data.shape[4:7])
    if buffer.data.ndim != 7 or buffer.headers.shape != expected:
        raise ScanError(
            f"{name} has the shape {buffer.data.shape} (RO, E1, E2, CHA, N, S, LOC), its headers "
            f"{buffer.headers.shape}; they need {expected} (E1, E2, N, S, LOC). Check the gadget before "
            "this one."
        )
    points = buffer.trajectory
    if points is not None and points.size and points.shape[2:] != expected:
        raise ScanError(
            f"{name} has a trajectory of the shape {points.shape} (dimension, RO, E1, E2, N, S, LOC), its "
            f"headers {buffer.headers.shape}; the last five have to agree. Check the gadget before this one."
        )
    places = np.argwhere(buffer.headers["number_of_samples"] > 0)
    counters = buffer.headers["scan_counter"][tuple(places.T)]
    return [tuple(int(i) for i in place) for place in places[np.argsort(counters, kind="stable")]]


def _identity(header: Header) -> tuple[int, bytes]:
    """Tell readouts apart; flags, discards and centre may have been changed in one of the buffers."""
    return int(header["scan_counter"]), header["idx"].tobytes()


def _readout(buffer: ReconDataArray, place: tuple[int, ...], *, is_calibration: bool) -> Acquisition:
    e1, e2, n, s, loc = place
    samples = buffer.data[:, e1, e2, :, n, s, loc].T
    header = np.array(buffer.headers[place], ACQUISITION_HEADER)
    n_coils, n_samples = samples.shape
    n_cut = int(header["discard_pre"]) + int(header["discard_post"])
    if n_samples == int(header["number_of_samples"]) - n_cut != 0 and n_cut:
        header["center_sample"] = max(0, int(header["center_sample"]) - int(header["discard_pre"]))
        header["discard_pre"] = header["discard_post"] = 0
    elif n_samples != int(header["number_of_samples"]):
        header["center_sample"] = n_samples // 2
        header["discard_pre"] = header["discard_post"] = 0
    header["number_of_samples"], header["active_channels"] = n_samples, n_coils
    trajectory = np.zeros((n_samples, 0), np.float32)
    if buffer.trajectory is not None and buffer.trajectory.size:
        trajectory = buffer.trajectory[:, :, e1, e2, n, s, loc].T
    header["trajectory_dimensions"] = trajectory.shape[1]
    if is_calibration:
        header["flags"] = int(header["flags"]) & ~_CALIBRATION_BITS | Flag.IS_PARALLEL_CALIBRATION.bit
    return Acquisition(header=header[()], trajectory=trajectory, data=samples)
