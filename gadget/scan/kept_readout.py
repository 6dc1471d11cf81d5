"""Readouts that are kept for longer than it takes to place them."""

from dataclasses import replace

from gadget.wire.binary import record_of
from gadget.wire.messages import Acquisition, Header


def kept_copy(acquisition: Acquisition) -> Acquisition:
    """Return a readout of its own: what came is a view of a larger piece of the stream."""
    return replace(
        acquisition,
        header=kept_header(acquisition.header),
        trajectory=acquisition.trajectory.copy(),
        data=acquisition.data.copy(),
    )


def kept_header(header: Header) -> Header:
    """Return a header of its own, likewise; a record's own ``copy`` goes through its fields one by one."""
    return record_of(header.tobytes(), header.dtype)
