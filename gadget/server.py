"""A TCP server for scanners, clients and Gadgetron: one connection after another."""

import errno
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from gadget.answering import Handler, answer, describe, log_ending
from gadget.connection import Conversation
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError
from gadget.wire.session import End, Session

logger = logging.getLogger(__name__)

DEFAULT_HOSTS = ("127.0.0.1", "::1")
"""Both, since Gadgetron uses only the first address that a name resolves to."""
DEFAULT_PORT = 9002

_BACKLOG = 16
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_TRIES_FOR_A_COMMON_PORT = 20


class Server:
    """Listens from the moment it is made; serves in :meth:`serve_forever`, until :meth:`stop`.

    Parameters
    ----------
    handle
        Called for every connection that brings a scan, in a thread of its own.
    hosts
        Addresses or names to listen on; those that this machine does not have are left out if another works.
    port
        0: a free one, the same on all hosts; :attr:`addresses` tells.
    """

    def __init__(
        self,
        handle: Handler,
        *,
        hosts: Sequence[str] = DEFAULT_HOSTS,
        port: int = DEFAULT_PORT,
        options: ConnectionOptions | None = None,
    ) -> None:
        self._handle = handle
        self._options = options or ConnectionOptions()
        self._listeners = _listen(hosts, port)
        self._stopping = threading.Event()
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._conversation: Conversation | None = None

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Where it listens: (address, port)."""
        return tuple(listener.getsockname()[:2] for listener in self._listeners)

    def serve_forever(self) -> None:
        """Serve one connection after another until :meth:`stop` is called."""
        with selectors.DefaultSelector() as selector:
            for sock in (self._woken, *self._listeners):
                selector.register(sock, selectors.EVENT_READ)
            while not self._stopping.is_set():
                for key, _ in selector.select():
                    if key.fileobj is not self._woken and not self._stopping.is_set():
                        self._serve_one(key.fileobj)  # type: ignore[arg-type]  # it is one of the listeners

    def stop(self) -> None:
        """Let :meth:`serve_forever` return soon; safe from any thread and from a signal handler.

        A peer that is being served is told.
        """
        self._stopping.set()
        try:
            self._waker.send(b"x")
        except OSError:
            logger.debug("the server was asked to stop again")
        if (conversation := self._conversation) is not None:
            conversation.cancel(GadgetError("The server is being stopped; send the scan again later."))

    def close(self) -> None:
        """Stop, and give the addresses back."""
        self.stop()
        for sock in (*self._listeners, self._woken, self._waker):
            sock.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _serve_one(self, listener: socket.socket) -> None:
        try:
            sock, peer = listener.accept()
        except OSError as error:
            logger.info("a peer was gone before it was accepted: %s", error)
            return
        address = f"{peer[0]}:{peer[1]}"
        try:
            conversation = Conversation(sock, Session(End.ANSWERER), address=address, options=self._options)
        except OSError as error:
            logger.info("%s: was gone before it was served: %s", address, error)
            sock.close()
            return
        self._conversation = conversation
        if self._stopping.is_set():
            conversation.cancel(GadgetError("The server is being stopped; send the scan again later."))
        try:
            log_ending(answer(conversation, self._handle), address, logger)
        except Exception as error:  # noqa: BLE001  # the next connection is served whatever happens to this one
            logger.error("%s: failed: %s", address, describe(error))
            conversation.close()
        finally:
            self._conversation = None


def serve(
    handle: Handler,
    *,
    hosts: Sequence[str] = DEFAULT_HOSTS,
    port: int = DEFAULT_PORT,
    options: ConnectionOptions | None = None,
    on_listening: Callable[[Server], None] = lambda _server: None,
) -> None:
    """Serve until stopped; ``on_listening`` gets the server, to report addresses and keep its ``stop``."""
    with Server(handle, hosts=hosts, port=port, options=options) as server:
        logger.info("listening on %s", ", ".join(f"{host} port {port}" for host, port in server.addresses))
        on_listening(server)
        server.serve_forever()


def _listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Listen on every host, on one port for all."""
    for _ in range(_TRIES_FOR_A_COMMON_PORT if port == 0 else 1):
        listeners: list[socket.socket] = []
        absent: list[str] = []
        common_port = port
        try:
            for host in hosts:
                try:
                    listeners.append(_listen_on(host, common_port))
                    common_port = listeners[-1].getsockname()[1]
                except OSError as error:
                    if error.errno not in _NO_SUCH_ADDRESS and not isinstance(error, socket.gaierror):
                        raise
                    absent.append(f"{host} ({error.strerror})")
        except OSError as error:
            for listener in listeners:
                listener.close()
            if port == 0 and error.errno == errno.EADDRINUSE:
                continue
            raise GadgetError(
                f"Cannot listen on {host} port {common_port}: {error.strerror}. Is another server running "
                "there? Stop it, or choose another port."
            ) from error
        if not listeners:
            raise GadgetError(
                f"Cannot listen on {', '.join(absent) or 'no host at all'}; name an address of this machine."
            )
        for host in absent:
            logger.info("not listening on %s", host)
        return listeners
    raise GadgetError(f"Found no port that is free on all of {', '.join(hosts)}; name one.")


def _listen_on(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
