"""How a worker is started, asked, found dead or frozen, and replaced."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array

import pytest
from front_scans import (
    COMMAND,
    READOUTS,
    SERVED,
    answers_of,
    config,
    images,
    is_asked,
    scan,
    supervising,
    texts,
)
from running_server import soon
from scripted_peer import CLOSE_BYTES, IMAGE, SCAN_HEADER

import gadget.front.supervisor
import gadget.front.worker_process
import gadget.worker.channel
import gadget.worker.scan_request
from gadget.errors import GadgetError, WorkerGoneError
from gadget.front.service import Service
from gadget.front.supervisor import Supervisor
from gadget.settings import Settings
from gadget.worker.channel import Channel
from gadget.worker.process import Worker


@pytest.mark.parametrize(
    ("what", "how"),
    [("die", "ended with exit code 7"), ("killed", "was killed by SIGKILL, as the system does when memory")],
)
def test_a_worker_that_dies_is_replaced_the_peer_told_and_the_next_scan_served(
    what, how, run, supervisor, caplog
):
    running = run(supervisor)
    pid = supervisor.pid
    started = time.monotonic()
    answers = answers_of(running, scan(what))
    assert images(answers) == SERVED[:2]
    (text,) = texts(answers)
    assert text.startswith(f"The process that reconstructs {how}")
    assert "not kept on disk: send the scan again. A server that keeps scans (serve --spool) would" in text
    assert images(answers_of(running, scan("echo"))) == SERVED
    assert time.monotonic() - started < 5
    assert supervisor.pid not in (pid, None)
    assert supervisor.n_restarts == 1
    assert f"the process that reconstructs {how}" in caplog.text


def test_a_new_worker_is_ready_once_it_has_loaded_what_the_first_one_loaded(run, supervisor):
    running, pid = run(supervisor), supervisor.pid
    answers_of(running, scan("die"))
    assert soon(lambda: supervisor.is_ready)
    assert supervisor.pid != pid


@pytest.mark.parametrize("keeps", [False, True])
def test_a_scan_that_a_dying_worker_never_took_goes_to_the_next_one(keeps, run, supervisor):
    """It came while the worker was there, and did nothing any more; nothing of it is a fallback."""
    running, pid = run(supervisor, keeps=keeps), supervisor.pid
    os.kill(pid, signal.SIGSTOP)
    with running.dial() as peer:
        peer.send(scan("echo"))
        assert soon(lambda: is_asked(supervisor))
        os.kill(pid, signal.SIGKILL)
        answers = peer.take_all()
    assert images(answers) == SERVED
    assert texts(answers) == []


def test_a_scan_that_a_worker_never_takes_ends_with_its_peer(run, supervisor):
    running, pid = run(supervisor), supervisor.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        peer = running.dial()
        peer.send(scan("echo"))
        assert soon(lambda: is_asked(supervisor))
        peer.reset()
        assert running.has_ended_all()
        assert not is_asked(supervisor)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert images(answers_of(running, scan("echo"))) == SERVED


def test_a_worker_that_gives_no_sign_of_life_is_replaced(run, caplog):
    with supervising(ping_after_s=0.05, silent_s=5.0) as supervisor:
        running, pid = run(supervisor), supervisor.pid
        with running.dial() as peer:
            peer.send(scan("compute"))
            assert images([peer.take_message() for _ in range(2)]) == SERVED[:2]
            time.sleep(5.5)  # it computes in silence, and answers when it is asked
            assert supervisor.pid == pid
            os.kill(pid, signal.SIGSTOP)
            (text,) = texts(peer.take_all())
        assert "gave no sign of life for 5 s and was ended" in text
        assert images(answers_of(running, scan("echo"))) == SERVED
    assert "the process that reconstructs gave no sign of life" in caplog.text


def test_a_request_that_the_worker_cannot_read_is_told(run, lasting, monkeypatch):
    running = run(lasting)
    with monkeypatch.context() as patched:
        patched.setattr(gadget.worker.scan_request, "values_of", lambda _settings: {"no_such_setting": 1})
        (text,) = texts(answers_of(running, scan("echo")))
    assert "no_such_setting" in text
    assert images(answers_of(running, scan("echo"))) == SERVED


def test_a_frozen_worker_is_replaced_also_where_nothing_more_can_be_said_to_it(run):
    """It has read nothing until the buffer was full, as of many scans that came and went."""
    with supervising(ping_after_s=0.1, silent_s=5.0) as supervisor:
        running, frozen = run(supervisor), supervisor._worker
        os.kill(frozen.pid, signal.SIGSTOP)
        while frozen.sent({"load": 0, "settings": {}}):
            pass
        leaving = running.dial()
        leaving.send(scan("echo"))
        assert soon(lambda: is_asked(supervisor))
        leaving.reset()
        with running.dial() as peer:
            peer.send(scan("echo"))
            assert images(peer.take_all()) == SERVED
        assert running.has_ended_all()
        assert supervisor.pid != frozen.pid


def test_a_server_is_not_ready_while_its_worker_owes_a_sign_of_life():
    with supervising(ping_after_s=0.05, silent_s=60.0) as supervisor:
        pid = supervisor.pid
        assert supervisor.is_ready
        os.kill(pid, signal.SIGSTOP)
        assert soon(lambda: not supervisor.is_ready)
        os.kill(pid, signal.SIGCONT)
        assert soon(lambda: supervisor.is_ready)
        assert supervisor.pid == pid


@pytest.mark.parametrize("young_s", [30.0, 0.0], ids=["at once", "after a while"])
def test_workers_that_all_die_before_they_take_anything_are_told(young_s, run, supervisor, monkeypatch):
    monkeypatch.setattr(gadget.front.supervisor, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(gadget.front.supervisor, "_YOUNG_S", young_s)
    monkeypatch.setattr(supervisor, "_command", (sys.executable, "-c", "raise SystemExit(9)"))
    os.kill(supervisor.pid, signal.SIGKILL)
    running = run(supervisor, keeps=True)
    (text,) = texts(answers_of(running, scan("echo")))
    assert "The process that reconstructs ended with exit code 9, the last of several." in text


@pytest.mark.parametrize("what", ["scan", "scan without its socket", "load"])
def test_a_worker_without_room_for_a_request_says_so(what, monkeypatch):
    channel, other = Channel.pair()
    ours, theirs = socket.socketpair()
    worker = Worker(Channel(other), reconstruct=lambda *_: [], load=lambda _settings: None)

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    kind = what.partition(" ")[0]
    worker._begin({kind: 3, "settings": {}}, theirs if what == "scan" else None)
    content, _ = channel.receive()
    why = "too many open files" if what == "scan without its socket" else "can't start new thread"
    reason = f"The process that reconstructs has no room for one more: {why}. Send the scan again later."
    assert content == {"taken" if kind == "scan" else "load": 3, "failure": reason}
    if what == "scan":
        assert ours.recv(1) == b""
    for sock in (ours, theirs, other):
        sock.close()
    channel.close()


def test_a_scan_that_the_worker_has_no_room_for_is_told(run, lasting, monkeypatch):
    running = run(lasting)
    with monkeypatch.context() as patched:
        patched.setattr(gadget.worker.channel, "array", lambda kind, _handles: array(kind, []))
        (text,) = texts(answers_of(running, scan("echo")))
    assert "has no room for one more: too many open files. Send the scan again later." in text
    assert images(answers_of(running, scan("echo"))) == SERVED


def test_what_a_scan_used_that_killed_the_worker_is_not_what_the_next_one_loads(run, supervisor):
    answers = answers_of(run(supervisor, keeps=True, prior="deadly"), scan("die"))
    assert [number for number, _ in images(answers)] == [1, 2, 3, 4, 5]
    assert images(answers_of(run(supervisor), scan("echo"))) == SERVED
    assert soon(lambda: supervisor.is_ready)
    assert supervisor.n_restarts == 1


def test_scans_of_a_worker_that_cannot_be_ended_go_on_with_the_next_one(run, monkeypatch, caplog):
    """It is stopped here, and its kill does nothing, as of a process that waits for a broken device."""
    monkeypatch.setattr(gadget.front.worker_process, "_END_S", 0.2)
    with supervising(ping_after_s=0.05, silent_s=5.0) as supervisor:
        process = supervisor._worker._process
        monkeypatch.setattr(process, "kill", lambda: None)
        with run(supervisor, keeps=True).dial() as peer:
            peer.send(config("echo"), SCAN_HEADER, *READOUTS[:2])
            assert images([peer.take_message() for _ in range(2)]) == SERVED[:2]
            os.kill(process.pid, signal.SIGSTOP)
            assert b"did not end when it was killed" in peer.take_message()[1]
            peer.send(*READOUTS[2:], CLOSE_BYTES)
            assert [number for number, _ in images(peer.take_all())] == [3, 4, 5]
        monkeypatch.undo()
        process.kill()
        process.wait(10)
    assert f"(process {process.pid}) and was left behind; it is started again" in caplog.text


def test_what_a_dead_worker_said_is_heard_though_it_left_something_unread():
    channel, sock = Channel.pair()
    other = Channel(sock)
    other.send({"log": "last words"})
    channel.send({"ping": 0})
    other.close()
    assert channel.receive() == ({"log": "last words"}, None)
    assert channel.receive() is None
    channel.close()


class SettingsThatAre:
    """A source of settings whose check ends as it is told, one time after another."""

    def __init__(self, *outcomes: GadgetError | None) -> None:
        self.outcomes = list(outcomes)

    def for_scan(self, *_head: object) -> Settings:
        return Settings()

    def verify(self) -> None:
        if (outcome := self.outcomes.pop(0)) is not None:
            raise outcome

    def request_reload(self) -> None:
        pass


@pytest.mark.parametrize("second", [None, WorkerGoneError("It died again.")], ids=["good", "deadly"])
def test_what_a_server_starts_with_is_tried_out_again_where_a_worker_died_meanwhile(second):
    settings = SettingsThatAre(WorkerGoneError("It died."), second)
    service = Service(
        lambda _check: settings, hosts=("127.0.0.1",), port=0, supervisor=Supervisor(command=COMMAND)
    )
    failures = []

    def serve() -> None:
        try:
            service.run()
        except GadgetError as error:
            failures.append(error)

    serving = threading.Thread(target=serve)
    serving.start()
    assert soon(lambda: not settings.outcomes)
    if second is None:
        service.stop()
    serving.join(20)
    assert not serving.is_alive()
    assert failures == ([] if second is None else [second])


def test_a_worker_that_is_started_while_all_is_stopped_holds_nothing_up(monkeypatch):
    monkeypatch.setattr(gadget.front.supervisor, "_END_S", 60.0)
    start = subprocess.Popen
    starts = []
    with supervising() as supervisor:

        def stopped_meanwhile(*arguments, **options):
            starts.append(start(*arguments, **options))
            supervisor._stopping = True
            return starts[-1]

        monkeypatch.setattr(subprocess, "Popen", stopped_meanwhile)
        os.kill(supervisor.pid, signal.SIGKILL)
        assert soon(lambda: starts)
        began = time.monotonic()
    assert time.monotonic() - began < 30
    assert [one.poll() is None for one in starts] == [False]


def test_a_worker_that_does_not_stop_is_replaced(run, supervisor, caplog):
    running = run(supervisor)
    pid = supervisor.pid
    peer = running.dial()
    peer.send(scan("hang"))
    assert peer.take_message()[0] == IMAGE
    peer.vanish()
    assert running.has_ended_all()
    assert soon(lambda: supervisor.pid not in (pid, None))
    assert images(answers_of(running, scan("echo"))) == SERVED
    assert "did not stop within 3 s" in caplog.text
    assert "ended with exit code 3" in caplog.text


def test_settings_that_cannot_be_loaded_are_told(supervisor):
    supervisor.load(Settings())
    with pytest.raises(GadgetError, match=r"prior: 'broken' is broken; mend it\."):
        supervisor.load(Settings(prior="broken"))
    with pytest.raises(GadgetError, match=r"could not be loaded: .* ended with exit code 7"):
        supervisor.load(Settings(prior="deadly"))
    supervisor.load(Settings())


def test_the_worker_ignores_what_ends_the_front_and_ends_with_its_channel(supervisor):
    supervisor.load(Settings())
    pid = supervisor.pid
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    supervisor.load(Settings())
    assert supervisor.pid == pid
    started = time.monotonic()
    supervisor.stop()
    assert time.monotonic() - started < 2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(GadgetError, match="being stopped"):
        supervisor.load(Settings())


def test_a_program_that_cannot_be_started_is_tried_again_and_told(caplog):
    supervisor = Supervisor(command=("/no/such/program",))
    supervisor.start()
    try:
        assert soon(lambda: "could not be started" in caplog.text)
        assert soon(lambda: "it is started again in 1 s" in caplog.text)
    finally:
        supervisor.stop()
