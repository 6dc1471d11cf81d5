"""A real ``gadgetron-ebm serve`` with its worker, and small scans for it."""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from running_server import soon
from scripted_peer import CLOSE, CLOSE_BYTES, IMAGE, NAMED_CONFIG, TEXT, ScriptedPeer
from synthetic_scan import Protocol, lines_of

from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.messages import Image, Message, ScanHeader

logger = logging.getLogger(__name__)

QUICK = (
    *("--prior", "tv", "--device", "cpu", "--no-posterior"),
    *("--set", "solver.method=paper", "--set", "solver.iterations=3"),
)


def scan_pieces(n_slices: int = 3, *, n_y: int = 45) -> list[bytes]:
    """Return the bytes of a scan: config, header, each readout of each slice, CLOSE."""
    protocol = Protocol(
        encoded=(80, n_y, 1),
        encoded_fov=(240.0, 3.0 * n_y, 5.0),
        recon=(40, n_y, 1),
        recon_fov=(120.0, 3.0 * n_y, 5.0),
        limits={
            "kspace_encoding_step_1": (0, n_y - 1, n_y // 2),
            "slice": (0, n_slices - 1, n_slices // 2),
        },
    )
    kspace = protocol.kspace() + 0.05 * np.random.default_rng(3).normal(size=(3, n_y, 80))
    readouts = [readout for k in range(n_slices) for readout in lines_of(kspace, slice=k)]
    return [NAMED_CONFIG, *map(encode, [ScanHeader(protocol.xml()), *readouts]), CLOSE_BYTES]


def images(answers: list[tuple[int, bytes]]) -> list[Image]:
    """Return the images among the answers of a server."""
    decoder = MrdDecoder()
    for message_id, body in answers:
        if message_id == IMAGE:
            decoder.feed(message_id.to_bytes(2, "little") + body)
    found: list[Message] = list(decoder.messages())
    return [one for one in found if isinstance(one, Image)]


def texts(answers: list[tuple[int, bytes]]) -> list[str]:
    return [body.decode() for message_id, body in answers if message_id == TEXT]


class ServeProcess:
    """The program, listening on a free port."""

    def __init__(self, *options: str | Path) -> None:
        command = [sys.executable, "-m", "gadget.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from gadget.cli import main; main()", *command[3:], *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._logger = threading.Thread(target=self._read_log, daemon=True)
        self._logger.start()
        assert self.process.stdout is not None
        found = re.search(r"port (\d+)", self.process.stdout.readline())
        assert found, self.log
        self.address = ("127.0.0.1", int(found[1]))
        self.patience_s = 5.0
        """No scan takes longer, and no fault keeps anybody longer from having one."""

    @property
    def worker_pid(self) -> int | None:
        """The child of the program that reconstructs; libraries start others, as h5py does when it loads."""
        for path in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # that thread has just ended
                for pid in path.read_text().split():
                    if b"gadget.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        return None

    def is_ready(self) -> bool:
        """Wait until it is."""
        return soon(lambda: any(line.rstrip().endswith("ready") for line in self.log), 60)

    def warm_up(self) -> None:
        """Let it serve a scan, which on a busy machine tells how much patience with it is fair."""
        assert self.is_ready()
        self.answers(*scan_pieces(2))
        started = time.monotonic()
        self.answers(*scan_pieces(2))
        self.patience_s += 3 * (time.monotonic() - started)

    def dial(self, seconds: float = 30.0) -> ScriptedPeer:
        return ScriptedPeer.dial(self.address, seconds)

    def answers(self, *data: bytes) -> list[tuple[int, bytes]]:
        """Send bytes, and return what comes back up to the end."""
        with self.dial() as peer:
            peer.send(*data)
            return peer.take_all()

    def serves(self, n_slices: int = 1) -> bool:
        """Whether a scan is served now."""
        with self.dial(self.patience_s) as peer:
            peer.send(*scan_pieces(n_slices))
            answers = peer.take_all()
        is_served = len(images(answers)) == n_slices and answers[-1] == (CLOSE, b"")
        if not is_served:
            logger.error("%d images of %d, and %s", len(images(answers)), n_slices, texts(answers))
            logger.error("the server's log:\n%s", "".join(self.log[-40:]))
        return is_served

    def ends_within(self, seconds: float) -> int:
        """Return the exit code."""
        return self.process.wait(seconds)

    def close(self) -> None:
        """End it, if it has not ended; its worker must be gone soon after."""
        worker = self.worker_pid
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._logger.join(10)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        assert worker is None or soon(lambda: not is_alive(worker))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def resident_mib(pid: int) -> float:
    """Return the memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
