"""Peers that end one direction of their connection, or all of it, or whose cable is pulled."""

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import scripted_peer as script
from running_server import ECHO, SCAN, echo, soon
from scripted_peer import CLOSE, CLOSE_BYTES, NAMED_CONFIG, SCAN_HEADER, readout

from gadget.answering import Peer
from gadget.wire.messages import Message

KEEP_ALIVE, KEEP_ALIVE_IDLE_S = 2, 30.0


def test_a_peer_that_ends_its_direction_behind_its_close_gets_all_answers(start_server, caplog):
    asked: list[bool] = []

    def late(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        answers = list(echo(messages, peer))
        time.sleep(0.3)  # the end of its direction has come
        for answer in answers:
            asked.append(peer.cancelled())
            yield answer

    running = start_server(late)
    with running.dial() as peer:
        peer.send(SCAN)
        peer.sock.shutdown(socket.SHUT_WR)
        assert peer.take_all() == ECHO
    assert running.has_ended_all()
    assert asked == [False] * 5
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_probe_that_ends_its_direction_is_normal(start_server, caplog):
    with start_server(echo).dial() as peer:
        peer.send(NAMED_CONFIG, CLOSE_BYTES)
        peer.sock.shutdown(socket.SHUT_WR)
        assert peer.take_all() == [(CLOSE, b"")]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_end_of_its_direction_before_close_is_that_of_a_peer_that_vanished(start_server, caplog):
    running = start_server(echo)
    with running.dial() as peer:
        peer.send(SCAN[:-2])
        peer.sock.shutdown(socket.SHUT_WR)
        peer.is_at_end_soon()
    assert running.has_ended_all()
    assert "failed: The connection ended without CLOSE" in caplog.text


def test_a_peer_that_vanishes_behind_its_close_is_found_out_by_the_first_answers(start_server, caplog):
    """Until then it looks like one that only ended its direction."""
    gone, stopped = threading.Event(), threading.Event()

    def one_by_one(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        answers = list(echo(messages, peer))
        gone.wait(5)
        yield answers[0]
        while not peer.cancelled():
            time.sleep(0.01)
        stopped.set()
        yield answers[1]

    running = start_server(one_by_one)
    peer = running.dial()
    peer.send(SCAN)
    peer.vanish()
    gone.set()
    assert stopped.wait(5)
    assert running.has_ended_all()
    assert "failed: The peer closed the connection before it had our CLOSE" in caplog.text


def test_stopping_tells_a_peer_that_has_ended_its_direction(start_server):
    started = threading.Event()

    def compute(messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        list(messages)
        started.set()
        while not peer.cancelled():
            time.sleep(0.01)
        yield from ()

    running = start_server(compute)
    with running.dial() as peer:
        peer.send(SCAN)
        peer.sock.shutdown(socket.SHUT_WR)
        assert started.wait(5)
        running.server.stop()
        (message_id, reason), close = peer.take_all()
    assert (message_id, close) == (script.TEXT, (CLOSE, b""))
    assert b"being stopped" in reason
    running.thread.join(5)
    assert not running.thread.is_alive()


def test_the_kernel_asks_a_silent_peer_whether_it_is_there(start_server):
    """The timer of keep-alive runs on the accepted socket, and asks within half a minute."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the kernel's table of connections is Linux's")
    running = start_server(echo)
    with running.dial() as peer:
        peer.send(NAMED_CONFIG, SCAN_HEADER, readout())
        assert peer.take_message() == ECHO[0]
        ends = (running.server.addresses[0][1], peer.sock.getsockname()[1])
        assert soon(lambda: timer_of(ends)[0] == KEEP_ALIVE)  # once our answer is acknowledged
        assert 0 < timer_of(ends)[1] <= KEEP_ALIVE_IDLE_S


def timer_of(ends: tuple[int, int]) -> tuple[int, float]:
    """Return what timer the kernel runs on a connection between two ports, and its seconds."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if tuple(int(end.partition(":")[2], 16) for end in words[1:3]) == ends:
            kind, ticks = (int(part, 16) for part in words[5].split(":"))
            return kind, ticks / os.sysconf("SC_CLK_TCK")
    raise AssertionError(f"no connection {ends}")


PULLED_CABLE = """
import fcntl, logging, socket, struct, sys, time

from gadget import connection_options
from running_server import NAMED_CONFIG, SCAN_HEADER, CLOSE_BYTES, RunningServer, readout

UP, SET_FLAGS = 1, 0x8914


def cable(flags):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", flags))


connection_options.KEEP_ALIVE.update(TCP_KEEPIDLE=1, TCP_KEEPINTVL=1, TCP_KEEPCNT=2)
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
cable(UP)
running = RunningServer()
peer = running.dial()
peer.send(NAMED_CONFIG, SCAN_HEADER, readout())
peer.take_message()
time.sleep(0.2)
cable(0)
ended = running.has_ended_all()
cable(UP)
running.close()
peer.vanish()
print("ended" if ended else "still there")
"""


@pytest.mark.slow
def test_a_pulled_cable_ends_the_connection():
    """In a network of its own, whose only interface goes down in the middle of a scan."""
    unshare = [shutil.which("unshare") or "unshare", "--map-root-user", "--net"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives no network of one's own")
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), *filter(None, sys.path)])
    shown = subprocess.run(
        [*unshare, sys.executable, "-c", PULLED_CABLE],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.stdout.splitlines()[-1:] == ["ended"], shown
    assert "failed: The connection was lost while we read" in shown.stdout
