"""One stage of a stream in a thread of its own, ahead of the one that takes what it makes."""

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Runs an iterator in a thread, as far ahead of its own consumer as a limit lets it.

    Items come out in order, and after them the exception that ended the iterator, if one did. The iterator
    waits where more than the limit is held, so that whoever feeds it is held up in turn.

    Parameters
    ----------
    source
        Taken, and closed where it is a generator, by the thread.
    cost
        Bytes that an item holds.
    limit
        Bytes; one item may always wait, however large it is.
    name
        Of the thread.
    """

    def __init__(self, source: Iterable[T], *, cost: Callable[[T], int], limit: int, name: str) -> None:
        self._source = source
        self._cost = cost
        self._limit = limit
        self._changed = threading.Condition()  # guards what follows
        self._items: deque[tuple[T, int]] = deque()
        self._n_bytes = 0
        self._is_over = False
        self._is_stopped = False
        self._failure: BaseException | None = None
        context = contextvars.copy_context()  # so that the log knows which scan its lines are about
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._is_over or self._is_stopped)
            if self._items:
                item, n_bytes = self._items.popleft()
                self._n_bytes -= n_bytes
                self._changed.notify_all()
                return item
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        raise StopIteration

    @property
    def n_bytes(self) -> int:
        """What is held: made, and not taken yet."""
        return self._n_bytes

    def would_wait(self) -> bool:
        """Whether taking the next item would wait."""
        with self._changed:
            return not (self._items or self._is_over or self._is_stopped)

    def stop(self) -> None:
        """Drop what is held; the thread ends at its next item, or with its source where it waits for that."""
        with self._changed:
            self._is_stopped = True
            self._drop()

    def join(self) -> None:
        """Wait for the thread to end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            try:
                for item in self._source:
                    if not self._keep(item):
                        break
            finally:
                close = getattr(self._source, "close", None)
                if close is not None:
                    close()
        except BaseException as error:  # noqa: BLE001  # carried over to the thread that takes the items
            self._failure = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _keep(self, item: T) -> bool:
        """Hold an item, once there is room; return whether anybody wants more."""
        n_bytes = self._cost(item)
        with self._changed:
            self._changed.wait_for(lambda: self._n_bytes < self._limit or self._is_stopped)
            if not self._is_stopped:
                self._items.append((item, n_bytes))
                self._n_bytes += n_bytes
                self._changed.notify_all()
            return not self._is_stopped

    def _drop(self) -> None:
        self._items.clear()
        self._n_bytes = 0
        self._changed.notify_all()
