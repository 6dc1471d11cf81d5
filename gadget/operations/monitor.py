"""The monitor: a small, read-only web server for people, probes and Prometheus.

Loopback unless told otherwise. It shows pictures of the subject and nothing else that names one, keeps
nothing on disk, loads nothing from elsewhere, and answers GET and HEAD only.
"""

import logging
import socket
import sys
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from types import TracebackType

from gadget.answering import describe
from gadget.errors import GadgetError
from gadget.operations.journal import Journal
from gadget.operations.monitor_pages import MonitorPages
from gadget.operations.recent_problems import RecentProblems
from gadget.operations.server_status import ServerStatus
from gadget.operations.trusted_host import own_names

logger = logging.getLogger(__name__)

DEFAULT_HOST = "127.0.0.1"
MOST_CONNECTIONS = 32


class Monitor:
    """Serves the journal's page from the moment it is made until :meth:`close`.

    Parameters
    ----------
    status
        Asked for how the server is, from several threads.
    port
        0: a free one; :attr:`address` tells.

    Raises
    ------
    GadgetError
        It cannot listen there.
    """

    def __init__(
        self,
        journal: Journal,
        status: Callable[[], ServerStatus] = ServerStatus,
        *,
        port: int,
        host: str = DEFAULT_HOST,
    ) -> None:
        self._web = WebServer(journal, status, _resolved(host, port), own_names(host))
        self._problems = RecentProblems(journal).__enter__()
        self._thread = threading.Thread(
            target=self._web.serve_forever, args=(0.1,), name="monitor", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host, port = str(self._web.server_address[0]), self._web.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def close(self) -> None:
        """End all answers, and give the port back."""
        self._web.end_all()
        self._thread.join()
        self._web.server_close()
        self._problems.__exit__(None, None, None)

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class WebServer(ThreadingHTTPServer):
    """A thread for each connection, and a limit on those."""

    request_queue_size = 16

    def __init__(
        self,
        journal: Journal,
        status: Callable[[], ServerStatus],
        where: tuple[socket.AddressFamily, tuple[str, int]],
        names: frozenset[str],
    ) -> None:
        self.journal, self.status, self.names = journal, status, names
        self.ending = threading.Event()
        self._open: dict[threading.Thread, socket.socket] = {}
        self._guard = threading.Lock()
        self.address_family, address = where
        try:
            super().__init__(address, MonitorPages)
        except OSError as error:
            raise GadgetError(
                f"The monitor cannot listen on {address[0]} port {address[1]}: {error.strerror}. Choose "
                "another port with --monitor, or an address of this machine with --monitor-host."
            ) from error

    def server_bind(self) -> None:
        """Bind without HTTPServer's look-up of our name, which may ask a name server."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer in a thread of its own; beyond the limit the connection is closed at once."""
        assert isinstance(request, socket.socket)  # it is no datagram's
        with self._guard:
            thread = threading.Thread(target=self.process_request_thread, args=(request, client_address))
            is_full = len(self._open) >= MOST_CONNECTIONS
            if not is_full:
                self._open[thread] = request
        if is_full:
            logger.debug("the monitor has %d connections; one more was refused", MOST_CONNECTIONS)
            self.shutdown_request(request)
            return
        try:
            thread.start()
        except BaseException:  # the system gives no more threads, say
            self._forget(thread)
            raise

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(threading.current_thread())

    def server_close(self) -> None:
        """Give the port back, and wait for the answers to end."""
        super().server_close()
        for thread in self._threads_that_answer():
            thread.join()

    def _threads_that_answer(self) -> list[threading.Thread]:
        with self._guard:
            return list(self._open)

    def _forget(self, thread: threading.Thread) -> None:
        with self._guard:
            del self._open[thread]

    def handle_error(self, _request: object, _client_address: object) -> None:
        """Log a fault of ours; a browser that went away is none."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):
            logger.error("an answer of the monitor failed: %s", describe(error))

    def end_all(self) -> None:
        """Make all threads end soon."""
        self.ending.set()
        with self.journal.changed:
            self.journal.announce()
        self.shutdown()
        with self._guard:
            for sock in self._open.values():
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    logger.debug("a browser was gone before the monitor was closed")


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise GadgetError(
            f"The monitor cannot listen on '{host}': {error.strerror}. Name an address of this machine with "
            "--monitor-host."
        ) from error
    return family, (str(address[0]), int(address[1]))
