"""A TCP server for scanners, clients and Gadgetron: several connections at once, a thread for each."""

import errno
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType

from gadget.answering import Handler, Peer, answer, describe, log_ending
from gadget.connection import Conversation
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError
from gadget.logs import name_scan
from gadget.scan_watch import WatchFactory, made_by
from gadget.wire.messages import Message
from gadget.wire.session import End, Session

logger = logging.getLogger(__name__)

DEFAULT_HOSTS = ("127.0.0.1", "::1")
"""Both, since Gadgetron uses only the first address that a name resolves to."""
DEFAULT_PORT = 9002
DEFAULT_CONNECTIONS = 16

_BACKLOG = 64
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_TRIES_FOR_A_COMMON_PORT = 20
_REFUSAL_S = 2.0
"""Patience with a peer that is refused: its first message tells how to say so."""
_REST_AFTER_FAILURE_S = 0.1


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
    max_connections
        So many are served at once; as many again are refused in words, and beyond that without.
    watch_factories
        Who looks on at each connection that is served.
    """

    def __init__(
        self,
        handle: Handler,
        *,
        hosts: Sequence[str] = DEFAULT_HOSTS,
        port: int = DEFAULT_PORT,
        options: ConnectionOptions | None = None,
        max_connections: int = DEFAULT_CONNECTIONS,
        watch_factories: Sequence[WatchFactory] = (),
    ) -> None:
        self._handle = handle
        self._options = options or ConnectionOptions()
        self._max_connections = max_connections
        self._watch_factories = watch_factories
        self._listeners = _listen(hosts, port)
        self.addresses: tuple[tuple[str, int], ...] = tuple(
            listener.getsockname()[:2] for listener in self._listeners
        )
        """Where it listens: (address, port)."""
        self._stop_at: float | None = None
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._changed = threading.Condition()  # guards what follows
        self._served: dict[threading.Thread, Conversation | None] = {}
        self._refused: dict[threading.Thread, Conversation | None] = {}

    @property
    def n_connections(self) -> int:
        """How many connections are being served."""
        return len(self._served)

    def serve_forever(self) -> None:
        """Serve connections until :meth:`stop` is called and they have ended."""
        with selectors.DefaultSelector() as selector:
            for sock in (self._woken, *self._listeners):
                selector.register(sock, selectors.EVENT_READ)
            while self._stop_at is None:
                for key, _ in selector.select():
                    if key.fileobj is not self._woken and self._stop_at is None:
                        self._accept(key.fileobj)  # type: ignore[arg-type]  # it is one of the listeners
        for listener in self._listeners:
            listener.close()
        self._end_all()

    def stop(self, drain_s: float = 0.0) -> None:
        """Let :meth:`serve_forever` return soon; safe from any thread and from a signal handler.

        Scans that run may take ``drain_s`` to end; then their peers are told. New ones are not accepted.
        """
        self._stop_at = min(time.monotonic() + drain_s, self._stop_at or float("inf"))
        try:
            self._waker.send(b"x")
        except OSError:
            logger.debug("the server was asked to stop again")

    def close(self) -> None:
        """Stop, and give the addresses back."""
        self.stop()
        self._cancel(lambda _conversation: True)
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

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, peer = listener.accept()
        except OSError as error:
            logger.warning("a connection could not be accepted: %s", error)
            time.sleep(_REST_AFTER_FAILURE_S)  # without file descriptors it would come back at once
            return
        address = f"{peer[0]}:{peer[1]}"
        with self._changed:
            is_full = self._is_full()
            group = self._refused if is_full else self._served
            if is_full and len(self._refused) >= self._max_connections:
                logger.warning("%s: too many connections; closed without a word", address)
                sock.close()
                return
            thread = threading.Thread(
                target=self._run, args=(sock, address, group), name=f"connection {address}", daemon=True
            )
            group[thread] = None
        try:
            thread.start()
        except RuntimeError as error:  # the system gives no more threads
            logger.error("%s: not served: %s", address, error)
            sock.close()
            self._forget(thread, group)

    def _is_full(self) -> bool:
        """Whether one more is to be refused; the lock is held.

        A peer that has our CLOSE, or lost its connection, may send its next scan at once, before we are done
        with the last one, which takes no place then, as long as such connections are not as many again.
        """
        n_busy = sum(one is None or not (one.has_closed or one.cancelled()) for one in self._served.values())
        return n_busy >= self._max_connections or len(self._served) >= 2 * self._max_connections

    def _run(
        self, sock: socket.socket, address: str, group: dict[threading.Thread, Conversation | None]
    ) -> None:
        name_scan(address)
        try:
            self._hold(sock, address, group)
        finally:
            self._forget(threading.current_thread(), group)

    def _hold(
        self, sock: socket.socket, address: str, group: dict[threading.Thread, Conversation | None]
    ) -> None:
        """Hold one conversation."""
        is_refused = group is self._refused
        options, handle = self._options, self._handle
        if is_refused:
            options = replace(options, first_message_s=_REFUSAL_S, idle_s=_REFUSAL_S, linger_s=_REFUSAL_S)
            handle = self._refuse
        try:
            conversation = Conversation(
                sock,
                Session(End.ANSWERER),
                address=address,
                options=options,
                watches=() if is_refused else made_by(self._watch_factories, address),
            )
        except OSError as error:
            logger.info("%s: was gone before it was served: %s", address, error)
            sock.close()
            return
        with self._changed:
            group[threading.current_thread()] = conversation
            if self._stop_at is not None:
                conversation.cancel(_stopped())
        try:
            log_ending(answer(conversation, handle), address, logger)
        except Exception as error:  # noqa: BLE001  # the other connections are served whatever happens to this one
            logger.error("%s: failed: %s", address, describe(error))
            conversation.close()

    def _refuse(self, _messages: Iterator[Message], _peer: Peer) -> Iterator[Message]:
        raise GadgetError(
            f"The server has as many connections as it may ({self._max_connections}). Close one, or send "
            "the scan again later."
        )

    def _forget(self, thread: threading.Thread, group: dict[threading.Thread, Conversation | None]) -> None:
        with self._changed:
            del group[thread]
            self._changed.notify_all()

    def _end_all(self) -> None:
        """Let scans end that run, as long as there is time; then end all conversations and wait for them."""
        self._cancel(lambda conversation: not conversation.scan_began)
        if self._served:
            left_s = max((self._stop_at or 0.0) - time.monotonic(), 0.0)
            logger.info("stopping: %s may end first, within %.0f s", _connections(len(self._served)), left_s)
        with self._changed:
            while self._served and (left := (self._stop_at or 0.0) - time.monotonic()) > 0:
                self._changed.wait(min(left, 0.5))  # a signal handler may shorten the time
        self._cancel(lambda _conversation: True)
        patience = self._options.grace_s + self._options.linger_s + 1.0
        with self._changed:
            if not self._changed.wait_for(lambda: not (self._served or self._refused), patience):
                n_left = len(self._served) + len(self._refused)
                logger.error("stopping: %s did not end and will be left behind", _connections(n_left))

    def _cancel(self, which: Callable[[Conversation], bool]) -> None:
        """Cancel conversations, except those that have said all and wait for the peer to do the same."""
        with self._changed:
            conversations = [*self._served.values(), *self._refused.values()]
        for conversation in conversations:
            if conversation is not None and which(conversation):
                conversation.cancel(_stopped())


def _connections(n: int) -> str:
    return f"{n} connection{'' if n == 1 else 's'}"


def _stopped() -> GadgetError:
    return GadgetError("The server is being stopped; send the scan again later.")


def serve(
    handle: Handler,
    *,
    hosts: Sequence[str] = DEFAULT_HOSTS,
    port: int = DEFAULT_PORT,
    options: ConnectionOptions | None = None,
    max_connections: int = DEFAULT_CONNECTIONS,
    watch_factories: Sequence[WatchFactory] = (),
    on_listening: Callable[[Server], None] = lambda _server: None,
) -> None:
    """Serve until stopped; ``on_listening`` gets the server, to report addresses and keep its ``stop``."""
    with Server(
        handle,
        hosts=hosts,
        port=port,
        options=options,
        max_connections=max_connections,
        watch_factories=watch_factories,
    ) as server:
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
