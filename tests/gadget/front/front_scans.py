"""Bytes of scans that tell the scripted worker what to do, and what peers get back."""

import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import scripted_peer as script
from running_server import RunningServer
from scripted_peer import CLOSE_BYTES, IMAGE, SCAN_HEADER, TEXT, WAVEFORM, readout

from gadget.answering import Peer
from gadget.front.supervisor import Supervisor
from gadget.settings import Settings
from gadget.wire.messages import Message

COMMAND = (sys.executable, str(Path(__file__).parents[1] / "scripted_worker.py"))


READOUTS = [readout(counter=k) for k in range(5)]


SERVED = [(k, "seed 17") for k in range(1, 6)]


def config(name: str) -> bytes:
    return struct.pack("<H1024s", script.CONFIG_NAME, name.encode())


def scan(name: str, *data: bytes) -> bytes:
    return b"".join([config(name), SCAN_HEADER, *(data or READOUTS), CLOSE_BYTES])


def waveform(counter: int = 0) -> bytes:
    header = bytearray(40)
    struct.pack_into("<H", header, 0, 1)
    struct.pack_into("<HH", header, 28, 2, 1)
    struct.pack_into("<I", header, 12, counter)
    return struct.pack("<H", WAVEFORM) + header + bytes(8)


def images(answers: list[tuple[int, bytes]]) -> list[tuple[int, str]]:
    """Return number and comment of each image, from the bytes."""
    found = []
    for message_id, body in answers:
        if message_id == IMAGE:
            (number,) = struct.unpack_from("<H", body, 126)
            meta = body[206:].decode(errors="replace")
            found.append((number, meta.partition("ImageComments</name><value>")[2].partition("<")[0]))
    return found


def texts(answers: list[tuple[int, bytes]]) -> list[str]:
    return [body.decode() for message_id, body in answers if message_id == TEXT]


@contextlib.contextmanager
def supervising(**times: float) -> Iterator[Supervisor]:
    supervisor = Supervisor(command=COMMAND, **times)
    supervisor.start()
    try:
        supervisor.load(Settings())
        yield supervisor
    finally:
        supervisor.stop()
    assert supervisor.pid is None


def is_asked(supervisor: Supervisor) -> bool:
    """Whether somebody waits for an answer of the worker."""
    return bool(supervisor._worker.answers)


class Record:
    """Keeps what comes, in memory, as bytes would be kept on a disk."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def received(self, message: Message, _at: float) -> None:
        self.messages.append(message)

    def sent(self, _message: Message, _at: float) -> None:
        pass

    def ended(self, ending: object) -> None:
        self.ending = ending


def recorded(peer: Peer) -> Iterator[Message]:
    (record,) = peer.watches
    assert isinstance(record, Record)
    return iter(record.messages)


def answers_of(running: RunningServer, data: bytes) -> list[tuple[int, bytes]]:
    with running.dial() as peer:
        peer.send(data)
        return peer.take_all()
