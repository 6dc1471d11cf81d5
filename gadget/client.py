"""A client: sends a scan to a server and takes its images while it still sends."""

import socket
import threading
import time
from collections.abc import Iterable, Iterator

from gadget.connection import Conversation
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError, PeerProtocolError
from gadget.wire.messages import Close, Message
from gadget.wire.session import End, Session

DEFAULT_OPTIONS = ConnectionOptions(idle_s=900.0)
"""More patient than a server: it waits for a reconstruction."""


def send_scan(
    messages: Iterable[Message],
    host: str,
    port: int,
    *,
    connect_s: float = 10.0,
    options: ConnectionOptions = DEFAULT_OPTIONS,
) -> Iterator[Message]:
    """Send a scan, config and header first, and yield what the server answers, up to its CLOSE.

    CLOSE is sent for the caller. Sending happens in a thread of its own, which draws from ``messages``.
    Nothing is connected before the first answer is asked for.

    Raises
    ------
    GadgetError
        The server cannot be reached, is gone or silent, breaks the protocol, reports a failure, or closed
        before it had the whole scan.
    """
    try:
        sock = socket.create_connection((host, port), timeout=connect_s)
    except OSError as error:
        raise GadgetError(
            f"Cannot connect to {host} port {port}: {error.strerror or error}. "
            "Is the server running there, and is the port right?"
        ) from error
    conversation = Conversation(
        sock, Session(End.SCAN_SENDER), address=f"{host} port {port}", options=options
    )
    yield from exchange(conversation, messages)


def exchange(conversation: Conversation, messages: Iterable[Message]) -> Iterator[Message]:
    """Do what :func:`send_scan` does over a connection that is there, and close it."""
    sender = _Sender(conversation, messages)
    try:
        conversation.start()
        sender.thread.start()
        yield from conversation.messages()
        sender.thread.join(conversation.options.grace_s)
        if sender.failure is not None or not conversation.has_closed:
            raise PeerProtocolError(
                f"The server closed before it had the whole scan: {conversation.n_sent} messages were sent. "
                "Its log says why."
            ) from sender.failure
    finally:
        conversation.close()


class _Sender:
    """Sends all messages, then CLOSE."""

    def __init__(self, conversation: Conversation, messages: Iterable[Message]) -> None:
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._conversation = conversation
        self._messages = messages

    def _run(self) -> None:
        try:
            for message in self._messages:
                if self._conversation.cancelled():
                    return
                if not isinstance(message, Close):
                    self._conversation.send(message)
            self._conversation.send(Close())
        except PeerProtocolError as error:
            self.failure = error
            time.sleep(
                self._conversation.options.grace_s
            )  # the reading side may learn more: a TEXT that says why
            self._conversation.cancel(error)
        except GadgetError as error:
            self._stop(error)
        except Exception as error:  # noqa: BLE001  # from the caller's iterable; raised where he reads
            self._stop(GadgetError(f"The scan could not be read to its end ({type(error).__name__})."), error)

    def _stop(self, error: GadgetError, cause: Exception | None = None) -> None:
        error.__cause__ = cause
        self.failure = error
        self._conversation.cancel(error)
