"""Peers that vanish, fall silent or break the protocol, and reconstructions that fail: who is told what."""

import struct
import threading
import time
from collections.abc import Iterator

import pytest
from running_server import ECHO, GADGETRON_SCAN, SCAN, echo, soon
from scripted_peer import CLOSE, CLOSE_BYTES, ERROR, NAMED_CONFIG, SCAN_HEADER, TEXT, ScriptedPeer, readout

from gadget.answering import Handler, Peer
from gadget.connection_options import ConnectionOptions
from gadget.errors import ScanError
from gadget.wire.messages import Acquisition, Message

PLACES = {
    "in the first id": 1,
    "in the config": 500,
    "after the config": len(NAMED_CONFIG),
    "in the header": len(NAMED_CONFIG) + 10,
    "after the header": len(NAMED_CONFIG + SCAN_HEADER),
    "in a readout's id": len(NAMED_CONFIG + SCAN_HEADER) + 1,
    "in a readout's header": len(NAMED_CONFIG + SCAN_HEADER) + 100,
    "in a readout's samples": len(NAMED_CONFIG + SCAN_HEADER) + 400,
    "after a readout": len(NAMED_CONFIG + SCAN_HEADER + readout()),
    "in close": len(SCAN) - 1,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("leave", [ScriptedPeer.vanish, ScriptedPeer.reset], ids=["closes", "resets"])
def test_a_peer_that_vanishes_ends_its_connection_only(place, leave, start_server, caplog):
    running = start_server(echo)
    peer = running.dial()
    peer.send(SCAN[: PLACES[place]])
    time.sleep(0.05)
    leave(peer)
    assert running.serves()
    assert running.has_ended_all()
    assert any("failed: The connection" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("words", "leave"),
    [
        (SCAN[:-2], ScriptedPeer.vanish),
        (SCAN[:-2], ScriptedPeer.reset),
        (SCAN, ScriptedPeer.reset),
        (GADGETRON_SCAN, ScriptedPeer.vanish),
        (GADGETRON_SCAN, ScriptedPeer.reset),
    ],
    ids=["closes", "resets", "resets after CLOSE", "Gadgetron closes after CLOSE", "Gadgetron resets"],
)
def test_a_peer_that_vanishes_stops_the_reconstruction(words, leave, start_server):
    started, stopped = threading.Event(), threading.Event()

    def compute(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        first = next(messages)
        if not started.is_set():
            started.set()
            while not peer.cancelled():
                time.sleep(0.01)
            stopped.set()
        yield from echo(messages, peer)
        assert first

    running = start_server(compute)
    peer = running.dial()
    peer.send(words)
    assert started.wait(5)
    assert not stopped.wait(0.2)
    leave(peer)
    assert stopped.wait(5)
    assert running.serves()


def test_a_reconstruction_that_does_not_stop_is_left_behind(start_server, caplog):
    started, released = threading.Event(), threading.Event()

    def stuck(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        if not started.is_set():
            started.set()
            released.wait(30)
        yield from echo(messages, peer)

    running = start_server(stuck, ConnectionOptions(grace_s=0.5))
    peer = running.dial()
    peer.send(SCAN)
    assert started.wait(5)
    peer.reset()
    assert running.serves()
    assert running.has_ended_all()
    released.set()
    assert any("did not stop and was left behind" in record.message for record in caplog.records)


def failing(error: Exception, after: int = 0) -> Handler:
    """Echo some readouts, then fail, for the first connection only."""
    failures = [error]

    def handle(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        for count, message in enumerate(echo(messages, peer)):
            if count >= after and failures:
                raise failures.pop()
            yield message

    return handle


def test_an_mrd_peer_is_told_in_a_text(start_server, caplog):
    running = start_server(
        failing(ScanError("The trajectory is spiral; only Cartesian scans are supported."), after=2)
    )
    with running.dial() as peer:
        peer.send(SCAN)
        reason = (TEXT, b"The trajectory is spiral; only Cartesian scans are supported.")
        assert peer.take_all() == [*ECHO[:2], reason, (CLOSE, b"")]
    assert running.serves()
    assert running.has_ended_all()
    assert any("failed: The trajectory is spiral" in record.message for record in caplog.records)


def test_gadgetron_is_told_in_an_error(start_server):
    running = start_server(failing(ScanError("The trajectory is spiral.")))
    with running.dial() as peer:
        peer.send(GADGETRON_SCAN)
        assert peer.take_all() == [(ERROR, b"The trajectory is spiral."), (CLOSE, b"")]
    assert running.serves()


def test_a_peer_that_still_sends_is_told(start_server):
    with start_server(failing(ScanError("No.")), ConnectionOptions(linger_s=20.0)).dial() as peer:
        peer.send(SCAN[:-2])
        assert peer.take_message() == (TEXT, b"No.")
        peer.send(*[readout()] * 100)
        assert peer.take_message() == (CLOSE, b"")


def test_an_unforeseen_failure_names_no_patient(start_server, caplog):
    running = start_server(failing(ValueError("patient Jane Doe")))
    with running.dial() as peer:
        peer.send(SCAN)
        (message_id, text), close = peer.take_all()
    assert (message_id, close) == (TEXT, (CLOSE, b""))
    assert b"ValueError" in text
    assert b"Jane" not in text
    assert running.serves()
    assert running.has_ended_all()
    assert "Jane" not in caplog.text
    assert "ValueError; this is a bug" in caplog.text
    assert "test_server_failures.py" in caplog.text  # the place is logged


def test_a_handler_that_wants_to_exit_ends_its_connection_only(start_server):
    exits = [SystemExit(1)]

    def leave(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        if exits:
            raise exits.pop()
        return echo(messages, peer)

    running = start_server(leave)
    with running.dial() as peer:
        peer.send(SCAN)
        assert [message_id for message_id, _ in peer.take_all()] == [TEXT, CLOSE]
    assert running.serves()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"\x4d\x00", b"Unknown MRD message id 77"),
        (b"GET / HTTP/1.1\r\n", b"Unknown MRD message id"),
        (NAMED_CONFIG + readout(), b"Acquisition out of turn"),
        (NAMED_CONFIG + NAMED_CONFIG, b"ConfigFile out of turn"),
        (SCAN[:-2] + struct.pack("<HI", TEXT, 2**32 - 1), b"claims 4294967295 bytes"),
        (SCAN[:-2] + struct.pack("<HQ", ERROR, 0), b"Error out of turn"),
    ],
    ids=["unknown id", "HTTP", "no header", "two configs", "hostile length", "an ERROR"],
)
def test_a_peer_that_breaks_the_protocol_is_told_why(words, reason, start_server):
    running = start_server(echo)
    with running.dial() as peer:
        peer.send(words)
        *_, (message_id, text), close = peer.take_all()
    assert message_id == TEXT
    assert reason in text
    assert close == (CLOSE, b"")
    assert running.serves()


def test_what_came_before_broken_bytes_is_still_answered(start_server):
    with start_server(echo).dial() as peer:
        peer.send(SCAN[:-2], b"\x4d\x00")
        assert peer.take_all()[:5] == ECHO[:5]


def test_a_silent_peer_is_told_and_left(start_server):
    running = start_server(echo, ConnectionOptions(idle_s=0.3, linger_s=0.2))
    with running.dial() as peer:
        peer.send(SCAN[:-2])
        *_, (message_id, text), close = peer.take_all()
    assert message_id == TEXT
    assert b"sent nothing for 0.3 s, and no CLOSE" in text
    assert close == (CLOSE, b"")
    assert running.serves()


def test_a_peer_that_never_starts_does_not_block_the_next(start_server):
    running = start_server(echo, ConnectionOptions(first_message_s=2.0, linger_s=0.2))
    with running.dial() as peer:
        assert running.serves()
        assert peer.take_message()[0] == TEXT


def test_a_long_reconstruction_is_not_silence(start_server):
    def slow(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        answers = list(echo(messages, peer))
        time.sleep(0.8)
        return iter(answers)

    with start_server(slow, ConnectionOptions(idle_s=0.3)).dial() as peer:
        peer.send(SCAN)
        assert peer.take_all() == ECHO


def test_a_peer_that_never_reads_is_left(start_server, caplog):
    def flood(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
        readouts = [message for message in messages if isinstance(message, Acquisition)]
        for _ in range(1000 if len(readouts) == 1 else 1):
            yield from readouts

    running = start_server(flood, ConnectionOptions(send_s=0.5, linger_s=0.2))
    peer = running.dial()
    peer.send(NAMED_CONFIG, SCAN_HEADER, readout(4096, 8), CLOSE_BYTES)
    assert soon(lambda: "failed: The peer took nothing for 0.5 s" in caplog.text, 20)
    peer.is_at_end_soon()
    assert running.has_ended_all()
    assert running.serves()
    peer.vanish()
