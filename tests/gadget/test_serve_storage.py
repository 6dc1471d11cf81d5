"""``gadgetron-ebm serve`` when disk, memory or the files of its prior fail it in the middle of a scan."""

import resource
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from scripted_peer import CLOSE, CLOSE_BYTES
from serve_process import QUICK, ServeProcess, images, scan_pieces, soon, texts

from gadget.configs import config_folder
from gadget.image_meta import read_meta
from gadget.spool.manifest import read_manifest

MIB = 2**20
CONFIG, HEADER, *READOUTS = scan_pieces(2)[:-1]
FIRST, SECOND = READOUTS[:45], READOUTS[45:]

pytestmark = pytest.mark.slow


@pytest.fixture
def serve():
    running: list[ServeProcess] = []

    def start(*options: object) -> ServeProcess:
        running.append(ServeProcess(*map(str, options)))
        running[-1].warm_up()
        return running[-1]

    yield start
    for server in running:
        server.close()
        assert server.process.returncode == 0


def logged(server: ServeProcess, words: str) -> list[str]:
    return [line for line in server.log if words in line]


def kinds(answers: list[tuple[int, bytes]]) -> list[str]:
    return [read_meta(one)["EBM_Image"] for one in images(answers)]


def test_a_disk_that_fills_up_costs_no_image_and_is_told(serve, small_disk):
    """Its 64 KiB are less than one scan; two came before, as each server is warmed up."""
    server = serve(*QUICK, "--spool", small_disk)
    for n in (3, 4):
        started = time.monotonic()
        answers = server.answers(CONFIG, HEADER, *READOUTS, CLOSE_BYTES)
        assert kinds(answers) == ["RECONSTRUCTED"] * 2
        assert answers[-1] == (CLOSE, b"")
        assert time.monotonic() - started < server.patience_s
        assert len(logged(server, "No space left on device. The scan goes on.")) == n
    assert not texts(answers)
    for stream in small_disk.glob("*.stream"):
        stream.unlink()
    assert soon(lambda: len(list(read_manifest(small_disk))) == 4, 20)
    assert all("No space left on device" in one.kept for one in read_manifest(small_disk))


def test_a_prior_that_is_replaced_by_a_broken_one_stays_in_use(serve, tmp_path):
    folder = tmp_path / "prior"
    shutil.copytree(config_folder() / "priors" / "brain-local", folder)
    server = serve("--prior", folder, *QUICK[2:])
    with server.dial() as peer:
        peer.send(CONFIG, HEADER, *FIRST)
        first = [peer.take_message()]
        (folder / "prior.safetensors").write_bytes(b"broken")
        peer.send(*SECOND, CLOSE_BYTES)
        answers = peer.take_all()
    assert kinds(first) + kinds(answers) == ["RECONSTRUCTED"] * 2
    assert not logged(server, "cannot be used")
    started = time.monotonic()
    again = server.answers(CONFIG, HEADER, *READOUTS, CLOSE_BYTES)
    assert time.monotonic() - started < server.patience_s
    assert {read_meta(one)["EBM_Prior"] for one in images(again)} == {"brain-local"}
    np.testing.assert_array_equal(images(again)[0].data, images(first)[0].data)
    assert len(logged(server, "have changed and cannot be used")) == 1
    assert logged(server, "stays in use")


def test_memory_that_runs_out_gives_fallbacks_and_the_next_scan_is_served(serve):
    """The system allows the worker hardly more address space than it has; the scan needs a hundred MiB.

    One thread: where OpenMP cannot have the stack of a second one, it ends the process.
    """
    server = serve(*QUICK, "--set", "threads=1")
    large = scan_pieces(2, n_y=1501)
    assert server.serves(3)
    pid = server.worker_pid
    assert pid is not None
    n_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    now = n_pages * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (now + 10 * MIB, resource.RLIM_INFINITY))
    started = time.monotonic()
    answers = server.answers(*large)
    assert kinds(answers) == ["FALLBACK"] * 2
    assert ["out of memory" in text for text in texts(answers)] == [True] * 2
    assert answers[-1] == (CLOSE, b"")
    resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert server.serves(2)
    assert time.monotonic() - started < 2 * server.patience_s
    assert server.worker_pid == pid
