"""A server that goes on for months: the front with its worker, from the first connection to the last."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from gadget.answering import Peer
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError, WorkerGoneError
from gadget.front.relay import Relay
from gadget.front.supervisor import Supervisor
from gadget.operations.server_status import Condition, ServerStatus
from gadget.scan_watch import ScanWatch, WatchFactory
from gadget.server import DEFAULT_CONNECTIONS, DEFAULT_HOSTS, DEFAULT_PORT, Server
from gadget.settings import Settings
from gadget.wire.messages import Message

logger = logging.getLogger(__name__)

DEFAULT_DRAIN_S = 60.0
KEEPING_LINGER_S = 30.0
"""Where scans are kept, the rest of one that failed is worth waiting for."""


@runtime_checkable
class KeptScan(ScanWatch, Protocol):
    """A watch that keeps what comes, as :class:`gadget.spool.spooled_scan.SpooledScan` does."""

    @property
    def is_whole(self) -> bool: ...
    def messages(self) -> Iterator[Message]: ...


class SettingsOfScans(Protocol):
    """What is used of a :class:`gadget.settings_source.SettingsSource`."""

    def for_scan(self, *head: Message | None) -> Settings: ...
    def verify(self) -> None: ...
    def request_reload(self) -> None: ...


class Service:
    """Listens from the moment it is made; serves in :meth:`run`.

    Parameters
    ----------
    settings
        Given the worker's way to check them, makes the source of the scans' settings.
    keep
        Makes the watch that keeps a scan; None: scans are not kept.
    watch_factories
        Who else looks on.
    drain_s
        How long scans may still run once it is to end.
    """

    def __init__(
        self,
        settings: Callable[[Callable[[Settings], None]], SettingsOfScans],
        *,
        hosts: Sequence[str] = DEFAULT_HOSTS,
        port: int = DEFAULT_PORT,
        options: ConnectionOptions | None = None,
        max_connections: int = DEFAULT_CONNECTIONS,
        keep: Callable[[str], KeptScan] | None = None,
        watch_factories: Sequence[WatchFactory] = (),
        drain_s: float = DEFAULT_DRAIN_S,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self._settings = settings(self._supervisor.load)
        options = options or ConnectionOptions()
        self._options = options if keep is None else replace(options, linger_s=KEEPING_LINGER_S)
        self._max_connections = max_connections
        self._drain_s = drain_s
        self._is_loaded = False
        self._stops = 0
        self._failure: GadgetError | None = None
        self.server = Server(
            Relay(self._supervisor, self._settings.for_scan, _recorded),
            hosts=hosts,
            port=port,
            options=self._options,
            max_connections=max_connections,
            # first the one that keeps: what the others make of a message is worth less than the message
            watch_factories=[*([] if keep is None else [keep]), *watch_factories],
        )

    def run(self) -> None:
        """Serve until :meth:`stop`; peers that come before the priors are loaded wait for that.

        Raises
        ------
        GadgetError
            The settings that it was started with cannot be used.
        """
        loader = threading.Thread(target=self._load, name="loader", daemon=True)
        with self.server:
            self._supervisor.start()
            loader.start()
            try:
                self.server.serve_forever()
            finally:
                self._supervisor.stop()
                loader.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let :meth:`run` return once the running scans are done or their time is up; asked again, at once.

        Safe from a signal handler.
        """
        self._stops += 1
        self.server.stop(self._drain_s if self._stops == 1 else 0.0)

    def reload(self) -> None:
        """Have the settings read again before the next scan. Safe from a signal handler."""
        self._settings.request_reload()

    def status(self) -> ServerStatus:
        """Return how it is."""
        condition = Condition.READY
        if self._stops:
            condition = Condition.STOPPING
        elif not self._is_loaded:
            condition = Condition.LOADING
        elif not self._supervisor.is_ready:
            condition = Condition.RESTARTING
        return ServerStatus(
            condition=condition,
            worker_pid=self._supervisor.pid,
            n_restarts=self._supervisor.n_restarts,
            n_connections=self.server.n_connections,
            most_connections=self._max_connections,
            queued_bytes=self._options.room.used,
        )

    def _load(self) -> None:
        """Have the settings checked that it starts with; where they are no good, stop."""
        try:
            try:
                self._settings.verify()
            except WorkerGoneError:  # maybe over a scan that came meanwhile
                self._settings.verify()
        except GadgetError as error:
            if not self._stops:
                self._failure = error
                self.server.stop()
            return
        self._is_loaded = True
        logger.info("ready")


def _recorded(peer: Peer) -> Iterator[Message] | None:
    kept = next((watch for watch in peer.watches if isinstance(watch, KeptScan)), None)
    return kept.messages() if kept is not None and kept.is_whole else None
