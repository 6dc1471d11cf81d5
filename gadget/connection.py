"""One conversation over a connected socket: what server, client and Gadgetron's external node share.

A thread reads, so that the peer is not held up while we compute; its inbox is bounded in bytes. Whoever uses
the conversation takes messages from the inbox and sends others. Nothing waits for ever: a peer that is gone,
silent for too long, or does not take our bytes ends the conversation.
"""

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextvars import copy_context

from gadget.connection_options import ConnectionOptions, prepare
from gadget.errors import GadgetError, PeerProtocolError, PeerReportedError
from gadget.scan_watch import ScanWatch, Watches
from gadget.wire.codec import MrdDecoder, encode_parts
from gadget.wire.limits import MIB
from gadget.wire.messages import Close, Error, Message, Query, Response
from gadget.wire.session import Dialect, End, Session, State

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_JOINED_BYTES = 1 * MIB
_ASK_FOR_ROOM_S = 0.05


class Conversation:
    """A socket, its session and its inbox.

    Parameters
    ----------
    sock
        Connected, at a boundary between messages; the conversation closes it.
    session
        The rules, and which end we are.
    address
        The peer's address for the log.
    already_read
        Messages that somebody else has read from this socket.
    watches
        Who looks on.
    """

    def __init__(
        self,
        sock: socket.socket,
        session: Session,
        *,
        address: str,
        options: ConnectionOptions,
        already_read: tuple[Message, ...] = (),
        watches: Sequence[ScanWatch] = (),
    ) -> None:
        self.address = address
        self.watches = Watches(watches)
        self.options = options
        self.n_received = 0
        self.n_sent = 0
        self.scan_began = False
        self._sock = sock
        self._session = session
        self._decoder = MrdDecoder(options.limits)
        self._sending = threading.Lock()  # who takes messages answers queries; another thread may send images
        self._changed = threading.Condition()  # guards what follows
        self._inbox: deque[tuple[Message, int]] = deque()
        self._inbox_bytes = 0
        self._held_bytes = 0  # in the room: the inbox, and what is not yet a whole message
        self._peer_closed = False
        self._failure: GadgetError | None = None
        self._lost = False  # nothing we send reaches the peer
        self._cancelled = False
        self._ignores_data = False
        self._n_bytes_read = 0
        self._last_activity = time.monotonic()
        self._reader = threading.Thread(
            target=copy_context().run, args=(self._read,), name=f"reader {address}", daemon=True
        )  # in this context, so that what it logs says which scan it is about
        for message in already_read:
            self._keep(message, 0)
        prepare(sock, options.send_s)

    @property
    def dialect(self) -> Dialect:
        """What kind of peer this is; known once its first message came."""
        return self._session.dialect

    @property
    def failure(self) -> GadgetError | None:
        """What went wrong on the peer's side or by :meth:`cancel`, if anything did."""
        return self._failure

    @property
    def has_closed(self) -> bool:
        """Whether we have sent CLOSE."""
        return self._session.own_state is State.CLOSED

    def cancelled(self) -> bool:
        """Whether there is no point in going on: the peer is gone, or we are told to stop."""
        return self._lost or self._cancelled

    def start(self) -> None:
        """Start to read."""
        self._reader.start()

    def messages(self) -> Iterator[Message]:
        """Yield what the peer sends, up to its CLOSE, as it comes; queries are answered here.

        Raises
        ------
        GadgetError
            The peer is gone or broke the protocol, or the conversation was cancelled.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._inbox or self._peer_closed or self._failure)
                # What came before the failure still counts, unless there is nobody left to answer.
                if self._failure and (self._in_vain() or not self._inbox):
                    raise self._failure
                if not self._inbox:
                    return
                message = self._take_first()
            if isinstance(message, Query):
                self._answer_query(message)
            else:
                yield message

    def silent(self) -> bool:
        """Whether :meth:`messages` would wait for the next one; queries are answered here, too."""
        while True:
            with self._changed:
                if not self._inbox:
                    return not (self._peer_closed or self._failure)
                first = self._inbox[0][0]
                if self._failure or not isinstance(first, Query):
                    return False
                self._take_first()
            self._answer_query(first)

    def send(self, message: Message) -> None:
        """Send one message.

        Raises
        ------
        OwnProtocolError
            The message contradicts itself or is out of turn.
        GadgetError
            The peer is gone or has taken nothing for too long, or the conversation was cancelled.
        """
        if self._failure and self._in_vain():
            raise self._failure
        parts = encode_parts(message)
        with self._sending:
            self._session.sending(message)
            self.watches.sent(message, self._write(parts))

    def cancel(self, reason: GadgetError) -> None:
        """Make both directions end soon; safe from any thread and from a signal handler."""
        with self._changed:
            self._cancelled = True
            self._failure = self._failure or reason
            self._changed.notify_all()

    def wait_until_cancelled_or(self, done: threading.Event) -> None:
        """Wait until ``done`` is set, at most the grace period after the peer is gone."""
        with self._changed:
            # A signal handler may call cancel() in this very thread, between the question and the wait.
            while not self._changed.wait_for(lambda: done.is_set() or self.cancelled(), timeout=0.5):
                pass
            self._changed.wait_for(done.is_set, timeout=self.options.grace_s)

    def announce(self) -> None:
        """Wake those who wait in :meth:`wait_until_cancelled_or`."""
        with self._changed:
            self._changed.notify_all()

    def finish(self, failure: str | None) -> None:
        """Say the last words, if the peer still listens, and close the socket."""
        with self._changed:
            self._ignores_data = True
            self._empty_inbox()
            self._changed.notify_all()
        try:
            if not self._lost:
                self._sock.settimeout(max(self.options.linger_s, 0.1) if failure else self.options.send_s)
                for message in self._session.closing_words(failure):
                    self.watches.sent(message, self._write(encode_parts(message)))
                self._sock.shutdown(socket.SHUT_WR)
        except (PeerProtocolError, OSError) as error:
            logger.info("%s: the end of the conversation did not arrive: %s", self.address, error)
        # Closing with unread bytes would reset the connection and may destroy what we said last.
        if self._reader.is_alive():
            self._linger()
        self.close()

    def close(self) -> None:
        """Close the socket and end the reading thread, without a word."""
        self.cancel(GadgetError("The conversation was closed."))
        with contextlib.suppress(OSError):  # the peer was faster
            self._sock.shutdown(socket.SHUT_RDWR)
        if self._reader.is_alive():
            self._reader.join()
        self._sock.close()
        with self._changed:
            self._empty_inbox()
            self._hold(-self._held_bytes)

    def _linger(self) -> None:
        """Wait for the peer's CLOSE, or for the end of what it has to say."""
        with self._changed:
            while not (self._peer_closed or self._lost or self._cancelled):
                left = self._last_activity + self.options.linger_s - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _take_first(self) -> Message:
        """Take a message out of the inbox; the lock is held."""
        message, n_bytes = self._inbox.popleft()
        self._inbox_bytes -= n_bytes
        self._hold(-n_bytes)
        self._changed.notify_all()
        return message

    def _empty_inbox(self) -> None:
        """Forget what nobody will take; the lock is held."""
        self._inbox.clear()
        self._hold(-self._inbox_bytes)
        self._inbox_bytes = 0

    def _hold(self, n_bytes: int) -> None:
        """Take note of bytes that we keep in memory, or (negative) no longer keep; the lock is held."""
        self._held_bytes += n_bytes
        self.options.room.add(n_bytes)

    def _answer_query(self, query: Query) -> None:
        self.send(Response(query.query_id, "gadgetron-ebm answers no queries"))

    def _in_vain(self) -> bool:
        return self._cancelled or (self._lost and self._session.own is End.ANSWERER)

    def _write(self, parts: list[bytes | memoryview]) -> float:
        """Hand bytes to the kernel; return when they were taken."""
        try:
            if sum(map(len, parts)) <= _JOINED_BYTES:
                self._sock.sendall(b"".join(parts))
            else:
                for part in parts:
                    self._sock.sendall(part)
        except OSError as error:
            if isinstance(error, TimeoutError):
                text = f"The peer took nothing for {self._sock.gettimeout()} s; it hangs, or never reads."
            else:
                text = f"The connection was lost while we sent: {error}."
            failure = PeerProtocolError(text)
            if self._session.own is End.ANSWERER:  # a client still wants to read why
                self._fail(failure, lost=True)
            raise failure from error
        self.n_sent += 1
        self._last_activity = at = time.monotonic()
        return at

    def _read(self) -> None:
        try:
            self._read_messages()
        except PeerProtocolError as error:
            self._fail(error, lost=False)
        except OSError as error:
            if self._n_bytes_read or self._session.own is End.SCAN_SENDER:
                failure = PeerProtocolError(f"The connection was lost while we read: {error}.")
                self._fail(failure, lost=True)
            else:
                self._end_of_probe()
        except Exception as error:
            logger.exception("%s: the reading thread failed", self.address)
            self._fail(GadgetError(f"Reading failed ({type(error).__name__}); this is a bug."), lost=False)
        if self._session.own is End.SCAN_SENDER or self._lost:
            return
        with contextlib.suppress(OSError):  # it is gone, as after the end of the stream
            self._discard()
            if self._peer_closed and self.dialect is not Dialect.GADGETRON:
                self._wait_until_gone()
        self._fail(PeerProtocolError("The peer closed the connection before it had our CLOSE."), lost=True)

    def _read_messages(self) -> None:
        while True:
            self._wait_for_room()
            if self._cancelled:
                return
            self._wait_for_bytes()
            data = self._sock.recv(_READ_BYTES)
            self._last_activity = time.monotonic()
            self._count(len(data))
            self._decoder.feed(data)
            for message in self._decoder.messages():
                self._keep(message, self._decoder.n_bytes_of_last_message)
                if isinstance(message, Close):
                    return
            if not data:
                self._end_of_stream()
                return

    def _count(self, n_bytes: int) -> None:
        """Take note of bytes that came."""
        self._n_bytes_read += n_bytes
        with self._changed:
            self._hold(n_bytes)
        if self._n_bytes_read > self.options.scan_bytes:
            raise PeerProtocolError(
                f"The peer has sent more than {self.options.scan_bytes} bytes; no more are accepted of one "
                "scan (scan_bytes). Send it in parts."
            )

    def _wait_for_room(self) -> None:
        with self._changed:
            while not self.cancelled():
                is_full = self.options.room.is_full
                if self._reads_on(is_full):
                    break
                # Others make room without a word: asking them for one would need two locks at a time.
                self._changed.wait(_ASK_FOR_ROOM_S if is_full else None)
        self._last_activity = time.monotonic()

    def _reads_on(self, is_full: bool) -> bool:
        """Whether there is room to read on; always where the reconstruction waits for this peer."""
        is_ahead = self._inbox_bytes >= self.options.inbox_bytes
        return not self._inbox or not (is_ahead or is_full)

    def _wait_for_bytes(self) -> None:
        """Wait for something to read; silence of the peer counts from the last byte in either direction."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while True:
            started = self.n_received > 0 or self._session.own is End.SCAN_SENDER
            patience = self.options.idle_s if started else self.options.first_message_s
            left = None if patience is None else self._last_activity + patience - time.monotonic()
            if left is not None and left <= 0:
                raise PeerProtocolError(
                    f"The peer sent nothing for {patience:g} s, and no CLOSE. It hangs, or the time limit "
                    f"({'idle_s' if started else 'first_message_s'}) is too short for it."
                )
            if poll.poll(None if left is None else left * 1000):
                return

    def _keep(self, message: Message, n_bytes: int) -> None:
        if isinstance(message, Error) and self._session.own is End.SCAN_SENDER:
            raise PeerReportedError(message.raw.rstrip(chr(0)))
        self._session.received(message)
        self.watches.received(message, self._last_activity)
        with self._changed:
            self.n_received += 1
            if isinstance(message, Close):
                self._peer_closed = True
                self._hold(-n_bytes)
            elif not self._ignores_data:
                self._inbox.append((message, n_bytes))
                self._inbox_bytes += n_bytes
            else:
                self._hold(-n_bytes)
            if self._session.peer_state in (State.STREAMING, State.STREAMING_WITHOUT_CONFIG):
                self.scan_began = True
            self._changed.notify_all()

    def _end_of_stream(self) -> None:
        try:
            self._session.peer_ended()
        except PeerProtocolError as error:
            self._fail(error, lost=True)
            raise
        self._end_of_probe()

    def _end_of_probe(self) -> None:
        """Take note of a peer that came and went without a word, which is normal."""
        with self._changed:
            self._peer_closed = self._lost = True
            self._changed.notify_all()

    def _discard(self) -> None:
        """Read on without looking, to let the peer finish and to see when it is gone."""
        buffer = bytearray(_READ_BYTES)
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while poll.poll() and self._sock.recv_into(buffer):
            pass

    def _wait_until_gone(self) -> None:
        """Wait until the connection ends in both directions.

        A client may end its direction behind its CLOSE (``nc -N``, ``shutdown(SHUT_WR)``) and still read;
        Gadgetron does not. One that has closed altogether looks the same until it is sent something: then its
        system resets the connection. Keep-alive finds that, too, within two minutes: once its system has
        forgotten the connection.
        """
        poll = select.poll()
        poll.register(self._sock, 0)  # what is told unasked: POLLHUP, POLLERR
        poll.poll()

    def _fail(self, failure: GadgetError, *, lost: bool) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._lost = self._lost or lost
            self._changed.notify_all()
