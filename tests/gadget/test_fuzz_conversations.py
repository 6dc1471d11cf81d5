"""Messages in any order, cut, or with a wrong byte: conversations end, and what we say is in order."""

import contextlib
import logging
import socket
import struct

import pytest
import scripted_peer as script
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from running_server import running_servers
from scripted_peer import CLOSE, CLOSE_BYTES, ERROR, TEXT, ScriptedPeer, readout

PIECES = {
    "name": script.NAMED_CONFIG,
    "chain": script.GADGETRON_CONFIG,
    "header": script.SCAN_HEADER,
    "readout": readout(4, 2),
    "image": script.image(3, 2),
    "int16 image": script.image(3, 2, 2),
    "waveform": struct.pack("<H", script.WAVEFORM)
    + struct.pack("<H6xQIIIHHfH2x", 1, 0, 0, 0, 0, 5, 2, 1.0, 1)
    + bytes(40),
    "text": script.text_message(TEXT, b'{"parameters": {"seed": "3"}}'),
    "query": struct.pack("<HQQQ", script.QUERY, 0, 7, 4) + b"what",
    "error": struct.pack("<HQ", ERROR, 3) + b"no!",
    "close": CLOSE_BYTES,
    "garbage": b"\x4d\x00",
    "endless": struct.pack("<HI", TEXT, 2**32 - 1),
}
RETURNED = ("readout", "image", "int16 image", "waveform")
DATA = {script.ACQUISITION, script.IMAGE, script.WAVEFORM}


@pytest.fixture(scope="module")
def server():
    with running_servers() as start:
        yield start()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.sampled_from(sorted(PIECES)), max_size=9)
    | st.lists(st.sampled_from(["readout", "image", "text", "query"]), max_size=5).map(
        lambda rest: ["name", "header", *rest, "close"]
    ),
    cut=st.none() | st.integers(0, 3000),
    changed=st.none() | st.tuples(st.integers(0, 3000), st.integers(0, 255)),
)
@example(names=["chain", "header", "readout", "int16 image", "readout", "close"], cut=None, changed=None)
@example(names=["name", "header", "readout", "close", "readout"], cut=None, changed=None)
def test_a_conversation_always_ends_and_in_order(names, cut, changed, server, caplog):
    data = bytearray(b"".join(PIECES[name] for name in names))
    if changed is not None and changed[0] < len(data):
        data[changed[0]] = changed[1]
    is_plain = cut is None and changed is None
    with caplog.at_level(logging.DEBUG, logger="gadget"), server.dial() as peer:
        with contextlib.suppress(ConnectionError):  # it said why, and closed
            peer.send(bytes(data[:cut]))
            if not is_plain or "close" not in names:  # what follows is the end, as of a peer that is gone
                peer.sock.shutdown(socket.SHUT_WR)
        answers = answers_of(peer)
    assert not [line for line in caplog.messages if "bug" in line or "Traceback" in line]
    caplog.clear()
    kinds = [message_id for message_id, _ in answers]
    assert kinds.count(CLOSE) <= 1
    assert CLOSE not in kinds[:-1]
    assert ERROR not in kinds[:-2]
    if is_plain and is_ordinary(names):
        assert sum(kind in DATA for kind in kinds) == sum(name in RETURNED for name in names)
        assert kinds[-1] == CLOSE


def is_ordinary(names: list[str]) -> bool:
    *scan, last = names or [""]
    return (
        scan[:2] == ["name", "header"] and last == "close" and set(scan[2:]) <= {*RETURNED, "query", "text"}
    )


def answers_of(peer: ScriptedPeer) -> list[tuple[int, bytes]]:
    """Return the whole messages up to the end of the stream, which must come within the peer's patience."""
    answers = []
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            answers.append(peer.take_message())
    return answers


def test_the_next_scan_is_served(server):
    assert server.serves()
    assert server.has_ended_all()
