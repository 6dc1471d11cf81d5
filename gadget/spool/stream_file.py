"""Stream files: a scan as the bytes of ISMRMRD's stream, one whole message after another, up to CLOSE.

Why not HDF5, the other format of ISMRMRD, while a scan runs: its readouts have variable lengths, and HDF5
keeps no promise about these when a writer dies. A writer that was killed leaves "file is already open for
write" behind; in HDF5's single-writer mode (SWMR), which its documentation excludes for data of variable
length, the file opens and its readouts are "address of object past end of allocation". Both were tried with
h5py 3.16 and kill -9, after each readout had been flushed. A stream file has nothing behind the last message
that could be out of date: cut anywhere, its whole messages are there.
"""

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from gadget.errors import FileError, PeerProtocolError, ScanError
from gadget.wire.codec import MrdDecoder
from gadget.wire.limits import MIB
from gadget.wire.message_ids import MessageId
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    Close,
    Image,
    ImageArray,
    Message,
    ReconData,
    ScanHeader,
    Waveform,
)

logger = logging.getLogger(__name__)

SUFFIX = ".stream"

_FIRST_IDS = (MessageId.CONFIG_FILE, MessageId.CONFIG_TEXT, MessageId.HEADER)
_READ_BYTES = MIB // 4
_BUFFERS_AT_ONCE = 512  # below the least that POSIX systems take, 1024
_DATA = (Acquisition, Waveform, AcquisitionBucket, ReconData, Image, ImageArray)


class StreamWriter:
    """A new file, readable by its owner only, to which whole messages are appended.

    Raises
    ------
    OSError
        The file exists or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        self.path = path
        self.n_bytes = 0
        """Of the whole messages."""
        self._handle = os.open(path, flags, 0o600)
        self._n_synced = 0

    def append(self, parts: Iterable[bytes | memoryview]) -> None:
        """Hand a message to the kernel, which keeps it whatever becomes of this process.

        Raises
        ------
        OSError
            The disk is full, or failed; the file ends with the message before.
        """
        waiting = deque(memoryview(part) for part in parts if len(part))
        n_bytes = sum(map(len, waiting))
        try:
            while waiting:
                n_written = os.writev(self._handle, list(islice(waiting, _BUFFERS_AT_ONCE)))
                while waiting and n_written >= len(waiting[0]):
                    n_written -= len(waiting.popleft())
                if n_written:
                    waiting[0] = waiting[0][n_written:]
        except OSError:
            os.ftruncate(self._handle, self.n_bytes)
            raise
        self.n_bytes += n_bytes

    def sync(self) -> None:
        """Bring to the disk what was not there yet, against a loss of power; OSError if it cannot be."""
        n_bytes = self.n_bytes
        if n_bytes > self._n_synced:
            os.fdatasync(self._handle)
            self._n_synced = n_bytes

    def close(self) -> None:
        """Bring the rest to the disk if that works, and close the file."""
        handle, self._handle = self._handle, -1
        try:
            os.fdatasync(handle)
        except OSError as error:
            logger.error("%s may not be on the disk: %s", self.path, error.strerror)
        finally:
            os.close(handle)


class StreamReader:
    """The whole messages of a stream file; also of one that is still being written, up to where it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.broken_off: str | None = None
        """Once all messages were taken: where and how the file breaks off; None where it ends with CLOSE."""
        self.n_bytes = 0
        """Of the whole messages so far."""

    def __iter__(self) -> Iterator[Message]:
        """Yield the messages, CLOSE included, up to the first one that is not whole.

        Raises
        ------
        FileError
            The file cannot be read.
        """
        decoder = MrdDecoder()
        n_messages = self.n_bytes = 0
        message: Message | None = None
        piece = b""
        try:
            for piece in self._pieces():
                decoder.feed(piece)
                for message in decoder.messages():
                    n_messages += 1
                    self.n_bytes += decoder.n_bytes_of_last_message
                    yield message
            reason = "" if isinstance(message, Close) else "there is no CLOSE"
        except PeerProtocolError as error:
            reason = str(error).partition(". ")[0].rstrip(".") if piece else "the next one is cut off"
        self.broken_off = (
            f"{self.path} is incomplete: it breaks off after {n_messages} whole messages "
            f"({self.n_bytes} bytes): {reason}."
            if reason
            else None
        )

    def _pieces(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb", buffering=0) as file:
                while piece := file.read(_READ_BYTES):
                    yield piece
        except OSError as error:
            raise FileError(f"Cannot read {self.path}: {error.strerror or error}.") from error
        yield b""


def is_stream(path: Path) -> bool:
    """Whether a file is a stream file: by its first bytes, or by its name where it has too few."""
    try:
        with path.open("rb") as file:
            first = file.read(2)
    except OSError:
        return False
    if len(first) < 2:
        return path.suffix == SUFFIX
    return int.from_bytes(first, "little") in _FIRST_IDS


def read_stream_scan(path: Path) -> Iterator[Message]:
    """Yield the scan in a stream file: header, readouts and other data as they came, close.

    What the peer asked its server for, configuration and texts, is left out. An incomplete file is read up
    to where it breaks off, which is logged.

    Raises
    ------
    FileError
        The file cannot be read.
    ScanError
        It breaks off before the header, or has data before it.
    """
    reader = StreamReader(path)
    is_headed = False
    for message in reader:
        if isinstance(message, ScanHeader):
            is_headed = True
            yield message
        elif isinstance(message, _DATA):
            if not is_headed:
                raise ScanError(
                    f"{path} has a {type(message).__name__} before the scan's header; k-space cannot be laid "
                    "out without it. The peer that sent this scan is at fault."
                )
            yield message
    if not is_headed:
        raise ScanError(
            f"{path} holds no scan: the XML header never came."
            + (f" {reader.broken_off}" if reader.broken_off else "")
        )
    if reader.broken_off:
        logger.warning("%s What came before is used; slices may lack lines.", reader.broken_off)
    yield Close()


def count_stream_readouts(path: Path) -> int:
    """Return the number of single readouts in a stream file."""
    return sum(isinstance(message, Acquisition) for message in StreamReader(path))
