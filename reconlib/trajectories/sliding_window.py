"""Which readouts of a continuous series belong to which frame: a window that slides over them."""

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Frame(Generic[Item]):
    """One frame of a series."""

    index: int
    """Counted from 0."""
    first: int
    """Number of its first readout, counted from 0 in the order of arrival."""
    readouts: tuple[Item, ...]
    """In the order of arrival."""


class SlidingWindow(Generic[Item]):
    """Frame f holds the readouts from ``f * step`` on, ``length`` of them.

    It is complete, and :meth:`add` returns it, with its last readout: the first frame after ``length``
    readouts, each further one after ``step`` more. A step below the length makes frames that share readouts,
    one equal to it frames that share none, and with a larger one readouts between the frames belong to none.
    """

    def __init__(self, length: int, step: int) -> None:
        if length < 1 or step < 1:
            raise ValueError(
                f"A window of {length} readouts that moves on by {step} makes no frames; both need to be at "
                "least 1."
            )
        self.length = length
        self.step = step
        self._recent: deque[Item] = deque(maxlen=length)
        self._n_readouts = 0
        self._n_frames = 0

    @property
    def n_readouts(self) -> int:
        """Readouts that arrived."""
        return self._n_readouts

    @property
    def n_frames(self) -> int:
        """Frames that are complete."""
        return self._n_frames

    @property
    def n_unused(self) -> int:
        """Readouts since the last complete frame: if nothing more comes, they are in no frame.

        Readouts between frames (a step above the length) do not count.
        """
        if not self._n_frames:
            return self._n_readouts
        next_first = self._n_frames * self.step
        last_end = next_first - self.step + self.length
        return max(0, self._n_readouts - max(next_first, last_end))

    def add(self, readout: Item) -> Frame[Item] | None:
        """Take a readout; return the frame that it completes."""
        self._recent.append(readout)
        self._n_readouts += 1
        first = self._n_frames * self.step
        if self._n_readouts < first + self.length:
            return None
        frame = Frame(self._n_frames, first, tuple(self._recent))
        self._n_frames += 1
        return frame

    def rest(self) -> tuple[Item, ...]:
        """Return what a last, incomplete frame would hold: the unused readouts; none where there are none."""
        recent = tuple(self._recent)
        return recent[len(recent) - self.n_unused :]
