"""Those who look on at a conversation: what keeps scans on disk, measures latency, or fills the monitor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from gadget.wire.messages import Message

if TYPE_CHECKING:
    from gadget.answering import Ending

logger = logging.getLogger(__name__)


class ScanWatch(Protocol):
    """Sees every message of one conversation; times are those of ``time.monotonic()``.

    A watch is called from several threads. One that raises is logged and sees no more messages, only the end;
    the scan goes on.
    """

    def received(self, message: Message, at: float) -> None:
        """Take note of what the peer sent, before the reconstruction gets it.

        Called by the thread that reads, so a slow watch makes the peer wait. CLOSE is a message, too.
        """

    def sent(self, message: Message, at: float) -> None:
        """Take note of what was handed to the kernel for the peer."""

    def ended(self, ending: Ending) -> None:
        """Take note of how the conversation ended; called once, last. Probes end without a scan."""


WatchFactory = Callable[[str], ScanWatch]
"""From the address of a peer that was just accepted to its watch."""


class Watches:
    """Several watches as one that never raises; iterating yields those of them that never have."""

    def __init__(self, watches: Sequence[ScanWatch] = ()) -> None:
        self._all = tuple(watches)
        self._watches = list(watches)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[ScanWatch]:
        with self._lock:
            return iter(tuple(self._watches))

    def received(self, message: Message, at: float) -> None:
        self._each(tuple(self), lambda watch: watch.received(message, at))

    def sent(self, message: Message, at: float) -> None:
        self._each(tuple(self), lambda watch: watch.sent(message, at))

    def ended(self, ending: Ending) -> None:
        self._each(self._all, lambda watch: watch.ended(ending))

    def _each(self, watches: Sequence[ScanWatch], tell: Callable[[ScanWatch], None]) -> None:
        for watch in watches:
            try:
                tell(watch)
            except Exception as error:  # noqa: BLE001  # whatever it is, the scan goes on
                with self._lock:
                    if watch in self._watches:
                        self._watches.remove(watch)
                _log(watch, error, "failed and looks on no more")


def made_by(factories: Sequence[WatchFactory], address: str) -> list[ScanWatch]:
    """Make the watches of a new connection; a factory that fails is logged and left out."""
    watches = []
    for factory in factories:
        try:
            watches.append(factory(address))
        except Exception as error:  # noqa: BLE001  # whatever it is, the scan goes on
            _log(factory, error, "could not be made")
    return watches


def _log(whose: object, error: Exception, what: str) -> None:
    """Log a failure without the text of an unforeseen exception, which may name the patient."""
    name = getattr(whose, "__qualname__", type(whose).__qualname__)
    logger.error("%s %s (%s); the scan goes on.", name, what, type(error).__name__)
