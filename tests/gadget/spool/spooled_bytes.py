"""Bytes of small scans, put together with struct, and what feeds them to a spool."""

import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gadget.answering import Ending
from gadget.spool.spool import Spool
from gadget.spool.spooled_scan import SpooledScan
from gadget.wire.codec import MrdDecoder
from gadget.wire.messages import Message

PATIENT = "Doe^Jane"
XML = (
    "<ismrmrdHeader><subjectInformation><patientName>"
    + PATIENT
    + "</patientName></subjectInformation></ismrmrdHeader>"
).encode()
CLOSE = b"\x04\x00"
CONFIG = struct.pack("<H1024s", 1, b"default")
GADGETRON_CONFIG = struct.pack("<HI", 2, 16) + b"<configuration/>"
HEADER = struct.pack("<HI", 3, len(XML)) + XML
PARAMETERS = struct.pack("<HI", 5, 2) + b"{}"
QUERY = struct.pack("<HQQQ", 6, 0, 7, 3) + b"why"


def readout(line: int, n_samples: int = 4, n_channels: int = 2, n_dimensions: int = 0) -> bytes:
    """A readout whose numbers tell which one it is."""
    header = bytearray(340)
    struct.pack_into("<HQII", header, 0, 1, 0, 0, line)
    struct.pack_into("<HHH", header, 34, n_samples, n_channels, n_channels)
    struct.pack_into("<H", header, 176, n_dimensions)
    trajectory = np.full(n_samples * n_dimensions, line, "<f4").tobytes()
    return (
        struct.pack("<H", 1008) + header + trajectory + np.full(n_samples * n_channels, line, "<c8").tobytes()
    )


def waveform(value: int) -> bytes:
    header = struct.pack("<HxxxxxxQIIIHHfH", 1, 0, 0, 0, value, 3, 2, 1.0, 0).ljust(40, b"\0")
    return struct.pack("<H", 1026) + header + np.full(6, value, "<u4").tobytes()


def image(kind: str | None = None) -> bytes:
    """An image of 1 x 1 pixel, uint16; of ours where it is of a kind."""
    meta = (
        f"<ismrmrdMeta><meta><name>EBM_Image</name><value>{kind}</value></meta></ismrmrdMeta>" if kind else ""
    )
    header = struct.pack("<HHQI3H", 1, 1, 0, 0, 1, 1, 1).ljust(34, b"\0") + struct.pack("<H", 1)
    header = header.ljust(194, b"\0") + struct.pack("<I", len(meta))
    return struct.pack("<H", 1022) + header + struct.pack("<Q", len(meta)) + meta.encode() + bytes(2)


SCAN = [CONFIG, HEADER, PARAMETERS, readout(1), waveform(5), readout(2, 3, n_dimensions=2), readout(3), CLOSE]
"""The messages of a scan, one by one."""


def messages_of(pieces: Iterable[bytes]) -> Iterator[Message]:
    decoder = MrdDecoder()
    for piece in pieces:
        decoder.feed(piece)
    return decoder.messages()


def an_ending(failure: Exception | None = None, *, had_scan: bool = True) -> Ending:
    return Ending(n_received=1, n_sent=1, had_scan=had_scan, failure=failure, abandoned=False, seconds=1.25)


def keep(
    spool: Spool, pieces: Iterable[bytes] = SCAN, *, ending: Ending | None = None, settle: bool = True
) -> SpooledScan:
    """Let a conversation happen, and wait until its scan is in its final form."""
    scan = spool.watch("127.0.0.1:1")
    for message in messages_of(pieces):
        scan.received(message, time.monotonic())
    scan.ended(an_ending() if ending is None else ending)
    if settle:
        assert spool.wait_until_idle(20)
    return scan


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
