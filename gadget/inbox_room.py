"""Memory that all connections of a process share for what they have read and not yet used."""

import threading

from gadget.wire.limits import MIB


class InboxRoom:
    """Counts bytes of all connections. One whose reconstruction waits for it may read on even if it is full.

    So what all connections hold is at most ``n_bytes``, and one message of each beyond that.
    """

    def __init__(self, n_bytes: int = 1024 * MIB) -> None:
        self.n_bytes = n_bytes
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        return self._used

    @property
    def is_full(self) -> bool:
        """Whether connections that hold something should wait."""
        return self._used >= self.n_bytes

    def add(self, n_bytes: int) -> None:
        """Take note of bytes that were read, or (negative) that are no longer held."""
        with self._lock:
            self._used += n_bytes
