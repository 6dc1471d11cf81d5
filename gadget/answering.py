"""The answering side of a conversation: run a reconstruction on what a peer sends, and send what it makes.

Server and Gadgetron's external node differ only in how they get their socket.
"""

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gadget.connection import Conversation
from gadget.errors import GadgetError, NobodyWaitsError
from gadget.logs import name_scan
from gadget.scan_watch import ScanWatch
from gadget.wire.messages import Close, Message, Text
from gadget.wire.session import Dialect

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a reconstruction works for."""

    address: str
    dialect: Dialect
    cancelled: Callable[[], bool]
    """Asked between steps of a long computation; true when nobody waits for the result any more."""
    silent: Callable[[], bool]
    """Whether the next message is not there yet, so that there is time for other work."""
    watches: Iterable[ScanWatch] = ()
    """Who looks on at this conversation, and has not failed so far."""


Handler = Callable[[Iterator[Message], Peer], Iterable[Message]]
"""Takes a conversation's messages, from the config up to but without CLOSE, and yields the answers."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a conversation ended."""

    n_received: int
    n_sent: int
    had_scan: bool
    """False for probes: peers that connect and go, or send a config and CLOSE."""
    failure: Exception | None
    abandoned: bool
    """The reconstruction did not stop in time after its peer was gone; its thread still runs."""
    seconds: float


def answer(conversation: Conversation, handle: Handler) -> Ending:
    """Hold a conversation to its end: nothing is raised for what goes wrong inside, the ending tells.

    On failure an MRD or FIRE peer gets a TEXT with the reason, Gadgetron an ERROR; then CLOSE follows.
    The reconstruction runs in a thread of its own, so that a peer that is gone ends the conversation within
    the grace period whatever the reconstruction does.
    """
    started = time.monotonic()
    work = _Work(conversation, handle)
    try:
        conversation.start()
        work.start()
        conversation.wait_until_cancelled_or(work.done)
    except BaseException as error:
        why = error if isinstance(error, Exception) else GadgetError("The program was stopped.")
        conversation.close()
        conversation.watches.ended(_ending(conversation, why, started, abandoned=True))
        raise
    abandoned = not work.done.is_set()
    failure = work.failure or conversation.failure
    if isinstance(failure, NobodyWaitsError):  # the conversation knows why
        failure = conversation.failure or failure
    if abandoned:
        conversation.close()
    else:
        conversation.finish(reason_for_peer(failure) if failure else None)
    ending = _ending(conversation, failure, started, abandoned=abandoned)
    conversation.watches.ended(ending)
    return ending


def _ending(
    conversation: Conversation, failure: Exception | None, started: float, *, abandoned: bool
) -> Ending:
    return Ending(
        conversation.n_received,
        conversation.n_sent,
        conversation.scan_began,
        failure,
        abandoned,
        time.monotonic() - started,
    )


def log_ending(ending: Ending, address: str, log: logging.Logger) -> None:
    """Write one line about a conversation; never what it was about, as that may name a patient."""
    counts = f"{ending.n_received} messages in, {ending.n_sent} out, {ending.seconds:.1f} s"
    if ending.abandoned:
        log.error("%s: its reconstruction did not stop and was left behind (%s)", address, counts)
    if ending.failure is not None:
        log.error("%s: failed: %s (%s)", address, describe(ending.failure), counts)
    elif ending.had_scan:
        log.info("%s: done (%s)", address, counts)
    else:
        log.debug("%s: came and went without a scan (%s)", address, counts)


def reason_for_peer(failure: Exception) -> str:
    """Return what a peer is told; of an unforeseen exception only the kind: its text may name a patient."""
    if isinstance(failure, GadgetError):
        return str(failure)
    return f"The reconstruction failed ({type(failure).__name__}). The log of this program says where."


def describe(failure: Exception) -> str:
    """Return what the log is told: the text of our own errors, and only the place of unforeseen ones."""
    if isinstance(failure, GadgetError):
        return str(failure)
    frames = "".join(traceback.format_tb(failure.__traceback__))
    return (
        f"{type(failure).__name__}; this is a bug. Its text may name the patient and is not logged.\n{frames}"
    )


class _Work:
    """A reconstruction in a thread of its own."""

    def __init__(self, conversation: Conversation, handle: Handler) -> None:
        self.done = threading.Event()
        self.failure: Exception | None = None
        self._conversation = conversation
        self._handle = handle

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"work {self._conversation.address}", daemon=True).start()

    def _run(self) -> None:
        name_scan(self._conversation.address)
        try:
            self._answer_all()
        except Exception as error:  # noqa: BLE001  # whatever it is, the peer is told, and the next one served
            self.failure = error
        except BaseException as error:  # noqa: BLE001  # a module that calls sys.exit
            self.failure = RuntimeError(f"the reconstruction raised {type(error).__name__}")
        finally:
            self.done.set()
            self._conversation.announce()

    def _answer_all(self) -> None:
        messages = self._conversation.messages()
        head = []
        for message in messages:
            head.append(message)
            if self._conversation.scan_began:
                break
        if not self._conversation.scan_began:
            return
        conversation = self._conversation
        peer = Peer(
            conversation.address,
            conversation.dialect,
            conversation.cancelled,
            conversation.silent,
            conversation.watches,
        )
        for reply in self._handle(_chained(head, messages), peer):
            if isinstance(reply, Close):
                break
            if isinstance(reply, Text) and peer.dialect is Dialect.GADGETRON:
                logger.info("%s: a text that Gadgetron would refuse was not sent", peer.address)
                continue
            conversation.send(reply)


def _chained(head: list[Message], rest: Iterator[Message]) -> Iterator[Message]:
    yield from head
    yield from rest
