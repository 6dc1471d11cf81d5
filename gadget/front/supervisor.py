"""The front's side of the worker: starts it, starts it again when it dies, and hands scans to it."""

import contextlib
import itertools
import logging
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gadget.errors import GadgetError, NobodyWaitsError, WorkerGoneError
from gadget.front.worker_process import WorkerProcess
from gadget.settings import Settings
from gadget.worker.log_lines import log_again
from gadget.worker.scan_request import ScanRequest, values_of

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "gadget.worker")
"""-P: what lies in the current folder is no part of the program."""
PING_AFTER_S = 10.0
"""A worker that has said nothing for so long is asked for a sign of life."""
SILENT_S = 300.0
"""One that then gives none for so long is ended; a slow disk or a device may hold it up for less."""

_ASK_EVERY_S = 0.1
_PAUSES_S = (0.0, 0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Pauses before a worker is started again, by how many in a row have died young."""
_YOUNG_S = 30.0
_LOADING_S = 600.0
_END_S = 5.0
_MOST_DEATHS = 5
"""Where so many workers in a row died young, or did not start, whoever waits for one is told."""


@dataclass(frozen=True, slots=True, eq=False)
class HandedOver:
    """A scan that a worker has taken."""

    sock: socket.socket
    """At its other end the worker waits for the messages; to be closed by the one who has this."""
    worker: WorkerProcess
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
        self._worker: WorkerProcess | None = None
        self._stopping = False
        self._first: Settings | None = None
        """Those that were loaded first, which each worker loads by itself; it may die of others."""
        self._count = itertools.count(1)
        self.n_restarts = 0
        """How often a worker died and another one took its place."""
        self._n_young = 0
        """How many died young, one after another, up to now."""
        self._last_end = ""
        self._thread = threading.Thread(target=self._keep_running, name="supervisor", daemon=True)

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while there is none."""
        worker = self._worker
        return None if worker is None else worker.pid

    @property
    def is_ready(self) -> bool:
        """Whether scans need not wait for a worker to start and load its prior, or to come to life."""
        worker = self._worker
        return worker is not None and worker.is_loaded and not worker.is_overdue

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
            worker.hang_up()
        if self._thread.is_alive():
            self._thread.join()

    def load(self, settings: Settings) -> None:
        """Let the worker make these settings ready for use, and wait for it.

        Raises
        ------
        WorkerGoneError
            The worker died meanwhile.
        GadgetError
            They cannot be used, or there will be no worker.
        """
        worker = self._next_worker(self.n_restarts)
        failure = self._ask(worker, "load", {"settings": values_of(settings)}, seconds=_LOADING_S)
        if failure is None:
            if worker.is_gone:
                raise WorkerGoneError(
                    f"The settings could not be loaded: the process that reconstructs {worker.how_it_ended}."
                )
            raise GadgetError(f"The settings could not be loaded within {_LOADING_S:g} s.")
        if failure:
            raise GadgetError(failure)
        self._first = self._first or settings

    def hand_over(self, request: ScanRequest, cancelled: Callable[[], bool] = lambda: False) -> HandedOver:
        """Ask the worker for a scan, and the next one where it dies before it took it.

        Raises
        ------
        GadgetError
            There will be no worker, none stays alive for long enough to take it, the worker has no room for
            it, or ``cancelled`` turned true.
        """
        n_restarts = self.n_restarts
        while True:
            worker = self._next_worker(n_restarts, cancelled)
            own, other = socket.socketpair()
            try:
                with other:
                    failure = self._ask(worker, "scan", request.to_json(), passed=other, cancelled=cancelled)
                if failure:
                    raise GadgetError(failure)
            except BaseException:
                own.close()
                raise
            if failure is not None:
                return HandedOver(own, worker, partial(self._end_of, worker))
            own.close()

    def _next_worker(self, n_restarts: int, cancelled: Callable[[], bool] = lambda: False) -> WorkerProcess:
        """Wait for a worker, unless there is no sense in it.

        That is where many died since the number of restarts was this, or one did of many in a row that died
        young.
        """
        with self._changed:
            while True:
                if self._stopping:
                    raise GadgetError("The server is being stopped; send the scan again later.")
                if cancelled():
                    raise NobodyWaitsError
                n_deaths = self.n_restarts - n_restarts
                if n_deaths >= _MOST_DEATHS or (n_deaths and self._n_young >= _MOST_DEATHS):
                    raise GadgetError(
                        f"The process that reconstructs {self._last_end}, the last of several. "
                        "The settings of the server or its machine are at fault; its log says more. A server "
                        "that keeps scans (serve --spool) has what came of this one."
                    )
                if self._worker is not None and not self._worker.is_gone:
                    return self._worker
                self._changed.wait(_ASK_EVERY_S)

    def _ask(
        self,
        worker: WorkerProcess,
        what: str,
        content: dict[str, Any],
        *,
        passed: socket.socket | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        seconds: float = math.inf,
    ) -> str | None:
        """Ask a worker for something and return its answer; None: it died, or the time is over."""
        number = next(self._count)
        until = time.monotonic() + seconds
        with self._changed:
            worker.answers[number] = None
        try:
            while not worker.sent(content | {what: number}, passed):
                self._wait_for(worker, cancelled)
            with self._changed:
                while worker.answers[number] is None and not worker.is_gone and time.monotonic() < until:
                    self._wait_for(worker, cancelled)
                return worker.answers[number]
        except OSError:  # it has just died
            self._end_of(worker)
            return None
        finally:
            with self._changed:
                del worker.answers[number]

    def _wait_for(self, worker: WorkerProcess, cancelled: Callable[[], bool]) -> None:
        """Wait a moment for a worker."""
        if cancelled():
            raise NobodyWaitsError
        with self._changed:
            if not worker.is_gone:
                self._changed.wait(_ASK_EVERY_S)

    def _end_of(self, worker: WorkerProcess) -> str:
        """Return how a worker ended, once it has; empty if it goes on."""
        with self._changed:
            self._changed.wait_for(lambda: worker.is_gone, _END_S)
            return worker.how_it_ended

    def _keep_running(self) -> None:
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
            n_young = self._n_young + 1 if time.monotonic() - started < _YOUNG_S else 0
            pause = _PAUSES_S[min(n_young, len(_PAUSES_S) - 1)]
            logger.error(
                "the process that reconstructs %s; it is started again%s",
                how_it_ended,
                f" in {pause:g} s" if pause else "",
            )
            with self._changed:
                self._last_end, self._n_young = how_it_ended, n_young
                self.n_restarts += 1
                self._changed.wait_for(lambda: self._stopping, pause)

    def _start_one(self) -> WorkerProcess:
        worker = WorkerProcess(self._command)
        if self._first is not None:  # so that the next scan need not wait for it
            with contextlib.suppress(OSError):  # it is gone: this thread finds out in _listen
                worker.sent({"load": 0, "settings": values_of(self._first)})
        with self._changed:
            self._worker = worker
            self._changed.notify_all()
        if self._stopping:
            worker.hang_up()
        return worker

    def _listen(self, worker: WorkerProcess) -> None:
        """Take in what the worker says until it is gone."""
        while (content := worker.next_packet(self._ping_after_s, self._silent_s)) is not None:
            match content:
                case {"log": line}:
                    log_again(line)
                case {"taken": number, "failure": failure}:
                    self._answered(worker, number, failure)
                case {"load": number, "failure": failure}:
                    worker.is_loaded = True
                    self._answered(worker, number, failure)
                    if failure and number == 0:
                        logger.error("%s", failure)

    def _answered(self, worker: WorkerProcess, number: int, failure: str) -> None:
        with self._changed:
            if number in worker.answers:  # somebody still waits for it
                worker.answers[number] = failure
                self._changed.notify_all()

    def _bury(self, worker: WorkerProcess) -> str:
        how_it_ended = worker.bury()
        with self._changed:
            worker.how_it_ended = how_it_ended
            worker.is_gone = True
            self._worker = None
            self._changed.notify_all()
        return how_it_ended
