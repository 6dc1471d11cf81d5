"""What a peer has had of a scan, so that it gets nothing twice when another worker takes over."""

from collections.abc import Iterable, Iterator

from gadget.image_meta import KIND, read_meta
from gadget.wire.messages import Image, Message, Text


class SentImages:
    """Counts the answers that went to a peer."""

    def __init__(self) -> None:
        self.n_images = 0
        """Slices and partitions whose images left: these are numbered from 1 in each series."""
        self._n_passed = 0

    def not_had(self, answers: Iterable[Message]) -> Iterator[Message]:
        """Yield the answers to a scan, and count them; what passed through only where it had not before.

        Images of ours are all yielded: a worker is told how many the peer has had, and makes the others.
        """
        n_before = self._n_passed
        for answer in answers:
            if isinstance(answer, Image) and KIND in read_meta(answer):
                self.n_images = max(self.n_images, int(answer.header["image_index"]))
            elif not isinstance(answer, Text):
                if n_before:
                    n_before -= 1
                    continue
                self._n_passed += 1
            yield answer
