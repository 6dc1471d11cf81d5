"""The server against scripted peers: round trips, ways to begin, pauses, limits, stopping."""

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import scripted_peer as script
from running_server import ECHO, GADGETRON_SCAN, QUICK, SCAN, echo, soon
from scripted_peer import CLOSE, CLOSE_BYTES, ERROR, NAMED_CONFIG, SCAN_HEADER, TEXT, ScriptedPeer, readout

from gadget.answering import Peer
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError
from gadget.server import Server, serve
from gadget.wire.messages import Acquisition, ConfigFile, Message, ScanHeader, Text
from gadget.wire.session import Dialect


def test_a_scan_comes_back(start_server):
    with start_server(echo).dial() as peer:
        peer.send(SCAN)
        assert peer.take_all() == ECHO


def test_a_scan_may_come_one_byte_at_a_time(start_server):
    with start_server(echo).dial() as peer:
        peer.send_byte_by_byte(SCAN)
        assert peer.take_all() == ECHO


def test_answers_come_while_the_scan_is_still_being_sent(start_server):
    with start_server(echo).dial() as peer:
        peer.send(NAMED_CONFIG, SCAN_HEADER, readout())
        assert peer.take_message() == (script.ACQUISITION, readout()[2:])
        peer.send(readout(counter=1), CLOSE_BYTES)
        assert peer.take_all() == [(script.ACQUISITION, readout(counter=1)[2:]), (CLOSE, b"")]


def test_it_listens_on_ipv4_and_ipv6(start_server):
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    running = start_server(echo, hosts=("127.0.0.1", "::1"))
    addresses = running.server.addresses
    if len(addresses) == 1:
        pytest.skip("this machine has no IPv6 loopback")
    assert [host for host, _ in addresses] == ["127.0.0.1", "::1"]
    assert addresses[0][1] == addresses[1][1] > 0
    for host in range(2):
        with running.dial(host) as peer:
            peer.send(SCAN)
            assert peer.take_all() == ECHO


def test_two_connections_are_served_at_once(start_server):
    running = start_server(echo)
    with running.dial() as first, running.dial() as second:
        for peer in (first, second):
            peer.send(NAMED_CONFIG, SCAN_HEADER)
        for k in range(5):
            for peer in (first, second):
                peer.send(readout(counter=k))
                assert peer.take_message() == ECHO[k]
        for peer in (second, first):
            peer.send(CLOSE_BYTES)
            assert peer.take_all() == ECHO[5:]


def test_the_handler_gets_the_conversation_without_close(start_server):
    heard: list[Message] = []
    peers: list[Peer] = []

    def listen(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        peers.append(peer)
        heard.extend(messages)
        return iter(())

    with start_server(listen).dial() as peer:
        peer.send(NAMED_CONFIG, script.text_message(TEXT, b"{}"), SCAN_HEADER, readout(), CLOSE_BYTES)
        assert peer.take_all() == [(CLOSE, b"")]
        address = f"127.0.0.1:{peer.sock.getsockname()[1]}"
    assert [type(message) for message in heard] == [ConfigFile, Text, ScanHeader, Acquisition]
    assert (peers[0].dialect, peers[0].address) == (Dialect.MRD, address)


@pytest.mark.parametrize(
    ("config", "dialect"),
    [
        (NAMED_CONFIG + SCAN_HEADER, Dialect.MRD),
        (SCAN_HEADER + NAMED_CONFIG, Dialect.MRD),
        (SCAN_HEADER, Dialect.MRD),
        (script.text_message(script.CONFIG_TEXT, b"prior: tv") + SCAN_HEADER, Dialect.MRD),
        (script.GADGETRON_CONFIG + SCAN_HEADER, Dialect.GADGETRON),
    ],
    ids=["config, header", "header, config", "header only", "config text", "Gadgetron"],
)
def test_every_way_to_begin_is_understood(config, dialect, start_server):
    dialects = []

    def listen(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        dialects.append(peer.dialect)
        yield from echo(messages, peer)

    with start_server(listen).dial() as peer:
        peer.send(config, readout(), CLOSE_BYTES)
        assert peer.take_all() == [(script.ACQUISITION, readout()[2:]), (CLOSE, b"")]
    assert dialects == [dialect]


@pytest.mark.parametrize(
    "words",
    [b"", CLOSE_BYTES, NAMED_CONFIG + CLOSE_BYTES, script.GADGETRON_CONFIG + CLOSE_BYTES],
    ids=["nothing", "close", "config and close", "Gadgetron's config and close"],
)
@pytest.mark.parametrize("leave", [ScriptedPeer.vanish, ScriptedPeer.reset], ids=["closes", "resets"])
def test_probes_are_normal_and_no_scan(words, leave, start_server, caplog):
    calls = []

    def count(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        calls.append(peer)
        return echo(messages, peer)

    running = start_server(count)
    peer = running.dial()
    peer.send(words)
    if words:
        assert peer.take_all() == [(CLOSE, b"")]
    leave(peer)
    assert running.serves()
    assert running.has_ended_all()
    assert len(calls) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_gadgetron_gets_no_text(start_server):
    def chatty(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        for message in echo(messages, peer):
            yield Text("a fallback")
            yield message

    with start_server(chatty).dial() as peer:
        peer.send(GADGETRON_SCAN)
        assert peer.take_all() == [(script.ACQUISITION, readout()[2:]), (CLOSE, b"")]


@pytest.mark.parametrize(("data_type", "last"), [(1, CLOSE), (2, ERROR), (4, ERROR), (5, CLOSE)])
def test_gadgetron_gets_no_pixels_that_end_its_chain(data_type, last, start_server):
    with start_server(echo).dial() as peer:
        peer.send(script.GADGETRON_CONFIG, SCAN_HEADER, script.image(3, 2, data_type), CLOSE_BYTES)
        messages = peer.take_all()
    assert messages[-1] == (CLOSE, b"")
    assert (messages[0][0] == ERROR) == (last == ERROR)


def test_a_peer_that_pauses_leaves_time_for_other_work(start_server):
    """Work is done while nothing comes, and stops when something does; a query is answered meanwhile."""
    n_steps: list[int] = []

    def work(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        for message in messages:
            if not isinstance(message, Acquisition):
                continue
            n_steps.append(0)
            yield message
            while peer.silent():
                n_steps[-1] += 1
                time.sleep(0.01)

    query = struct.pack("<HQQQ", script.QUERY, 0, 17, 4) + b"info"
    with start_server(work).dial() as peer:
        peer.send(NAMED_CONFIG, SCAN_HEADER, readout())
        assert peer.take_message() == (script.ACQUISITION, readout()[2:])
        assert soon(lambda: n_steps[0] > 5)
        peer.send(query)
        assert peer.take_message()[0] == script.RESPONSE
        n_before = n_steps[0]
        assert soon(lambda: n_steps[0] > n_before + 5)
        peer.send(readout(counter=1), readout(counter=2), CLOSE_BYTES)
        assert peer.take_all()[-1] == (CLOSE, b"")
    assert len(n_steps) == 3


def test_a_peer_that_vanishes_is_not_silent(start_server):
    ended = threading.Event()

    def work(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, Acquisition):
                yield message
                while peer.silent():
                    time.sleep(0.01)
                ended.set()

    running = start_server(work)
    with running.dial() as peer:
        peer.send(NAMED_CONFIG, SCAN_HEADER, readout())
        peer.take_message()
        peer.vanish()
        assert ended.wait(5)


def test_queries_are_answered(start_server):
    with start_server(echo).dial() as peer:
        peer.send(struct.pack("<HQQQ", script.QUERY, 0, 17, 4) + b"info")
        message_id, body = peer.take_message()
        assert message_id == script.RESPONSE
        assert body == b"gadgetron-ebm answers no queries"
        peer.send(CLOSE_BYTES)
        assert peer.take_all() == [(CLOSE, b"")]


def test_a_handler_that_stops_early_ends_the_conversation(start_server):
    def first_only(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        yield next(echo(messages, peer))

    with start_server(first_only).dial() as peer:
        peer.send(SCAN)
        assert peer.take_all() == [ECHO[0], (CLOSE, b"")]


def test_a_peer_cannot_fill_the_memory(start_server):
    """48 MiB do not go out while the reconstruction takes none of them; they do once it goes on."""
    released = threading.Event()

    def late(messages: Iterator[Message], _peer: Peer) -> list[Message]:
        released.wait(20)
        for _ in messages:
            pass
        return []

    running = start_server(late, ConnectionOptions(inbox_bytes=1_000_000))
    with running.dial() as peer:
        data = NAMED_CONFIG + SCAN_HEADER + readout(4096, 8) * 192 + CLOSE_BYTES
        sender = threading.Thread(target=peer.send, args=(data,))
        sender.start()
        sender.join(0.5)
        assert sender.is_alive()
        released.set()
        sender.join(10)
        assert not sender.is_alive()
        assert peer.take_all() == [(CLOSE, b"")]


@pytest.mark.parametrize("inbox_bytes", [100_000, 2**29], ids=["small inbox", "large inbox"])
def test_a_fast_peer_is_made_to_wait_and_loses_nothing(inbox_bytes, start_server):
    """16 MiB, to a reconstruction that takes its time at first."""

    def late(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        time.sleep(0.3)
        for message in echo(messages, peer):
            if message.header["scan_counter"] % 64 == 0:  # type: ignore[union-attr]
                yield message

    readouts = [readout(1024, 8, counter=k) for k in range(256)]
    with start_server(late, ConnectionOptions(inbox_bytes=inbox_bytes)).dial() as peer:
        peer.send(NAMED_CONFIG, SCAN_HEADER, *readouts, CLOSE_BYTES)
        assert peer.take_all() == [(script.ACQUISITION, one[2:]) for one in readouts[::64]] + [(CLOSE, b"")]


def test_a_peer_that_reads_only_when_it_has_sent_all_is_served(start_server):
    """Both directions hold more than sockets can keep: without a reading thread both would wait for ever."""
    readouts = [readout(4096, 8, counter=k) for k in range(64)]
    with start_server(echo).dial() as peer:
        peer.send(NAMED_CONFIG, SCAN_HEADER, *readouts, CLOSE_BYTES)
        assert peer.take_all() == [(script.ACQUISITION, one[2:]) for one in readouts] + [(CLOSE, b"")]


def test_large_images_arrive_whole(start_server):
    pixels = np.random.default_rng(3).normal(size=(1024, 1024)).astype("<f4")
    image = script.image(1024, 1024)[: -pixels.nbytes] + pixels.tobytes()
    with start_server(echo).dial() as peer:
        peer.send(NAMED_CONFIG, SCAN_HEADER, image, CLOSE_BYTES)
        assert peer.take_all() == [(script.IMAGE, image[2:]), (CLOSE, b"")]


def test_stopping_tells_the_peer_that_is_being_served(start_server):
    running = start_server(echo)
    with running.dial() as peer:
        peer.send(SCAN[:-2])
        assert peer.take_message() == ECHO[0]
        running.server.stop()
        *_, (message_id, text), close = peer.take_all()
    assert (message_id, close) == (TEXT, (CLOSE, b""))
    assert b"being stopped" in text
    running.thread.join(5)
    assert not running.thread.is_alive()


def test_stopping_twice_and_after_the_end_is_harmless(start_server):
    running = start_server(echo)
    running.server.stop()
    running.server.stop()
    running.thread.join(5)
    assert not running.thread.is_alive()
    running.server.close()
    running.server.stop()


def test_serve_reports_where_it_listens_and_ends_when_stopped():
    heard: list[tuple[tuple[str, int], ...]] = []

    def listening(server: Server) -> None:
        heard.append(server.addresses)
        threading.Timer(0.1, server.stop).start()

    serve(echo, hosts=("127.0.0.1",), port=0, options=QUICK, on_listening=listening)
    ((host, port),) = heard[0]
    assert host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), 1)


def test_a_port_that_is_taken_is_named(start_server):
    port = start_server(echo).server.addresses[0][1]
    with pytest.raises(
        GadgetError, match=rf"Cannot listen on 127\.0\.0\.1 port {port}: .*another server running"
    ):
        Server(echo, hosts=("127.0.0.1",), port=port)


def test_an_address_of_another_machine_is_left_out_if_one_works():
    with Server(echo, hosts=("192.0.2.1", "127.0.0.1"), port=0) as server:
        assert [host for host, _ in server.addresses] == ["127.0.0.1"]
    with pytest.raises(GadgetError, match=r"Cannot listen on 192\.0\.2\.1 .*name an address of this machine"):
        Server(echo, hosts=("192.0.2.1",), port=0)


@pytest.mark.parametrize("name", ["client_fire", "client_gadgetron", "external_acquisitions"])
def test_what_real_clients_sent_is_served(name, start_server, data_folder):
    sent = (data_folder / "wire" / f"{name}.bin").read_bytes().removesuffix(CLOSE_BYTES)
    with start_server(echo).dial() as peer:
        peer.send(sent, CLOSE_BYTES)
        *answers, close = peer.take_all()
    assert close == (CLOSE, b"")
    kinds = [message_id for message_id, _ in answers]
    assert kinds.count(script.ACQUISITION) == 129
    assert kinds.count(script.WAVEFORM) == (12 if name == "external_acquisitions" else 0)
    # Readouts and waveforms come back in order and byte for byte: they are the end of what was sent.
    assert sent.endswith(b"".join(struct.pack("<H", message_id) + body for message_id, body in answers))
