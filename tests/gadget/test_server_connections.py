"""Several connections at a time: how many, how much memory, who looks on, and how a server ends."""

import logging
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest
import scripted_peer as script
from running_server import SCAN, echo, soon
from scripted_peer import CLOSE, CLOSE_BYTES, ERROR, NAMED_CONFIG, SCAN_HEADER, TEXT, ScriptedPeer, readout

from gadget.answering import Ending, Peer
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError, ScanError
from gadget.inbox_room import InboxRoom
from gadget.wire.messages import Acquisition, Close, ConfigFile, Message, ScanHeader, Text

HEAD = NAMED_CONFIG + SCAN_HEADER


def test_a_stuck_reconstruction_does_not_hold_up_other_scans(start_server):
    released = threading.Event()

    def handle(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        if not released.is_set():
            released.wait(20)
        yield from echo(messages, peer)

    running = start_server(handle)
    try:
        with running.dial() as stuck, running.dial() as other:
            stuck.send(SCAN)
            assert soon(lambda: running.server.n_connections == 2)
            other.send(HEAD)
            released.set()
            other.send(CLOSE_BYTES)
            assert other.take_all() == [(CLOSE, b"")]
    finally:
        released.set()


@pytest.mark.parametrize(
    ("config", "message_id"),
    [(NAMED_CONFIG, TEXT), (script.GADGETRON_CONFIG, ERROR)],
    ids=["MRD", "Gadgetron"],
)
def test_one_connection_too_many_is_refused_in_words(config, message_id, start_server):
    running = start_server(max_connections=2)
    with running.dial() as first, running.dial() as second:
        for peer in (first, second):
            peer.send(HEAD, readout())
            peer.take_message()
        with running.dial() as third:
            third.send(config, SCAN_HEADER, readout())
            (got, reason), close = third.take_all()
        assert (got, close) == (message_id, (CLOSE, b""))
        assert b"has as many connections as it may (2)" in reason
        first.send(CLOSE_BYTES)
        assert first.take_all() == [(CLOSE, b"")]
        assert soon(lambda: running.server.n_connections == 1)
        assert running.serves()


def test_those_that_are_refused_are_limited_too_and_leave_nothing(start_server):
    running = start_server(max_connections=2)
    n_threads = threading.active_count()
    peers = [running.dial() for _ in range(12)]
    assert soon(lambda: running.server.n_connections == 2)
    for peer in peers[4:]:  # neither served nor refused: closed
        peer.is_at_end_soon()
    for peer in peers:
        peer.vanish()
    assert running.has_ended_all()
    assert soon(lambda: threading.active_count() <= n_threads)
    assert running.serves()


def test_all_connections_share_the_room_for_what_waits(start_server):
    """Four peers send 32 MiB each to reconstructions that take nothing: about 4 MiB are read, not 128."""
    released = threading.Event()
    room = InboxRoom(4 * 2**20)

    def late(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
        released.wait(20)
        for message in messages:
            if isinstance(message, Acquisition) and message.header["scan_counter"] == 127:
                yield message

    running = start_server(late, ConnectionOptions(room=room))
    data = HEAD + b"".join(readout(4096, 8, counter=k) for k in range(128)) + CLOSE_BYTES
    most = 0
    with running.dial() as a, running.dial() as b, running.dial() as c, running.dial() as d:
        peers = [a, b, c, d]
        senders = [threading.Thread(target=peer.send, args=(data,)) for peer in peers]
        for sender in senders:
            sender.start()
        assert soon(lambda: room.used >= room.n_bytes, 20)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            most = max(most, room.used)
            time.sleep(0.01)
        assert all(sender.is_alive() for sender in senders)
        assert room.n_bytes <= most <= room.n_bytes + 4 * 2**20  # one message, and one reading, of each
        released.set()
        for sender, peer in zip(senders, peers, strict=True):
            assert [one for one, _ in peer.take_all()] == [script.ACQUISITION, CLOSE]
            sender.join(10)
    assert running.has_ended_all()
    assert room.used == 0


@pytest.mark.parametrize("leave", [ScriptedPeer.vanish, ScriptedPeer.reset], ids=["closes", "resets"])
def test_peers_that_vanish_give_their_room_back(leave, start_server):
    room = InboxRoom()
    running = start_server(echo, ConnectionOptions(room=room, grace_s=0.5, linger_s=0.5))
    for n_bytes in (1, 500, len(HEAD) + 100, len(HEAD) + 700, len(SCAN)):
        peer = running.dial()
        peer.send(SCAN[:n_bytes], readout(1024, 4))
        leave(peer)
    assert running.has_ended_all()
    assert room.used == 0


def send_for(peer, seconds):
    """Send readouts; a fast machine sends many before the other side is gone."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        peer.send(*[readout(64, 2)] * 1000)


def test_a_scan_without_end_is_ended(start_server):
    running = start_server(echo, ConnectionOptions(scan_bytes=200_000, linger_s=0.3))
    with running.dial() as peer:
        peer.send(HEAD)
        with pytest.raises((ConnectionError, TimeoutError)):
            send_for(peer, seconds=60)
    with running.dial() as peer:
        peer.send(HEAD, *[readout(64, 2)] * 200)
        *_, (message_id, reason), close = peer.take_all()
    assert (message_id, close) == (TEXT, (CLOSE, b""))
    assert b"sent more than 200000 bytes" in reason


class Watch:
    """Takes note of all it is told."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.got: list[Message] = []
        self.sent_messages: list[Message] = []
        self.times: list[float] = []
        self.endings: list[Ending] = []
        self._fails_at = fails_at

    def received(self, message: Message, at: float) -> None:
        if len(self.got) == self._fails_at:
            raise ValueError("patient Jane Doe")
        self.got.append(message)
        self.times.append(at)

    def sent(self, message: Message, at: float) -> None:
        self.sent_messages.append(message)
        self.times.append(at)

    def ended(self, ending: Ending) -> None:
        self.endings.append(ending)


class Watched:
    """Makes watches, and remembers them with their peers."""

    def __init__(self, **options: int) -> None:
        self.watches: dict[str, Watch] = {}
        self._options = options

    def __call__(self, address: str) -> Watch:
        return self.watches.setdefault(address, Watch(**self._options))

    @property
    def only(self) -> Watch:
        (watch,) = self.watches.values()
        return watch


def test_a_watch_sees_all_that_comes_and_goes_in_order_and_then_the_end(start_server):
    watched = Watched()
    running = start_server(watch_factories=[watched])
    before = time.monotonic()
    with running.dial() as peer:
        peer.send(SCAN)
        peer.take_all()
        address = "{}:{}".format(*peer.sock.getsockname())
    assert running.has_ended_all()
    assert list(watched.watches) == [address]
    watch = watched.only
    assert [type(one) for one in watch.got] == [ConfigFile, ScanHeader, *[Acquisition] * 5, Close]
    assert [type(one) for one in watch.sent_messages] == [*[Acquisition] * 5, Close]
    assert before < min(watch.times) <= max(watch.times) < time.monotonic()
    (ending,) = watch.endings
    assert (ending.n_received, ending.had_scan, ending.failure) == (8, True, None)


def test_a_watch_sees_a_message_before_the_reconstruction_does(start_server):
    watched = Watched()
    n_seen = []

    def handle(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
        for n_taken, _ in enumerate(messages, 1):
            n_seen.append(len(watched.only.got) - n_taken)
        yield from ()

    with start_server(handle, watch_factories=[watched]).dial() as peer:
        peer.send_byte_by_byte(SCAN)
        peer.take_all()
    assert len(n_seen) == 7
    assert min(n_seen) >= 0


def test_a_watch_sees_what_comes_after_a_failure_and_what_the_peer_was_told(start_server):
    """The raw data of a scan that cannot be reconstructed is kept, too."""
    watched = Watched()

    def refuse(messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
        next(messages)
        raise ScanError("No.")

    running = start_server(refuse, ConnectionOptions(linger_s=2.5), watch_factories=[watched])
    with running.dial() as peer:
        peer.send(HEAD)
        assert peer.take_all() == [(TEXT, b"No."), (CLOSE, b"")]
        for k in range(6):  # longer than linger_s in all
            time.sleep(0.5)
            peer.send(readout(counter=k))
        peer.send(CLOSE_BYTES)
        assert running.has_ended_all()
    watch = watched.only
    assert [type(one) for one in watch.got] == [ConfigFile, ScanHeader, *[Acquisition] * 6, Close]
    assert watch.sent_messages == [Text("No."), Close()]
    assert str(watch.endings[0].failure) == "No."


@pytest.mark.parametrize("fails_at", [0, 3])
def test_a_watch_that_fails_is_told_only_of_the_end_and_the_scan_goes_on(fails_at, start_server, caplog):
    failing, other = Watched(fails_at=fails_at), Watched()
    running = start_server(watch_factories=[failing, other])
    assert running.serves()
    assert running.has_ended_all()
    assert len(failing.only.got) == fails_at
    assert len(failing.only.endings) == 1
    assert len(other.only.got) == 8
    assert "Watch failed and looks on no more (ValueError); the scan goes on" in caplog.text
    assert "Jane" not in caplog.text


def test_a_scan_has_its_own_watches_also_where_another_has_the_same_address(start_server):
    """A client may use one port of its own for two addresses of the server."""
    numbers = count(1)

    class Numbered(Watch):
        def __init__(self) -> None:
            super().__init__()
            self.number = next(numbers)

    def handle(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, Acquisition):
                (watch,) = peer.watches
                yield Text(f"{watch.number} of {peer.address}")

    running = start_server(
        handle, hosts=("127.0.0.1", "127.0.0.2"), watch_factories=[lambda _address: Numbered()]
    )
    with ExitStack() as stack:
        peers: list[ScriptedPeer] = []
        for address in running.server.addresses:
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(peers[0].sock.getsockname() if peers else ("127.0.0.1", 0))
            sock.connect(address)
            peers.append(ScriptedPeer(sock))
            peers[-1].send(HEAD, readout())
            ours = "{}:{}".format(*sock.getsockname())
            assert peers[-1].take_message() == (TEXT, f"{len(peers)} of {ours}".encode())
        for number, peer in enumerate(peers, 1):
            peer.send(readout(), CLOSE_BYTES)
            assert peer.take_message() == (TEXT, f"{number} of {ours}".encode())


def test_a_watch_hears_of_the_end_also_where_there_is_no_thread_for_the_scan(start_server, monkeypatch):
    watched = Watched()
    running = start_server(watch_factories=[watched])
    start = threading.Thread.start

    def start_no_work(thread: threading.Thread) -> None:
        if thread.name.startswith("work "):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_no_work)
        with running.dial() as peer:
            peer.send(HEAD)
            peer.is_at_end_soon()
    assert soon(lambda: watched.only.endings)
    assert isinstance(watched.only.endings[0].failure, RuntimeError)
    assert running.has_ended_all()
    assert running.serves()


def test_a_watch_that_cannot_be_made_costs_no_scan(start_server, caplog):
    def broken(_address: str) -> Watch:
        raise OSError("no room")

    assert start_server(watch_factories=[broken]).serves()
    assert "broken could not be made (OSError)" in caplog.text


@pytest.mark.parametrize(
    "words", [b"", CLOSE_BYTES, NAMED_CONFIG + CLOSE_BYTES], ids=["nothing", "close", "config"]
)
def test_probes_end_without_a_scan_for_watches_too(words, start_server):
    watched = Watched()
    running = start_server(watch_factories=[watched])
    peer = running.dial()
    peer.send(words)
    peer.vanish()
    assert soon(lambda: watched.watches and watched.only.endings)
    assert not watched.only.endings[0].had_scan


def test_a_peer_that_has_our_close_may_send_its_next_scan_at_once(start_server):
    """It has its place before we are done with the scan before, whose watch takes its time."""
    served = threading.Event()

    class Slow(Watch):
        def ended(self, ending: Ending) -> None:
            served.wait(5)
            super().ended(ending)

    running = start_server(max_connections=1, watch_factories=[lambda _address: Slow()])
    for _ in range(2):
        with running.dial() as peer:
            peer.send(SCAN)
            assert [message_id for message_id, _ in peer.take_all()] == [script.ACQUISITION] * 5 + [CLOSE]
    served.set()
    assert running.has_ended_all()


@pytest.mark.parametrize("leave", [ScriptedPeer.vanish, ScriptedPeer.reset], ids=["closes", "resets"])
def test_a_peer_that_lost_its_connection_may_come_again_at_once(leave, start_server):
    """It has its place while the reconstruction of what it sent before has not yet noticed."""
    busy, released = threading.Event(), threading.Event()

    def handle(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, Acquisition) and message.header["scan_counter"] == 77:
                busy.set()
                released.wait(20)
            yield from echo(iter([message]), peer)

    running = start_server(handle, ConnectionOptions(grace_s=20.0), max_connections=1)
    try:
        gone = running.dial()
        gone.send(HEAD, readout(counter=77))
        assert busy.wait(5)
        leave(gone)
        assert soon(running.serves)
        assert not released.is_set()
    finally:
        released.set()
    assert running.has_ended_all()


def test_connections_that_only_end_are_limited_too(start_server):
    """Peers that have our CLOSE, and neither close nor go on: as many again as the limit, and no more."""
    refuse_all = GadgetError("No.")

    def refuse(_messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
        raise refuse_all

    running = start_server(refuse, ConnectionOptions(linger_s=20.0), max_connections=2)
    with ExitStack() as stack:
        reasons = []
        for _ in range(5):
            peer = stack.enter_context(running.dial())
            peer.send(HEAD)
            reasons.append(peer.take_message()[1])
            assert peer.take_message() == (CLOSE, b"")
    assert reasons[:4] == [b"No."] * 4
    assert b"as many connections as it may (2)" in reasons[4]


def test_stopping_lets_a_scan_finish_that_runs_and_takes_no_new_one(start_server, caplog):
    caplog.set_level(logging.INFO)
    running = start_server()
    with running.dial() as scan, running.dial() as idle:
        scan.send(HEAD, readout())
        scan.take_message()
        assert soon(lambda: running.server.n_connections == 2)
        running.server.stop(drain_s=20)
        assert idle.take_all()[-1] == (CLOSE, b"")
        said = "stopping: (1 connection|2 connections) may end first, within 20 s"  # the idle one may be gone
        assert soon(lambda: re.search(said, caplog.text))
        with pytest.raises(ConnectionError):
            running.dial()
        scan.send(readout(counter=1), CLOSE_BYTES)
        assert scan.take_all() == [(script.ACQUISITION, readout(counter=1)[2:]), (CLOSE, b"")]
    running.thread.join(5)
    assert not running.thread.is_alive()


@pytest.mark.parametrize("n_stops", [1, 2])
def test_stopping_cancels_a_scan_in_words_when_its_time_is_up_or_when_asked_again(n_stops, start_server):
    running = start_server()
    with running.dial() as scan:
        scan.send(HEAD, readout())
        scan.take_message()
        running.server.stop(drain_s=20 if n_stops == 2 else 0.3)
        if n_stops == 2:
            running.server.stop()
        (message_id, reason), close = scan.take_all()
    assert (message_id, close) == (TEXT, (CLOSE, b""))
    assert b"being stopped" in reason
    running.thread.join(5)
    assert not running.thread.is_alive()


def test_fifty_connections_leave_no_thread_and_no_file(start_server):
    running = start_server()
    assert running.serves()
    assert running.has_ended_all()
    before = threading.active_count(), _n_open_files()
    for k in range(50):
        with running.dial() as peer:
            peer.send(HEAD, *[readout(16 << k % 6, 1 + k % 3)] * (k % 4 + 1), CLOSE_BYTES)
            assert len(peer.take_all()) == k % 4 + 2
    assert running.has_ended_all()
    assert soon(lambda: threading.active_count() <= before[0] and _n_open_files() <= before[1])


def _n_open_files() -> int:
    from pathlib import Path

    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_length_of_all_ones_takes_no_memory(start_server):
    running = start_server()
    with running.dial() as peer:
        peer.send(HEAD, struct.pack("<HI", TEXT, 2**32 - 1))
        (message_id, reason), _ = peer.take_all()
    assert message_id == TEXT
    assert b"claims 4294967295 bytes" in reason
    assert running.serves()
