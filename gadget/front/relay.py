"""Scans from peers to the worker, and its answers back: what a server's handler does in the front.

A worker that dies takes no scan with it that was kept as it came: the next worker gets it again, and makes
fallback images of what the peer has not had.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from typing import Protocol

from gadget.answering import Peer
from gadget.client import exchange
from gadget.connection import Conversation
from gadget.connection_options import ConnectionOptions
from gadget.errors import GadgetError, NobodyWaitsError, PeerProtocolError, PeerReportedError
from gadget.front.scan_feed import ScanFeed
from gadget.front.sent_images import SentImages
from gadget.front.supervisor import HandedOver
from gadget.front.worker_process import WorkerProcess
from gadget.settings import Settings
from gadget.wire.limits import MIB
from gadget.wire.messages import ConfigFile, ConfigText, Message, ScanHeader, Text
from gadget.wire.session import End, Session
from gadget.worker.scan_request import ScanRequest

logger = logging.getLogger(__name__)

OPTIONS = ConnectionOptions(
    first_message_s=86400.0, idle_s=None, send_s=86400.0, grace_s=1.0, linger_s=0.0, inbox_bytes=64 * MIB
)
"""Towards the worker: it may compute for long, and its end is noticed without limits of time."""

_ASK_EVERY_S = 0.1
_MOST_DEATHS = 5
"""Of workers during a scan that is kept; another scan may be what they die of."""
_HEAD = (ConfigFile, ConfigText, ScanHeader, Text)

_WHAT_COMES_NOW = (
    "Images that had not been sent yet are fallbacks: root sums of squares; uncertainty series end here."
)

SettingsOfScan = Callable[..., Settings]
"""From the messages before the first data to the settings that the scan starts with."""
Recorded = Callable[[Peer], Iterable[Message] | None]
"""From a peer to what came from it so far; None where that is not kept."""


class Workers(Protocol):
    """Who reconstructs."""

    def hand_over(self, request: ScanRequest, cancelled: Callable[[], bool]) -> HandedOver: ...


class Relay:
    """Handles the scans of a server by handing them to workers.

    Parameters
    ----------
    settings_of
        Called for each scan.
    recorded
        What is kept of scans that run.
    """

    def __init__(
        self,
        workers: Workers,
        settings_of: SettingsOfScan,
        recorded: Recorded = lambda _peer: None,
    ) -> None:
        self._workers = workers
        self._settings_of = settings_of
        self._recorded = recorded

    def __call__(self, messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        """Yield the answers to a scan, as :data:`gadget.answering.Handler` says."""
        head: list[Message] = []
        first_data: list[Message] = []
        for message in messages:
            if not isinstance(message, _HEAD):
                first_data.append(message)
                break
            head.append(message)
        request = ScanRequest(address=peer.address, settings=self._settings_of(*head))
        feed = ScanFeed(chain(head, first_data, messages))
        sent = SentImages()
        to_send = feed.live(peer.cancelled)
        for n_deaths in count(1):
            try:
                yield from sent.not_had(self._attempt(request, to_send, peer))
                break
            except WorkerDiedError as death:
                recorded = self._recorded(peer)
                if recorded is None:
                    raise
                if n_deaths == _MOST_DEATHS:
                    raise GadgetError(
                        f"{_MOST_DEATHS} times while it was at this scan, maybe at others, {death.reason}. "
                        "What came of it is on the server's disk: replay its file from the spool."
                    ) from death
                logger.error("%s: %s. %s", peer.address, death.reason, _WHAT_COMES_NOW)
                request = replace(request, fallback_only=death.reason, n_images_sent=sent.n_images)
                yield Text(f"gadgetron-ebm: {death.reason}. {_WHAT_COMES_NOW}")
                to_send = feed.again(recorded, peer.cancelled)
        if feed.failure is not None:
            raise feed.failure

    def _attempt(self, request: ScanRequest, messages: Iterator[Message], peer: Peer) -> Iterator[Message]:
        """Yield what one worker answers."""
        handed_over = self._workers.hand_over(request, peer.cancelled)
        conversation = Conversation(
            handed_over.sock, Session(End.SCAN_SENDER), address=f"worker for {peer.address}", options=OPTIONS
        )
        with _CancelledWith(peer, conversation, handed_over.worker):
            try:
                yield from exchange(conversation, messages)
            except PeerReportedError as error:
                raise GadgetError(error.reason) from error
            except PeerProtocolError as error:
                if peer.cancelled():
                    raise
                how = handed_over.how_the_worker_ended() or f"left this scan: {error}"
                raise WorkerDiedError(how) from error


class WorkerDiedError(GadgetError):
    """The process that reconstructs is gone in the middle of a scan."""

    def __init__(self, how: str) -> None:
        self.reason = f"the process that reconstructs {how}"
        super().__init__(
            f"{self.reason[0].upper()}{self.reason[1:]}. It is started again. What had come of this scan is "
            "lost, since it was not kept on disk: send the scan again. A server that keeps scans (serve "
            "--spool) would have gone on, with root-sum-of-squares images."
        )


class _CancelledWith:
    """Ends the conversation with a worker that nobody waits for any more, or from which nothing will come."""

    def __init__(self, peer: Peer, conversation: Conversation, worker: WorkerProcess) -> None:
        self._peer = peer
        self._conversation = conversation
        self._worker = worker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"relay {peer.address}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_ASK_EVERY_S):
            if self._peer.cancelled():
                self._conversation.cancel(NobodyWaitsError())
                return
            if self._worker.is_left_behind:
                self._conversation.cancel(PeerProtocolError("The process cannot be ended."))
                return
