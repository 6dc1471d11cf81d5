"""A peer's messages for one worker after another: a later one gets what the earlier one had, and the rest."""

import threading
from collections.abc import Callable, Iterable, Iterator

from gadget.errors import GadgetError
from gadget.wire.messages import Close, Message, Query


class ScanFeed:
    """Draws from a peer's messages, for one reader at a time that counts; an earlier one may still wait.

    Where the peer fails (it breaks the protocol, say) while it can still be answered, the messages end, so
    that the worker makes images of what came; :attr:`failure` then says what was wrong.

    Parameters
    ----------
    messages
        From the first to the last but CLOSE; queries are not among them.
    """

    def __init__(self, messages: Iterator[Message]) -> None:
        self.failure: GadgetError | None = None
        self._messages = messages
        self._n_taken = 0
        self._is_over = False
        self._taking = threading.Lock()

    def live(self, cancelled: Callable[[], bool]) -> Iterator[Message]:
        """Yield the messages as they come."""
        at = 0
        while (message := self._take(at, cancelled)) is not None:
            at += 1
            yield message

    def again(self, recorded: Iterable[Message], cancelled: Callable[[], bool]) -> Iterator[Message]:
        """Yield all messages from the first: what was taken before from a record, the rest as it comes.

        A reader before this one may have waited for the peer since; what it gets then is in the record, too.

        Raises
        ------
        GadgetError
            The record has less than was taken.
        """
        kept: Iterator[Message] = (one for one in recorded if not isinstance(one, Query | Close))
        at = 0
        message: Message | None
        while True:
            if at < self._n_taken:
                message = next(kept, None)
                if message is None:
                    raise GadgetError("What was kept of this scan is not all of it; send the scan again.")
            elif (message := self._take(at, cancelled)) is None:
                if at < self._n_taken:
                    continue
                return
            at += 1
            yield message

    def _take(self, at: int, cancelled: Callable[[], bool]) -> Message | None:
        """Take the message of this number from the peer; None: there is none, or it was taken before."""
        with self._taking:
            if at < self._n_taken or self._is_over:
                return None
            try:
                message = next(self._messages, None)
            except GadgetError as error:
                if cancelled():
                    raise
                self.failure, message = error, None
            if message is None:
                self._is_over = True
            else:
                self._n_taken += 1
            return message
