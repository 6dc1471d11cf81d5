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

    def counted(self, answers: Iterable[Message]) -> Iterator[Message]:
        """Yield answers, and count them."""
        for answer in answers:
            if isinstance(answer, Image) and KIND in read_meta(answer):
                self.n_images = max(self.n_images, int(answer.header["image_index"]))
            elif not isinstance(answer, Text):
                self._n_passed += 1
            yield answer

    def without_what_passed(self, answers: Iterable[Message]) -> Iterator[Message]:
        """Yield the answers to the same scan again, but what passed through only where it had not."""
        n_left = self._n_passed
        for answer in answers:
            is_ours = isinstance(answer, Text) or (isinstance(answer, Image) and KIND in read_meta(answer))
            if n_left and not is_ours:
                n_left -= 1
            else:
                yield answer
