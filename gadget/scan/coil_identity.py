"""Which coil is which: the scanner's channel, and the name, of each row of a readout.

The rules, from what the ISMRMRD standard says and what files hold:

* **Channel.** Where ``channel_mask`` of the readout's header has as many bits set as the readout has coils,
  row k is the channel of the k-th set bit (channel c is bit ``c % 64`` of word ``c // 64``). Many converters
  leave the mask at zero: then row k is channel k, of a readout that holds all channels that are named.
* **Name.** The k-th ``coilLabel`` of the header names channel k. Their ``coilNumber`` counts only where the
  numbers are 0 to N - 1, each once: converters of Siemens data write numbers of the receiver there, while the
  names stand in the order of the channels (Gadgetron, too, goes by that order). Names that are empty or stand
  twice name nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gadget.wire.messages import Header

LONGEST_NAME = 64
"""Characters of a name that count."""


@dataclass(frozen=True, slots=True)
class CoilIdentity:
    """The coils of a readout, in the order of its rows."""

    n_coils: int
    channels: tuple[int, ...] | None = None
    """The scanner's channel of each row; None where it is not known."""
    names: tuple[str, ...] = ()
    """The name of each row; empty where any of them is not known."""

    def say(self, rows: list[int]) -> str:
        """Name some rows for a log line: by their names, else by their numbers."""
        if self.names:
            return "coil(s) " + ", ".join(f"{self.names[row]} ({row})" for row in rows)
        return "coil(s) " + ", ".join(str(row) for row in rows) + " (counted from 0)"


def identify(header: Header, n_coils: int, labels: Mapping[int, str]) -> CoilIdentity:
    """Return the coils of a readout by the rules above.

    Parameters
    ----------
    header
        The readout's own.
    n_coils
        Rows that it has.
    labels
        Name by ``coilNumber``, in the order of the scan's header.
    """
    numbers = range(len(labels)) if sorted(labels) == list(range(len(labels))) else tuple(labels)
    in_order = tuple(_one_line(labels[number]) for number in numbers)
    channels = _channels_of_mask(header)
    if len(channels) != n_coils:
        is_all = not labels or len(labels) == n_coils
        return CoilIdentity(
            n_coils,
            tuple(range(n_coils)) if labels and is_all else None,
            _told_apart(in_order) if len(in_order) == n_coils else (),
        )
    if channels[-1] < len(in_order):
        names = _told_apart(tuple(in_order[channel] for channel in channels))
    else:
        names = _told_apart(in_order) if len(in_order) == n_coils else ()
    return CoilIdentity(n_coils, channels, names)


def match(noise: CoilIdentity, data: CoilIdentity, *, is_same_scan: bool) -> tuple[int, ...] | str:
    """Find the noise of each coil of the data.

    By name; within one scan else by channel; else, where both have the same number of coils, in their order.

    Returns
    -------
    tuple of int or str
        The row of the noise for each row of the data, or why there is none.
    """
    if noise.names and data.names:
        missing = [row for row, name in enumerate(data.names) if name not in noise.names]
        if missing:
            return f"it has no {data.say(missing)}"
        return tuple(noise.names.index(name) for name in data.names)
    if is_same_scan and noise.channels is not None and data.channels is not None:
        absent = [channel for channel in data.channels if channel not in noise.channels]
        if absent:
            return f"it has no channel(s) {', '.join(map(str, absent))} of the scanner"
        return tuple(noise.channels.index(channel) for channel in data.channels)
    if noise.n_coils == data.n_coils:
        return tuple(range(data.n_coils))
    return (
        f"it has {noise.n_coils} coils and the imaging readouts have {data.n_coils}, and nothing says which "
        "of them are the same (coilLabel of the headers, channel_mask of the readouts)"
    )


def _channels_of_mask(header: Header) -> tuple[int, ...]:
    words = np.ascontiguousarray(header["channel_mask"], "<u8")
    if not words.any():
        return ()
    return tuple(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


def _one_line(name: str) -> str:
    return " ".join(name.split())[:LONGEST_NAME]


def _told_apart(names: tuple[str, ...]) -> tuple[str, ...]:
    return names if all(names) and len(set(names)) == len(names) else ()
