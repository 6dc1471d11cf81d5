"""Targets for ``python -m gadgetron PORT stub_nodes NAME``: small reconstructions on the real entry."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from gadget.answering import Peer
from gadget.connection_options import ConnectionOptions
from gadget.errors import ScanError
from gadget.gadgetron_entry import serve_connection
from gadget.wire.messages import Acquisition, ConfigText, Image, Message, ScanHeader, Text, Waveform

QUICK = ConnectionOptions(idle_s=None, grace_s=0.5)


def echo(connection: Any) -> None:
    """Send readouts, waveforms and images back; also a text, which Gadgetron must never see."""
    serve_connection(connection, _echo, QUICK)


def count_and_fail(connection: Any) -> None:
    """Fail at the third readout, saying what came."""
    serve_connection(connection, _count_and_fail, QUICK)


def break_down(connection: Any) -> None:
    """Raise what nobody foresaw, with the peer's text in it."""
    serve_connection(connection, _break_down, QUICK)


def compute(connection: Any) -> None:
    """Compute for a long time, asking whether anybody waits."""
    serve_connection(connection, _compute, QUICK)


def hang(connection: Any) -> None:
    """Compute for a long time without asking, with a thread that would keep the interpreter alive."""
    threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
    serve_connection(connection, _hang, QUICK)


def _echo(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
    for message in messages:
        if isinstance(message, Acquisition | Waveform | Image):
            yield Text("not for Gadgetron")
            yield message


def _count_and_fail(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
    config = next(messages)
    header = next(messages)
    assert isinstance(config, ConfigText)
    assert isinstance(header, ScanHeader)
    for count, message in enumerate(messages):
        if count == 2:
            raise ScanError(f"no more after 2; config {config.text.strip()!r}, header {len(header.text)}")
        yield message


def _break_down(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
    yield from ()
    raise RuntimeError(f"cannot use {next(messages)}")


def _compute(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
    yield next(message for message in messages if isinstance(message, Acquisition))
    while not peer.cancelled():
        time.sleep(0.02)
    yield from _echo(messages, peer)


def _hang(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
    yield next(message for message in messages if isinstance(message, Acquisition))
    time.sleep(600)
