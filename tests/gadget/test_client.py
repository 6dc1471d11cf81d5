"""The client against scripted servers, and against our own."""

import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scripted_peer as script
from scripted_peer import CLOSE_BYTES, TEXT, ScriptedPeer, readout

from gadget.client import send_scan
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError, OwnProtocolError, PeerProtocolError, ScanError
from gadget.server import Server
from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.messages import Acquisition, Close, ConfigFile, Message, ScanHeader, Text

QUICK = ConnectionOptions(idle_s=5.0, grace_s=0.3, linger_s=0.3)


def decoded(data: bytes) -> list[Message]:
    decoder = MrdDecoder()
    decoder.feed(data)
    return list(decoder.messages())


READOUTS = decoded(b"".join(readout(counter=k) for k in range(5)))
SCAN: list[Message] = [ConfigFile("default"), ScanHeader("<ismrmrdHeader/>"), *READOUTS]
SCAN_BYTES = b"".join(map(encode, [*SCAN, Close()]))


@pytest.fixture
def server() -> Iterator[Callable[[Callable[[ScriptedPeer], None]], int]]:
    """Return a function that lets a script play the server for one connection, and returns its port."""
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start(play: Callable[[ScriptedPeer], None]) -> int:
            def run() -> None:
                try:
                    with ScriptedPeer(listener.accept()[0]) as peer:
                        play(peer)
                except BaseException as error:  # noqa: BLE001  # shown by the fixture
                    failures.append(error)

            threads.append(threading.Thread(target=run, daemon=True))
            threads[-1].start()
            return int(listener.getsockname()[1])

        yield start
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    assert failures == []


def test_a_scan_is_sent_as_bytes_that_peers_know(server):
    heard = []

    def play(peer: ScriptedPeer) -> None:
        heard.append(peer.take(len(SCAN_BYTES)))
        peer.send(CLOSE_BYTES)

    assert list(send_scan(SCAN, "127.0.0.1", server(play), options=QUICK)) == []
    assert heard == [SCAN_BYTES]


def test_answers_are_yielded_while_the_scan_is_still_being_sent(server):
    answered = threading.Event()

    def play(peer: ScriptedPeer) -> None:
        peer.take(len(encode(SCAN[0])))
        peer.send(readout(counter=7), script.text_message(TEXT, b"so far so good"))
        peer.take(len(SCAN_BYTES) - len(encode(SCAN[0])))
        peer.send(CLOSE_BYTES)

    def slow_scan() -> Iterator[Message]:
        yield SCAN[0]
        assert answered.wait(10)
        yield from SCAN[1:]

    answers = []
    for answer in send_scan(slow_scan(), "127.0.0.1", server(play), options=QUICK):
        answers.append(answer)
        answered.set()
    assert isinstance(answers[0], Acquisition)
    assert answers[0].header["scan_counter"] == 7
    assert answers[1:] == [Text("so far so good")]


def test_a_scan_goes_through_our_own_server_and_back():
    def echo(messages: Iterator[Message], _peer: object) -> Iterator[Message]:
        return (message for message in messages if isinstance(message, Acquisition))

    with Server(echo, hosts=("127.0.0.1",), port=0, options=QUICK) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            answers = list(send_scan(SCAN, *server.addresses[0], options=QUICK))
        finally:
            server.stop()
            thread.join(10)
    assert [encode(answer) for answer in answers] == [encode(one) for one in READOUTS]


def test_a_server_that_is_not_there_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(
        GadgetError, match=rf"Cannot connect to 127\.0\.0\.1 port {port}: .*Is the server running"
    ):
        list(send_scan(SCAN, "127.0.0.1", port, options=QUICK))
    with pytest.raises(GadgetError, match=r"Cannot connect to no-such-host\.invalid"):
        list(send_scan(SCAN, "no-such-host.invalid", port, options=QUICK))


@pytest.mark.parametrize("answer", [b"", readout()[:100]], ids=["nothing", "half an answer"])
def test_a_server_that_vanishes_is_an_error(answer, server):
    def play(peer: ScriptedPeer) -> None:
        peer.take(len(SCAN_BYTES))
        peer.send(answer)

    with pytest.raises(PeerProtocolError, match=r"connection ended (without CLOSE|inside a ACQUISITION)"):
        list(send_scan(SCAN, "127.0.0.1", server(play), options=QUICK))


def test_a_server_that_resets_before_it_read_anything_is_an_error(server):
    """The whole scan, CLOSE included, is then on its way: nothing else says that it never arrived."""

    def play(peer: ScriptedPeer) -> None:
        time.sleep(0.3)
        peer.reset()

    with pytest.raises(PeerProtocolError, match="connection was lost while we read"):
        list(send_scan(SCAN, "127.0.0.1", server(play), options=QUICK))


def test_answers_before_a_server_vanishes_are_yielded(server):
    def play(peer: ScriptedPeer) -> None:
        peer.take(len(SCAN_BYTES))
        peer.send(readout(counter=1), readout(counter=2))

    answers = send_scan(SCAN, "127.0.0.1", server(play), options=QUICK)
    next(answers)
    time.sleep(0.3)  # now the end of the stream is known
    assert next(answers).header["scan_counter"] == 2  # type: ignore[union-attr]
    with pytest.raises(PeerProtocolError, match="connection ended without CLOSE"):
        next(answers)


def test_a_server_that_closes_early_is_an_error_after_its_answers(server):
    """As when a server refuses a scan: its text is not lost because we could not send all."""
    big = decoded(readout(8192, 16))[0]
    done = threading.Event()

    def play(peer: ScriptedPeer) -> None:
        peer.take(100)
        peer.send(script.text_message(TEXT, b"no encoding"), CLOSE_BYTES)
        done.wait(10)  # closing with unread data would reset the connection and lose what was sent

    answers = send_scan([*SCAN, *[big] * 200], "127.0.0.1", server(play), options=QUICK)
    try:
        assert next(answers) == Text("no encoding")
        with pytest.raises(PeerProtocolError, match="closed before it had the whole scan"):
            list(answers)
    finally:
        done.set()


def test_an_error_of_the_server_is_passed_on(server):
    def play(peer: ScriptedPeer) -> None:
        peer.take(len(SCAN_BYTES))
        peer.send(b"\x08\x00" + (9).to_bytes(8, "little") + b"no header", CLOSE_BYTES)

    with pytest.raises(PeerProtocolError, match="reports a failure: no header"):
        list(send_scan(SCAN, "127.0.0.1", server(play), options=QUICK))


def test_a_silent_server_is_an_error(server):
    done = threading.Event()

    def play(_peer: ScriptedPeer) -> None:
        done.wait(10)

    port = server(play)
    with pytest.raises(PeerProtocolError, match=r"sent nothing for 0\.3 s"):
        list(send_scan(SCAN, "127.0.0.1", port, options=ConnectionOptions(idle_s=0.3, grace_s=0.3)))
    done.set()


@pytest.mark.parametrize(
    ("fault", "expected", "complaint"),
    [
        (ScanError("sample 3 is NaN"), ScanError, "sample 3 is NaN"),
        (OSError("disk"), GadgetError, r"could not be read to its end \(OSError\)"),
    ],
    ids=["ours", "unforeseen"],
)
def test_a_scan_that_cannot_be_read_ends_the_sending(fault, expected, complaint, server):
    def broken() -> Iterator[Message]:
        yield from SCAN[:3]
        raise fault

    with pytest.raises(expected, match=complaint):
        list(send_scan(broken(), "127.0.0.1", server(ScriptedPeer.is_at_end_soon), options=QUICK))


def test_messages_out_of_turn_are_not_sent(server):
    with pytest.raises(OwnProtocolError, match="Acquisition out of turn"):
        list(send_scan(READOUTS, "127.0.0.1", server(ScriptedPeer.is_at_end_soon), options=QUICK))


def test_a_caller_that_stops_early_leaves_nothing_behind(server):
    def play(peer: ScriptedPeer) -> None:
        peer.take(100)
        peer.send(readout() * 3)
        peer.is_at_end_soon()

    before = threading.active_count()
    answers = send_scan(SCAN, "127.0.0.1", server(play), options=QUICK)
    next(answers)
    answers.close()
    for thread in threading.enumerate():
        if thread.name.startswith(("reader", "sender")):
            thread.join(5)
    assert threading.active_count() <= before + 1


def test_large_scans_do_not_wait_for_a_server_that_answers_at_once(server):
    """Both directions hold more than the sockets can keep."""
    big = decoded(readout(8192, 16))[0]
    data = encode(big)

    def play(peer: ScriptedPeer) -> None:
        peer.take(len(encode(SCAN[0]) + encode(SCAN[1])))
        for _ in range(40):
            peer.send(peer.take(len(data)))
        assert peer.take(2) == CLOSE_BYTES
        peer.send(CLOSE_BYTES)

    answers = list(send_scan([*SCAN[:2], *[big] * 40], "127.0.0.1", server(play), options=QUICK))
    assert len(answers) == 40
    for answer in answers:
        assert isinstance(answer, Acquisition)
        np.testing.assert_array_equal(answer.data, big.data)  # type: ignore[union-attr]
