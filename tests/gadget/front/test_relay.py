"""Scans through the front to a worker process, which dies, hangs or fails when told to."""

import contextlib
import logging
import os
import signal
import struct
import threading
import time

import pytest
import scripted_peer as script
from front_scans import READOUTS, SERVED, answers_of, config, images, scan, texts, waveform
from running_server import QUICK, soon
from scripted_peer import CLOSE, CLOSE_BYTES, IMAGE, SCAN_HEADER, TEXT, WAVEFORM, ScriptedPeer, readout

import gadget.front.supervisor
import gadget.front.worker_process
import gadget.worker.channel
import gadget.worker.scan_request
from gadget.errors import WorkerGoneError
from gadget.settings import Settings


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


def test_gadgetron_hears_of_a_dead_worker_in_an_error(run, supervisor):
    with run(supervisor).dial() as peer:
        peer.send(script.GADGETRON_CONFIG, SCAN_HEADER, READOUTS[0])
        assert peer.take_message()[0] == IMAGE
        os.kill(supervisor.pid, signal.SIGKILL)
        (message_id, reason), close = peer.take_all()
    assert (message_id, close) == (script.ERROR, (CLOSE, b""))
    assert b"was killed by SIGKILL" in reason


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
