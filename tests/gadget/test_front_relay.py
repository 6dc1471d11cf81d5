"""Scans through the front to a worker process of its own, which dies, hangs or fails when told to."""

import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import scripted_peer as script
from running_server import QUICK, RunningServer, running_servers, soon
from scripted_peer import CLOSE, CLOSE_BYTES, IMAGE, SCAN_HEADER, TEXT, WAVEFORM, ScriptedPeer, readout

import gadget.front.supervisor
import gadget.front.worker_process
import gadget.worker.channel
import gadget.worker.scan_request
from gadget.answering import Peer
from gadget.errors import GadgetError, WorkerGoneError
from gadget.front.relay import Relay
from gadget.front.service import Service
from gadget.front.supervisor import Supervisor
from gadget.scan_watch import WatchFactory
from gadget.settings import Settings
from gadget.wire.messages import Message
from gadget.worker.channel import Channel
from gadget.worker.process import Worker

COMMAND = (sys.executable, str(Path(__file__).parent / "scripted_worker.py"))
READOUTS = [readout(counter=k) for k in range(5)]


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


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """Return one for a test whose workers die."""
    with supervising() as supervisor:
        yield supervisor


@pytest.fixture(scope="module")
def lasting() -> Iterator[Supervisor]:
    """Return one whose worker outlives every test that uses it."""
    with supervising() as supervisor:
        pid = supervisor.pid
        yield supervisor
        assert supervisor.pid == pid


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


@pytest.fixture
def run() -> Iterator[Callable[..., RunningServer]]:
    """Return a function that starts a front, which keeps the scans if told to."""
    with running_servers() as start:

        def front(
            supervisor: Supervisor, *, keeps: bool = False, prior: str = "tv", **options: object
        ) -> RunningServer:
            watches: list[WatchFactory] = [lambda _address: Record()] if keeps else []
            relay = Relay(
                supervisor,
                lambda *_head: Settings(seed=17, prior=prior),
                recorded if keeps else lambda _peer: None,
            )
            return start(relay, watch_factories=watches, **{"options": QUICK, **options})

        yield front


def answers_of(running: RunningServer, data: bytes) -> list[tuple[int, bytes]]:
    with running.dial() as peer:
        peer.send(data)
        return peer.take_all()


SERVED = [(k, "seed 17") for k in range(1, 6)]


def is_asked(supervisor: Supervisor) -> bool:
    """Whether somebody waits for an answer of the worker."""
    return bool(supervisor._worker.answers)


def test_a_scan_goes_to_the_worker_and_its_answers_come_back_while_it_is_sent(run, lasting):
    with run(lasting).dial() as peer:
        peer.send(config("echo"), SCAN_HEADER)
        for k in range(5):
            peer.send(waveform(k), READOUTS[k])
            assert peer.take_message() == (WAVEFORM, waveform(k)[2:])
            assert images([peer.take_message()]) == [SERVED[k]]
        peer.send(CLOSE_BYTES)
        assert peer.take_all() == [(CLOSE, b"")]


def test_a_scan_may_come_one_byte_at_a_time(run, lasting):
    with run(lasting).dial() as peer:
        peer.send_byte_by_byte(scan("echo"))
        assert images(peer.take_all()) == SERVED


def test_two_scans_at_once_interleave(run, lasting):
    running = run(lasting)
    with running.dial() as first, running.dial() as second:
        for peer in (first, second):
            peer.send(config("echo"), SCAN_HEADER)
        for k in range(5):
            for peer in (first, second):
                peer.send(READOUTS[k])
            for peer in (second, first):
                assert images([peer.take_message()]) == [SERVED[k]]
        for peer in (first, second):
            peer.send(CLOSE_BYTES)
            assert peer.take_all() == [(CLOSE, b"")]


def test_a_reason_of_the_worker_reaches_the_peer_as_it_is(run, lasting, caplog):
    running = run(lasting)
    answers = answers_of(running, scan("refuse"))
    assert images(answers) == SERVED[:2]
    assert texts(answers) == ["The trajectory is a Lissajous figure."]
    gadgetron = b"".join([script.GADGETRON_CONFIG, SCAN_HEADER, *READOUTS, CLOSE_BYTES])
    assert images(answers_of(running, gadgetron)) == SERVED
    assert running.has_ended_all()
    assert "failed: The trajectory is a Lissajous figure." in caplog.text


def test_an_unforeseen_failure_names_no_patient_and_its_place_is_in_the_log(run, lasting, caplog):
    running = run(lasting)
    (text,) = texts(answers_of(running, scan("fail")))
    assert "failed (ValueError)" in text
    assert images(answers_of(running, scan("echo"))) == SERVED
    assert soon(lambda: "scripted_worker.py" in caplog.text)  # logged in the worker, written here
    assert "Jane" not in caplog.text + text


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


def test_of_a_kept_scan_the_next_worker_makes_fallbacks_of_what_was_not_sent(run, supervisor, caplog):
    answers = answers_of(
        run(supervisor, keeps=True), scan("die", waveform(1), *READOUTS[:4], waveform(2), READOUTS[4])
    )
    reason = "the process that reconstructs ended with exit code 7"
    assert images(answers) == [*SERVED[:2], *[(k, reason) for k in range(3, 6)]]
    assert [body[12:16] for message_id, body in answers if message_id == WAVEFORM] == [
        struct.pack("<I", k) for k in (1, 2)
    ]
    (text,) = texts(answers)
    assert reason in text
    assert "fallbacks: root sums of squares" in text
    assert f"{reason}. Images that had not been sent yet are fallbacks" in caplog.text
    assert "send the scan again" not in caplog.text


def test_a_kept_scan_goes_on_as_it_comes_with_the_next_worker(run, supervisor):
    """The first worker dies while the peer pauses, so that the feed waits for the peer in two places."""
    with run(supervisor, keeps=True).dial() as peer:
        peer.send(config("die"), SCAN_HEADER, *READOUTS[:3])
        assert images([peer.take_message() for _ in range(2)]) == SERVED[:2]
        assert peer.take_message()[0] == TEXT
        assert images([peer.take_message()])[0][0] == 3
        for k in (3, 4):
            peer.send(READOUTS[k])
            assert images([peer.take_message()])[0][0] == k + 1
        peer.send(CLOSE_BYTES)
        assert peer.take_all() == [(CLOSE, b"")]


def test_a_kept_scan_that_kills_each_worker_is_given_up(run, supervisor, monkeypatch):
    monkeypatch.setattr(gadget.front.supervisor, "_PAUSES_S", (0.0,))
    running = run(supervisor, keeps=True)
    answers = answers_of(running, scan("always die"))
    assert [number for number, _ in images(answers)] == [1, 2]
    assert "5 times while it was at this scan, maybe at others, the process that" in texts(answers)[-1]
    assert images(answers_of(running, scan("echo"))) == SERVED


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


def test_a_kept_scan_gets_its_fallbacks_where_settings_that_are_tried_out_kill_the_worker(run, supervisor):
    with run(supervisor, keeps=True).dial() as peer:
        peer.send(config("echo"), SCAN_HEADER, *READOUTS[:2])
        assert images([peer.take_message() for _ in range(2)]) == SERVED[:2]
        with pytest.raises(WorkerGoneError):
            supervisor.load(Settings(prior="deadly"))
        peer.send(*READOUTS[2:], CLOSE_BYTES)
        answers = peer.take_all()
    reason = "the process that reconstructs ended with exit code 7"
    assert images(answers) == [(k, reason) for k in range(3, 6)]
    assert supervisor.n_restarts == 1


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


def test_a_kept_scan_outlives_workers_that_others_kill(run, supervisor, monkeypatch):
    monkeypatch.setattr(gadget.front.supervisor, "_PAUSES_S", (0.0,))
    running = run(supervisor, keeps=True)
    with running.dial() as peer:
        peer.send(config("echo"), SCAN_HEADER, waveform(1), READOUTS[0])
        assert peer.take_message()[0] == WAVEFORM
        assert images([peer.take_message()]) == SERVED[:1]
        for k in range(1, 4):
            os.kill(supervisor.pid, signal.SIGKILL)
            assert peer.take_message()[0] == TEXT
            peer.send(READOUTS[k])
            ((number, comment),) = images([peer.take_message()])
            assert (number, "was killed by SIGKILL" in comment) == (k + 1, True)
        peer.send(waveform(2), READOUTS[4], CLOSE_BYTES)
        assert [message_id for message_id, _ in peer.take_all()] == [WAVEFORM, IMAGE, CLOSE]


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


def test_gadgetron_hears_of_a_dead_worker_in_an_error(run, supervisor):
    with run(supervisor).dial() as peer:
        peer.send(script.GADGETRON_CONFIG, SCAN_HEADER, READOUTS[0])
        assert peer.take_message()[0] == IMAGE
        os.kill(supervisor.pid, signal.SIGKILL)
        (message_id, reason), close = peer.take_all()
    assert (message_id, close) == (script.ERROR, (CLOSE, b""))
    assert b"was killed by SIGKILL" in reason


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


@pytest.mark.parametrize("leave", [ScriptedPeer.vanish, ScriptedPeer.reset], ids=["closes", "resets"])
@pytest.mark.parametrize("tenth", range(10))
def test_a_peer_that_vanishes_at_any_tenth_costs_no_other_scan(tenth, leave, run, lasting):
    running = run(lasting)
    pid = lasting.pid
    data = scan("compute")
    peer = running.dial()
    peer.send(data[: len(data) * tenth // 10])
    time.sleep(0.02)
    leave(peer)
    started = time.monotonic()
    assert images(answers_of(running, scan("echo"))) == SERVED
    assert running.has_ended_all()
    assert time.monotonic() - started < 5
    assert lasting.pid == pid


def test_a_peer_that_vanishes_after_its_close_stops_the_worker(run, lasting, caplog):
    caplog.set_level(logging.DEBUG)
    running = run(lasting)
    peer = running.dial()
    peer.send(scan("compute"))
    assert peer.take_message()[0] == IMAGE
    peer.vanish()
    assert running.has_ended_all()
    assert images(answers_of(running, scan("echo"))) == SERVED


@pytest.mark.parametrize("leave", [ScriptedPeer.vanish, ScriptedPeer.reset], ids=["closes", "resets"])
def test_a_peer_that_vanishes_while_it_is_sent_images_leaves_nothing_running_in_the_worker(
    leave, run, lasting
):
    running = run(lasting, keeps=True)  # which keeps how it ended, with all that hangs on the failure
    peer = running.dial()
    peer.send(scan("flood"))
    assert peer.take_message()[0] == IMAGE
    leave(peer)
    assert running.has_ended_all()
    assert soon(lambda: texts(answers_of(running, scan("count", READOUTS[0]))) == ["1 running"])


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


def test_what_came_before_broken_bytes_is_answered_and_then_the_fault(run, lasting):
    answers = answers_of(run(lasting), scan("slow").removesuffix(CLOSE_BYTES) + b"\x4d\x00")
    assert images(answers) == SERVED
    assert "Unknown MRD message id 77" in texts(answers)[0]


def test_a_front_that_is_stopped_ends_a_scan_in_words(run, lasting):
    running = run(lasting)
    with running.dial() as peer:
        peer.send(scan("compute"))
        assert peer.take_message()[0] == IMAGE
        running.server.stop()
        assert "being stopped" in texts(peer.take_all())[0]
    running.thread.join(5)
    assert not running.thread.is_alive()


def test_a_peer_that_sends_faster_than_the_worker_reads_is_made_to_wait(run, lasting):
    """64 MiB to a worker that takes nothing: what the front holds stays far below."""
    running = run(lasting, options=QUICK)
    peer = running.dial()
    big = readout(4096, 8)

    def send() -> None:
        with contextlib.suppress(OSError):
            peer.send(config("compute"), SCAN_HEADER, *[big] * 6000)  # 1.5 GiB

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(1.0)
    try:
        assert sender.is_alive()
    finally:
        peer.sock.shutdown(2)
        peer.vanish()
        sender.join(20)
    # its end stands behind data that nobody takes, so only a stop of the server ends this scan
    running.close()
    assert not running.thread.is_alive()


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
