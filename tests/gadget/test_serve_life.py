"""How ``gadgetron-ebm serve`` starts and ends, with and without scans that run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import h5py
import numpy as np
import pytest
from scripted_peer import CLOSE, CLOSE_BYTES
from serve_process import QUICK, ServeProcess, images, is_alive, scan_pieces, soon, texts

CONFIG, HEADER, *READOUTS = scan_pieces(2)[:-1]


@pytest.fixture
def serve() -> Iterator[Callable[..., ServeProcess]]:
    with ExitStack() as stack:

        def start(*options: object) -> ServeProcess:
            server = ServeProcess(*map(str, options))
            stack.callback(server.close)
            return server

        yield start


def test_the_process_that_listens_has_no_torch():
    """So it listens within two seconds, and models load behind it."""
    program = (
        "import sys, gadget.cli, gadget.front.service, gadget.settings_source, gadget.spool.spool, "
        "gadget.operations.monitor; print([name for name in ('torch', 'scipy') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_scan_that_comes_before_the_worker_is_ready_waits_for_it_and_sigterm_ends_both(serve):
    server = serve(*QUICK)
    assert cpu_seconds(server.process.pid) < 2  # of its own; others may be slow on this machine
    with server.dial(60) as peer:
        assert not any("ready" in line for line in server.log)
        peer.send(*scan_pieces(2))
        assert len(images(peer.take_all())) == 2
    worker = server.worker_pid
    server.process.send_signal(signal.SIGTERM)
    assert server.ends_within(5) == 0
    assert not is_alive(worker)
    with pytest.raises(ConnectionError):
        server.dial()


@pytest.mark.slow
def test_sigterm_lets_the_running_scan_finish_within_its_time_and_then_ends_it_in_words(serve):
    server = serve(*QUICK, "--drain-s", "20")
    assert server.is_ready()
    with server.dial() as scan, server.dial() as late:
        for peer in (scan, late):
            peer.send(CONFIG, HEADER, *READOUTS[:45])
            assert len(images([peer.take_message()])) == 1
        server.process.send_signal(signal.SIGTERM)
        assert soon(lambda: any("stopping: 2 connections" in line for line in server.log))
        with pytest.raises(ConnectionError):
            server.dial()
        scan.send(*READOUTS[45:], CLOSE_BYTES)
        answers = scan.take_all()
        assert len(images(answers)) == 1
        assert answers[-1] == (CLOSE, b"")
        server.process.send_signal(signal.SIGTERM)  # again: now
        answers = late.take_all()
        assert "being stopped" in texts(answers)[-1]
        assert answers[-1] == (CLOSE, b"")
    assert server.ends_within(5) == 0


@pytest.mark.slow
def test_a_peer_that_is_half_open_for_long_is_told_and_left(serve):
    server = serve(*QUICK, "--idle-s", "1")
    assert server.is_ready()
    with server.dial(5) as peer:
        peer.send(CONFIG, HEADER, *READOUTS[:60])
        answers = peer.take_all()
    assert len(images(answers)) == 2  # that of the slice that is not complete, too
    assert "sent nothing for 1 s" in texts(answers)[-1]
    assert server.serves()


@pytest.mark.slow
def test_without_a_spool_a_worker_that_dies_is_told_at_once_and_the_next_scan_served(serve):
    server = serve(*QUICK)
    server.warm_up()
    worker = server.worker_pid
    with server.dial() as peer:
        peer.send(CONFIG, HEADER, *READOUTS[:60])
        assert len(images([peer.take_message()])) == 1
        started = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        answers = peer.take_all()
    assert time.monotonic() - started < 5
    (text,) = texts(answers)
    assert "was killed by SIGKILL" in text
    assert "serve --spool" in text
    with server.dial(60) as peer:  # the new worker loads
        peer.send(*scan_pieces(2))
        assert len(images(peer.take_all())) == 2
    assert server.worker_pid != worker


@pytest.mark.slow
def test_kill_9_leaves_no_orphan_and_a_readable_scan(serve, tmp_path, run):
    server = serve(*QUICK, "--spool", tmp_path / "scans")
    assert server.is_ready()
    worker = server.worker_pid
    with server.dial() as peer:
        peer.send(CONFIG, HEADER, *READOUTS[:60])
        (image,) = images([peer.take_message()])
        server.process.kill()
        assert soon(lambda: not is_alive(worker))
    (kept,) = (path for path in (tmp_path / "scans").iterdir() if path.suffix == ".stream")
    assert kept.stat().st_mode & 0o077 == 0
    code, out, err = run("replay", kept, tmp_path / "out.h5", *QUICK)
    assert code in (0, 3), err
    assert "2 images" in out  # that of the slice that is not complete, too
    assert "is incomplete: it breaks off after 62 whole messages" in err
    with h5py.File(tmp_path / "out.h5") as file:
        data = file.visititems(lambda name, item: item if name.endswith("data") else None)
        np.testing.assert_array_equal(np.squeeze(data[0]), np.squeeze(image.data))


@pytest.mark.slow
def test_a_server_whose_prior_does_not_load_ends_with_1_and_says_why(serve, tmp_path):
    (tmp_path / "prior").mkdir()
    (tmp_path / "prior" / "card.yaml").write_text("name: broken\n")
    server = serve("--prior", tmp_path / "prior")
    assert server.ends_within(60) == 1
    server.close()
    assert "prior/card.yaml is no valid card: version: Field required;" in server.log[-1]


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123  # a file of the kernel
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
