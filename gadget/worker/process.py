"""The worker: one process with torch, the priors and the device, for all scans that the front takes in.

It lives as long as the front: the end of their channel ends it at once, whatever it computes, so that a front
that was killed leaves no orphan.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gadget.answering import Peer, answer, describe, reason_for_peer
from gadget.connection import Conversation
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError
from gadget.logs import name_scan
from gadget.settings import Settings
from gadget.wire.codec import encode
from gadget.wire.messages import Close, Error, Message
from gadget.wire.session import End, Session
from gadget.worker.channel import Channel
from gadget.worker.scan_request import ScanRequest, settings_of

if TYPE_CHECKING:
    from gadget.reconstructor import Reconstructor

logger = logging.getLogger(__name__)

OPTIONS = ConnectionOptions(first_message_s=60.0, idle_s=None, send_s=3600.0, grace_s=30.0)
"""The front is patient with peers for us. Whether a reconstruction is stuck is for us to see (grace_s)."""

STUCK = 3
"""Exit code of a worker with a reconstruction that does not stop."""

_NO_ROOM = "The process that reconstructs has no room for one more: {}. Send the scan again later."

Reconstruct = Callable[[Iterator[Message], ScanRequest, Peer], Iterable[Message]]
"""Takes a scan, what is asked of it, and whom it is for; yields the answers."""


class Worker:
    """Serves a front over a channel.

    Parameters
    ----------
    reconstruct
        What is done with a scan.
    load
        Makes settings ready for use, or raises GadgetError.
    """

    def __init__(
        self, channel: Channel, *, reconstruct: Reconstruct, load: Callable[[Settings], None]
    ) -> None:
        self._channel = channel
        self._reconstruct = reconstruct
        self._load = load

    def run(self) -> None:
        """Do what the front asks for until it is gone; then the process ends."""
        while (packet := self._channel.receive()) is not None:
            self._begin(*packet)
        os._exit(0)

    def _begin(self, content: dict[str, Any], sock: socket.socket | None) -> None:
        """Answer a packet: at once if it asks for a sign of life, else in a thread of its own."""
        if "ping" in content:
            self._say({"pong": content["ping"]})
        elif "load" in content:
            if failure := _started(self._answer_load, content):
                self._say({"load": content["load"], "failure": failure})
        elif sock is None:  # the system gave no file descriptor for it
            self._say({"taken": content["scan"], "failure": _NO_ROOM.format("too many open files")})
        else:
            number = content.pop("scan")
            failure = _started(self._answer_scan, content, sock)
            if failure:
                sock.close()
            self._say({"taken": number, "failure": failure})

    def _answer_load(self, content: dict[str, Any]) -> None:
        failure = ""
        try:
            self._load(settings_of(content["settings"]))
        except GadgetError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001  # the front decides what becomes of it
            logger.error("loading failed: %s", describe(error))
            failure = f"Loading failed ({type(error).__name__}). The log says where."
        self._say({"load": content["load"], "failure": failure})

    def _answer_scan(self, content: dict[str, Any], sock: socket.socket) -> None:
        try:
            request = ScanRequest.from_json(content)
            name_scan(request.address)
            conversation = Conversation(
                sock, _ToFront(End.ANSWERER), address=request.address, options=OPTIONS
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, the front waits for an answer
            logger.error("a scan was not taken: %s", describe(error))
            _refuse(sock, reason_for_peer(error))
            return
        ending = answer(conversation, lambda messages, peer: self._reconstruct(messages, request, peer))
        if ending.abandoned:
            logger.critical(
                "%s: its reconstruction did not stop within %g s; the worker ends, to be started again",
                request.address,
                OPTIONS.grace_s,
            )
            os._exit(STUCK)
        if ending.failure is not None and not isinstance(ending.failure, GadgetError):
            logger.error("%s: %s", request.address, describe(ending.failure))

    def _say(self, content: dict[str, Any]) -> None:
        try:
            self._channel.send(content)
        except OSError:
            logger.debug("the front is gone")


def _started(answer: Callable[..., None], *arguments: object) -> str:
    """Answer in a thread; return why that cannot be, or nothing."""
    try:
        threading.Thread(target=answer, args=arguments, name="scan", daemon=True).start()
    except RuntimeError as error:  # the system gives no more threads
        logger.error("a request of the front was refused: %s", error)
        return _NO_ROOM.format(error)
    return ""


def _refuse(sock: socket.socket, reason: str) -> None:
    """Tell the front why a scan that it passed is not answered."""
    with sock, contextlib.suppress(OSError):  # nobody is there to be told
        sock.sendall(encode(Error(reason)) + encode(Close()))


class _ToFront(Session):
    """Says a failure as ERROR whatever the peer is, for the front to know it from a peer's TEXT."""

    def closing_words(self, failure: str | None) -> tuple[Message, ...]:
        words = super().closing_words(failure)
        return (Error(failure), Close()) if words and failure is not None else words


class Reconstruction:
    """What a worker does: the one reconstructor of the process, made when it is first needed."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._reconstructor: Reconstructor | None = None

    def load(self, settings: Settings) -> None:
        """Load the prior; the first settings choose device and number of threads for all later ones."""
        self._made(settings).load(settings)

    def reconstruct(self, messages: Iterator[Message], request: ScanRequest, peer: Peer) -> Iterable[Message]:
        """Reconstruct one scan."""
        reconstructor = self._made(request.settings)
        from gadget.pipeline import reconstruct_stream

        return reconstruct_stream(
            messages,
            request.settings,
            reconstructor=reconstructor,
            cancelled=peer.cancelled,
            silent=peer.silent,
            overlap=True,
            fallback_only=request.fallback_only,
            n_skipped=request.n_images_sent,
        )

    def _made(self, settings: Settings) -> "Reconstructor":
        with self._making:
            if self._reconstructor is None:
                import torch

                import gadget.pipeline  # noqa: F401  # here, so that the first scan need not wait for it
                from gadget.reconstructor import Reconstructor

                if settings.threads is not None:
                    torch.set_num_threads(settings.threads)
                self._reconstructor = Reconstructor(settings.device)
            return self._reconstructor
