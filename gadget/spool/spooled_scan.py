"""One scan that is kept on disk while it comes in."""

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from gadget.answering import Ending, reason_for_peer
from gadget.errors import GadgetError
from gadget.image_meta import FALLBACK, KIND, read_meta
from gadget.scan.buckets import readouts_of_bucket
from gadget.spool.manifest import DONE, WHOLE, ScanRecord
from gadget.spool.stream_file import StreamReader, StreamWriter
from gadget.wire.codec import encode_parts
from gadget.wire.limits import MIB
from gadget.wire.messages import Acquisition, AcquisitionBucket, Close, Image, Message, Query
from gadget.wire.session import Dialect, dialect_of

logger = logging.getLogger(__name__)


class SpooledScan:
    """A watch that writes what a peer sends to a stream file; made by :class:`gadget.spool.spool.Spool`.

    A disk that fails never ends a scan: from there on nothing more of it is kept, which is logged once and
    said in the list of scans. Queries are not kept: they are no part of a scan.

    Parameters
    ----------
    create
        Called with this scan at the first message: sets :attr:`name` and returns the file, or raises OSError.
    retire
        Called with this scan once the conversation has ended.
    """

    def __init__(
        self,
        create: Callable[["SpooledScan"], StreamWriter],
        retire: Callable[["SpooledScan"], None],
    ) -> None:
        self.name: str | None = None
        """From the first message on."""
        self.began = datetime.now(UTC)
        """When the first message came."""
        self.n_messages = 0
        """Kept so far."""
        self.n_images = 0
        """Sent to the peer so far."""
        self.n_fallbacks = 0
        """Of these: in place of a reconstruction."""
        self.fault: str | None = None
        """Why no more is kept, in words; None while all goes well."""
        self.file: StreamWriter | None = None
        """From the first message on, where it could be made."""
        self.ending: Ending | None = None
        self._create = create
        self._retire = retire
        self._peer = Dialect.MRD
        self._n_readouts = 0
        self._has_close = False

    @property
    def is_whole(self) -> bool:
        """Whether everything that came so far is in the file."""
        return self.fault is None and self.file is not None

    @property
    def had_scan(self) -> bool:
        """Whether more came than a probe sends; known once the conversation has ended."""
        return self.ending is not None and self.ending.had_scan

    def messages(self) -> Iterator[Message]:
        """Yield what the peer has sent up to now, from the config on: without queries and CLOSE.

        The same messages, in the same order, as :meth:`gadget.connection.Conversation.messages` yields; to be
        asked for before the conversation has ended, and only where :attr:`is_whole`.

        Raises
        ------
        FileError
            The file cannot be read.
        GadgetError
            Not all that came is in the file.
        """
        if self.file is None or self.fault is not None:
            raise GadgetError(f"The scan was not kept whole: {self.fault or 'nothing came yet'}.")
        for message in StreamReader(self.file.path):
            if not isinstance(message, Close):
                yield message

    def received(self, message: Message, at: float) -> None:  # noqa: ARG002  # as a ScanWatch
        """Append a message to the file, before the reconstruction gets it."""
        if self.fault is not None or isinstance(message, Query):
            return
        try:
            if self.file is None:
                self.began, self._peer = datetime.now(UTC), dialect_of(message)
                self.file = self._create(self)
            self.file.append(encode_parts(message))
        except Exception as error:  # noqa: BLE001  # nothing that goes wrong here is worth a scan
            self._give_up(error)
            return
        self.n_messages += 1
        self._has_close |= isinstance(message, Close)
        self._n_readouts += readouts_in(message)

    def sent(self, message: Message, at: float) -> None:  # noqa: ARG002  # as a ScanWatch
        """Count an image."""
        if isinstance(message, Image):
            self.n_images += 1
            self.n_fallbacks += read_meta(message).get(KIND) == FALLBACK

    def ended(self, ending: Ending) -> None:
        """Hand the scan over to the spool, and log what it is called there."""
        self.ending = ending
        if ending.had_scan and self.file is not None:
            logger.info(
                "spool: %d readouts, %.1f MiB are in %s", self._n_readouts, self.file.n_bytes / MIB, self.name
            )
        self._retire(self)

    def record(self) -> ScanRecord:
        """Return what the list of scans says once the conversation has ended."""
        ending = self.ending
        failure = None if ending is None else ending.failure
        return ScanRecord(
            scan=self.name or "",
            began=self.began.isoformat(timespec="seconds"),
            seconds=None if ending is None else round(ending.seconds, 1),
            peer=self._peer.value,
            readouts=self._n_readouts,
            bytes=0 if self.file is None else self.file.n_bytes,
            images=self.n_images,
            outcome=self._outcome(failure),
            kept=self._kept(),
        )

    def _outcome(self, failure: Exception | None) -> str:
        words = DONE if failure is None else f"failed: {reason_for_peer(failure)}"
        return f"{words}; fallback images: {self.n_fallbacks}" if self.n_fallbacks else words

    def _kept(self) -> str:
        if self.fault is not None:
            return f"{self.n_messages} messages, then no more: {self.fault}"
        return WHOLE if self._has_close else "without an end: the peer sent no CLOSE"

    def _give_up(self, error: Exception) -> None:
        self.fault = (error.strerror or str(error)) if isinstance(error, OSError) else type(error).__name__
        logger.warning(
            "spool: %s is not kept any further, after %d messages: %s. The scan goes on. Look at the disk, "
            "its quota and the folder's permissions; a smaller spool leaves more room.",
            self.name,
            self.n_messages,
            self.fault,
        )


def readouts_in(message: Message) -> int:
    """Return the number of readouts of a message; those that stand in both lists of a bucket count once."""
    if isinstance(message, AcquisitionBucket):
        return sum(1 for _ in readouts_of_bucket(message))
    return int(isinstance(message, Acquisition))
