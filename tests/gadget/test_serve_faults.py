"""``gadgetron-ebm serve`` as it runs, with torch in its worker: peers at fault cost nobody else a scan."""

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import scripted_peer as script
from captured_scans import assert_is_phantom, captured, images_of, root_sum_of_squares
from scripted_peer import CLOSE, CLOSE_BYTES, IMAGE, TEXT, ScriptedPeer
from serve_process import QUICK, ServeProcess, images, resident_mib, scan_pieces, soon, texts

SCAN = scan_pieces(2)
CONFIG, HEADER, *READOUTS = SCAN[:-1]


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[ServeProcess]:
    server = ServeProcess(*QUICK, "--spool", tmp_path_factory.mktemp("spool") / "scans")
    try:
        server.warm_up()
        yield server
        assert server.process.poll() is None
    finally:
        server.close()


def not_a_number(piece: bytes) -> bytes:
    """Put NaN into the samples of a readout."""
    return piece[:-8] + struct.pack("<ff", np.nan, np.nan)


FAULTS = {
    "garbage id": ([CONFIG, HEADER, *READOUTS, b"\x4d\x00"], 2, "Unknown MRD message id 77"),
    "length of all ones": (
        [CONFIG, HEADER, *READOUTS, struct.pack("<HI", TEXT, 2**32 - 1)],
        2,
        "claims 4294967295 bytes",
    ),
    "header twice": ([CONFIG, HEADER, *READOUTS[:45], HEADER], 1, "ScanHeader out of turn"),
    "header missing": ([CONFIG, *READOUTS], 0, "Acquisition out of turn"),
    "config twice": ([CONFIG, CONFIG], 0, "ConfigFile out of turn"),
    "header that is none": (
        [CONFIG, script.text_message(script.HEADER, b"<ismrmrdHeader/>"), *READOUTS, CLOSE_BYTES],
        0,
        "encod",
    ),
    "NaN pixels": ([CONFIG, HEADER, *map(not_a_number, READOUTS), CLOSE_BYTES], None, None),
    "config missing": ([HEADER, *READOUTS, CLOSE_BYTES], 2, None),
    "no data": ([CONFIG, HEADER, CLOSE_BYTES], 0, None),
    "close at once": ([CLOSE_BYTES], 0, None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_and_the_next_scan_served(fault, served):
    data, n_images, reason = FAULTS[fault]
    started = time.monotonic()
    answers = served.answers(*data)
    assert answers[-1] == (CLOSE, b"")
    if n_images is not None:
        assert len(images(answers)) == n_images
    if reason is None:
        assert images(answers) or texts(answers) or not n_images
    else:
        assert reason in texts(answers)[-1]
    assert served.serves()
    assert time.monotonic() - started < served.patience_s


@pytest.mark.parametrize("leave", [ScriptedPeer.vanish, ScriptedPeer.reset], ids=["closes", "resets"])
def test_peers_that_vanish_at_every_tenth_cost_no_scan(leave, served):
    data, pid = b"".join(SCAN), served.worker_pid
    for tenth in range(10):
        peer = served.dial()
        peer.send(data[: len(data) * tenth // 10])
        leave(peer)
    started = time.monotonic()
    assert served.serves()
    assert time.monotonic() - started < served.patience_s
    assert served.worker_pid == pid


def test_a_half_open_peer_holds_nobody_up(served):
    with served.dial(), served.dial() as half_a_scan:
        half_a_scan.send(*SCAN[:30])
        assert served.serves()


def test_a_scan_may_come_one_byte_a_packet(served):
    started = time.monotonic()
    with served.dial() as peer:
        peer.send(CONFIG)
        peer.send_byte_by_byte(HEADER + READOUTS[0])
        peer.send(*READOUTS[1:], CLOSE_BYTES)
        assert len(images(peer.take_all())) == 2
    assert time.monotonic() - started < served.patience_s


def test_a_client_that_ends_its_direction_behind_its_close_gets_its_images(served):
    with served.dial() as peer:
        peer.send(*SCAN)
        peer.sock.shutdown(socket.SHUT_WR)
        answers = peer.take_all()
    assert len(images(answers)) == 2
    assert texts(answers) == []


@pytest.mark.parametrize("name", ["client_gadgetron", "client_fire"])
def test_what_real_clients_sent_gives_the_right_images(name, served, data_folder):
    answers = served.answers((data_folder / "wire" / f"{name}.bin").read_bytes())
    expected = root_sum_of_squares(captured(data_folder, "external_acquisitions")[1])
    assert [number for number, _ in answers] == [IMAGE, IMAGE, CLOSE]
    assert_is_phantom(images_of(answers), expected)


def test_two_at_once_get_their_images_in_between_each_other(served):
    with served.dial() as first, served.dial() as second:
        for peer in (first, second):
            peer.send(CONFIG, HEADER)
        for k in range(2):
            for peer in (first, second):
                peer.send(*READOUTS[45 * k : 45 * k + 45])
            for peer in (second, first):
                (image,) = images([peer.take_message()])
                assert int(image.header["slice"]) == k
        for peer in (first, second):
            peer.send(CLOSE_BYTES)
            assert peer.take_all() == [(CLOSE, b"")]


def test_both_of_two_that_come_at_once_get_the_same_images_as_one_alone(served):
    alone = images(served.answers(*SCAN))
    got: list[list[tuple[int, bytes]]] = []
    threads = [threading.Thread(target=lambda: got.append(served.answers(*SCAN))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(alone) == 2
    for answers in got:
        for one, other in zip(images(answers), alone, strict=True):
            np.testing.assert_array_equal(one.data, other.data)


@pytest.mark.slow
def test_memory_stays_flat_over_fifty_connections_of_changing_sizes(served):
    """35 more scans add less than 8 MiB to either process; they bring 30 MiB."""
    scans = [b"".join(scan_pieces(1 + k % 3, n_y=31 + 24 * (k % 5))) for k in range(15)]
    pids = (served.process.pid, served.worker_pid)

    def serve(n: int) -> list[float]:
        for k in range(n):
            assert images(served.answers(scans[k % len(scans)]))
        return [resident_mib(pid) for pid in pids]

    before = serve(15)
    after = serve(35)
    assert served.worker_pid == pids[1]
    for one, other in zip(before, after, strict=True):
        assert other - one < 8, (before, after)


@pytest.mark.slow
def test_a_worker_killed_in_a_scan_is_replaced_and_the_rest_of_the_scan_gets_fallbacks(served):
    pid = served.worker_pid
    with served.dial(60) as peer:
        peer.send(CONFIG, HEADER, *READOUTS[:45])
        (first,) = images([peer.take_message()])
        peer.send(*READOUTS[45:70])
        os.kill(pid, signal.SIGKILL)
        peer.send(*READOUTS[70:], CLOSE_BYTES)
        answers = peer.take_all()
    (second,) = images(answers)
    assert [int(one.header["slice"]) for one in (first, second)] == [0, 1]
    assert "FALLBACK" in second.meta
    assert "was killed by SIGKILL" in second.meta
    assert any("was killed by SIGKILL" in text for text in texts(answers))
    assert soon(lambda: served.worker_pid not in (pid, None))
    assert served.serves(2)
    assert any("the process that reconstructs was killed by SIGKILL" in line for line in served.log)
    expected = root_sum_of_squares_of(READOUTS[45:])
    scale = np.linalg.norm(expected) / np.linalg.norm(second.data)
    np.testing.assert_allclose(scale * second.data[0, 0], expected, atol=1e-4 * expected.max())


def root_sum_of_squares_of(readouts: list[bytes]) -> np.ndarray:
    """Return the image of a slice of 3 coils, 45 lines and 80 samples, twice as many as are shown."""
    lines = [np.frombuffer(one[-3 * 80 * 8 :], "<c8").reshape(3, 80) for one in readouts]
    kspace = np.fft.ifftshift(np.stack(lines, axis=1), (1, 2))
    coil_images = np.fft.fftshift(np.fft.ifft2(kspace), (1, 2))[..., 20:60]
    return np.sqrt((np.abs(coil_images) ** 2).sum(0))


def test_none_of_these_faults_was_a_bug_of_ours(served):
    lines = [line for line in served.log if "Traceback" in line or "this is a bug" in line]
    assert lines == []
