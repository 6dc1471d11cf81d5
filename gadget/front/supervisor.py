"""The front's side of the worker process: starts it, starts it again when it dies, and hands scans to it."""

import contextlib
import itertools
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gadget.errors import GadgetError, NobodyWaitsError
from gadget.settings import Settings
from gadget.worker.channel import Channel
from gadget.worker.log_lines import log_again
from gadget.worker.scan_request import ScanRequest, values_of

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "gadget.worker")
"""-P: what lies in the current folder is no part of the program."""

_ASK_EVERY_S = 0.1
_PAUSES_S = (0.0, 0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses before a worker is started again, by how many in a row have died young."""
_YOUNG_S = 30.0
_LOADING_S = 600.0
_END_S = 5.0
PING_AFTER_S = 10.0
"""A worker that has said nothing for so long is asked for a sign of life."""
SILENT_S = 300.0
"""One that then gives none for so long is ended; a slow disk or a device may hold it up for less."""


@dataclass(slots=True, eq=False)
class _Worker:
    """One process."""

    process: subprocess.Popen[bytes]
    channel: Channel
    loads: dict[int, str | None] = field(default_factory=dict)
    """How loading ended: empty where it was good; None while it goes on."""
    taken: set[int] = field(default_factory=set)
    """Scans that it has taken, by number, which nobody has looked for yet."""
    is_loaded: bool = False
    """Whether it has loaded what it was first asked for, or said why not."""
    is_gone: bool = False
    how_it_ended: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class HandedOver:
    """A scan that a worker has taken."""

    sock: socket.socket
    """At its other end the worker waits for the messages; to be closed by the one who has this."""
    how_the_worker_ended: Callable[[], str]
    """Says in words how that worker ended, and waits a little for that; empty: it has not."""


class Supervisor:
    """Keeps a worker running from :meth:`start` to :meth:`stop`.

    Parameters
    ----------
    command
        What starts a worker; its options are added as JSON.
    ping_after_s, silent_s
        After how long without a word a worker is asked for one, and how long it has for that.
    """

    def __init__(
        self,
        *,
        command: Sequence[str] = COMMAND,
        ping_after_s: float = PING_AFTER_S,
        silent_s: float = SILENT_S,
    ) -> None:
        self._command = tuple(command)
        self._ping_after_s = ping_after_s
        self._silent_s = silent_s
        self._changed = threading.Condition()  # guards what follows
        self._worker: _Worker | None = None
        self._stopping = False
        self._used: Settings | None = None
        """By the last scan; before the first one, those that were loaded first."""
        self._count = itertools.count(1)
        self.n_restarts = 0
        """How often a worker died and another one took its place."""
        self._thread = threading.Thread(target=self._keep_running, name="supervisor", daemon=True)

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while there is none."""
        worker = self._worker
        return None if worker is None else worker.process.pid

    @property
    def is_ready(self) -> bool:
        """Whether scans need not wait for a worker to start and load its prior."""
        worker = self._worker
        return worker is not None and worker.is_loaded

    def start(self) -> None:
        """Start a worker, and from now on another one whenever it dies."""
        self._thread.start()

    def stop(self) -> None:
        """End the worker at once; safe to call twice."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            worker = self._worker
        if worker is not None:
            worker.channel.hang_up()
        if self._thread.is_alive():
            self._thread.join()

    def load(self, settings: Settings) -> None:
        """Let the worker make these settings ready for use, and wait for it.

        A worker may die of something else meanwhile, so the next one is asked, too.

        Raises
        ------
        GadgetError
            They cannot be used, or two workers died over them.
        """
        worker, failure = self._load_once(settings)
        if failure is None and worker.is_gone:
            worker, failure = self._load_once(settings)
        if failure is None:
            raise GadgetError(
                f"The settings could not be loaded: the process that reconstructs {worker.how_it_ended}."
                if worker.is_gone
                else f"The settings could not be loaded within {_LOADING_S:g} s."
            )
        if failure:
            raise GadgetError(failure)
        self._used = self._used or settings

    def _load_once(self, settings: Settings) -> tuple[_Worker, str | None]:
        """Return the worker that was asked, and how loading ended; None where it did not."""
        number = next(self._count)
        worker = self._ready_worker(lambda: False)
        with self._changed:
            worker.loads[number] = None
        self._send(worker, {"load": number, "settings": values_of(settings)})
        with self._changed:
            self._changed.wait_for(lambda: worker.is_gone or worker.loads[number] is not None, _LOADING_S)
            return worker, worker.loads.pop(number)

    def hand_over(self, request: ScanRequest, cancelled: Callable[[], bool] = lambda: False) -> HandedOver:
        """Ask the worker for a scan, and the next one where it dies before it took it.

        Raises
        ------
        GadgetError
            There will be no worker, or ``cancelled`` turned true.
        """
        while True:
            worker = self._ready_worker(cancelled)
            own, other = socket.socketpair()
            try:
                with other:
                    is_taken = self._is_taken(worker, request, other, cancelled)
            except BaseException:
                own.close()
                raise
            if is_taken:
                self._used = request.settings
                return HandedOver(own, partial(self._end_of, worker))
            own.close()

    def _is_taken(
        self, worker: _Worker, request: ScanRequest, sock: socket.socket, cancelled: Callable[[], bool]
    ) -> bool:
        """Ask a worker for a scan; whether it took it, or died before."""
        number = next(self._count)
        if not self._send(worker, request.to_json() | {"number": number}, passed=sock):
            return False
        with self._changed:
            while not (number in worker.taken or worker.is_gone):
                if cancelled():
                    raise NobodyWaitsError
                self._changed.wait(_ASK_EVERY_S)
            is_taken = number in worker.taken
            worker.taken.discard(number)
            return is_taken

    def _ready_worker(self, cancelled: Callable[[], bool]) -> _Worker:
        with self._changed:
            while True:
                if self._stopping:
                    raise GadgetError("The server is being stopped; send the scan again later.")
                if cancelled():
                    raise NobodyWaitsError
                if self._worker is not None and not self._worker.is_gone:
                    return self._worker
                self._changed.wait(_ASK_EVERY_S)

    def _end_of(self, worker: _Worker) -> str:
        """Return how a worker ended, once it has; empty if it goes on."""
        with self._changed:
            self._changed.wait_for(lambda: worker.is_gone, _END_S)
            return worker.how_it_ended

    def _send(self, worker: _Worker, content: dict[str, Any], passed: socket.socket | None = None) -> bool:
        """Send a packet; where the worker has just died, wait for its end and return False."""
        try:
            worker.channel.send(content, passed=passed)
        except OSError:
            self._end_of(worker)
            return False
        return True

    def _keep_running(self) -> None:
        n_young = 0
        while not self._stopping:
            started = time.monotonic()
            try:
                worker = self._start_one()
                self._listen(worker)
                how_it_ended = self._bury(worker)
            except OSError as error:
                how_it_ended = f"could not be started ({error})"
            if self._stopping:
                return
            n_young = n_young + 1 if time.monotonic() - started < _YOUNG_S else 0
            pause = _PAUSES_S[min(n_young, len(_PAUSES_S) - 1)]
            logger.error(
                "the process that reconstructs %s; it is started again%s",
                how_it_ended,
                f" in {pause:g} s" if pause else "",
            )
            with self._changed:
                self.n_restarts += 1
                self._changed.wait_for(lambda: self._stopping, pause)

    def _start_one(self) -> _Worker:
        channel, other = Channel.pair()
        try:
            with other:
                options = json.dumps({"channel": other.fileno()})
                process = subprocess.Popen(
                    [*self._command, options],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=[other.fileno()],
                    start_new_session=True,
                )
        except OSError:
            channel.close()
            raise
        worker = _Worker(process, channel)
        with self._changed:
            self._worker = worker
            self._changed.notify_all()
        if self._stopping:
            channel.hang_up()
        if self._used is not None:  # so that the next scan need not wait for it
            with contextlib.suppress(OSError):  # it is gone, or told to go: this thread finds out in _listen
                worker.channel.send({"load": 0, "settings": values_of(self._used)})
        return worker

    def _listen(self, worker: _Worker) -> None:
        """Take in what the worker says until it is gone."""
        while (packet := self._next_packet(worker)) is not None:
            content, _ = packet
            match content:
                case {"log": line}:
                    log_again(line)
                case {"taken": number}:
                    with self._changed:
                        worker.taken.add(number)
                        self._changed.notify_all()
                case {"load": number, "failure": failure}:
                    with self._changed:
                        worker.is_loaded = True
                        if number in worker.loads:
                            worker.loads[number] = failure
                            self._changed.notify_all()
                    if failure and number == 0:
                        logger.error("%s", failure)

    def _next_packet(self, worker: _Worker) -> tuple[dict[str, Any], socket.socket | None] | None:
        """Wait for what the worker says next; None: it is gone, or was ended because it says nothing."""
        if not worker.channel.wait(self._ping_after_s):
            with contextlib.suppress(OSError):  # it is gone: the next look finds out
                worker.channel.send({"ping": 0})
            if not worker.channel.wait(self._silent_s):
                worker.how_it_ended = f"gave no sign of life for {self._silent_s:g} s and was ended"
                worker.process.kill()
                return None
        return worker.channel.receive()

    def _bury(self, worker: _Worker) -> str:
        """Make sure that the process has ended; return how."""
        try:
            code = worker.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            code = worker.process.wait()
        worker.channel.close()
        with self._changed:
            worker.how_it_ended = worker.how_it_ended or _in_words(code)
            worker.is_gone = True
            self._worker = None
            self._changed.notify_all()
        return worker.how_it_ended


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
