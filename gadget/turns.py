"""A fair queue before the device: one computes at a time, and no scan waits for all of another."""

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gadget.errors import NobodyWaitsError

_ASK_EVERY_S = 0.1
_REMEMBERED = 256


class TurnCancelledError(NobodyWaitsError):
    """Nobody waits any more for what the turn was to be used for."""


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    who: Hashable
    urgent: bool


class Turns:
    """Hands out turns: urgent ones first, among equals to the one who has waited longest since its last.

    So scans take turns (round robin), and of one scan what asked first goes first. A turn cannot be taken
    inside another one.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Request] = []
        self._holder: _Request | None = None
        self._count = itertools.count(1)
        self._last_turn: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    @contextmanager
    def turn(
        self, who: Hashable, *, urgent: bool, cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Wait for a turn and hold it inside the ``with``.

        Parameters
        ----------
        who
            The scan that it is for.
        urgent
            True for images; False for what can wait, as steps of sampling.
        cancelled
            Asked while waiting.

        Raises
        ------
        TurnCancelledError
            ``cancelled`` turned true before the turn came.
        """
        request = _Request(who, urgent)
        with self._changed:
            self._waiting.append(request)
            try:
                while not self._is_next(request):
                    if cancelled():
                        raise TurnCancelledError
                    self._changed.wait(_ASK_EVERY_S)
                self._holder = request
                self._take_note_of(who)
            finally:
                self._waiting.remove(request)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._holder = None
                self._changed.notify_all()

    def _is_next(self, request: _Request) -> bool:
        if self._holder is not None:
            return False
        rivals = [one for one in self._waiting if one.urgent] or self._waiting
        # min() returns the first of equals, which asked first
        return request is min(rivals, key=lambda one: self._last_turn.get(one.who, 0))

    def _take_note_of(self, who: Hashable) -> None:
        self._last_turn.pop(who, None)
        self._last_turn[who] = next(self._count)
        while len(self._last_turn) > _REMEMBERED:
            del self._last_turn[next(iter(self._last_turn))]
