"""What a readout's header says of where it belongs, read from the record in one go.

To ask a numpy record for one field costs as much as all of this together, and a readout needs them all.
"""

import struct
from typing import NamedTuple

from gadget.scan.readout_kinds import possible_dwell
from gadget.wire.headers import ACQUISITION_HEADER, ENCODING_COUNTERS
from gadget.wire.messages import Header


class ReadoutLabels(NamedTuple):
    """Fields of an acquisition header, under their names there; those of ``idx`` beside the others."""

    flags: int
    scan_counter: int
    number_of_samples: int
    channel_mask: bytes
    discard_pre: int
    discard_post: int
    center_sample: int
    encoding_space_ref: int
    sample_time_us: float
    kspace_encode_step_1: int
    kspace_encode_step_2: int
    average: int
    slice: int
    contrast: int
    phase: int
    repetition: int
    set: int

    @property
    def dwell_us(self) -> float:
        """The dwell time in microseconds; 0 where it is not known, or cannot be."""
        return possible_dwell(self.sample_time_us)


_CODES = {"<u2": "H", "<u4": "I", "<u8": "Q", "<f4": "f"}


def _layout() -> struct.Struct:
    """Return the places of the labels in a record; what lies between them is skipped."""
    codes, at = "<", 0
    start_of_counters = ACQUISITION_HEADER.fields["idx"][1]  # type: ignore[index]  # it has fields
    for name in ReadoutLabels._fields:
        record, start = (
            (ACQUISITION_HEADER, 0)
            if name in (ACQUISITION_HEADER.names or ())
            else (ENCODING_COUNTERS, start_of_counters)
        )
        dtype, offset, *_ = record.fields[name]  # type: ignore[index]  # it has fields
        code = f"{dtype.itemsize}s" if dtype.shape else _CODES[dtype.str]
        codes += f"{start + offset - at}x{code}"
        at = start + offset + dtype.itemsize
    return struct.Struct(f"{codes}{ACQUISITION_HEADER.itemsize - at}x")


_LAYOUT = _layout()


def labels_of(header: Header) -> ReadoutLabels:
    """Read the labels of an ACQUISITION_HEADER record."""
    return ReadoutLabels._make(_LAYOUT.unpack(header.tobytes()))
