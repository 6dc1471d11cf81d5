"""Bytes to messages and back, for every message that Gadgetron, MRD and FIRE peers send.

No socket, no thread, no logging: the caller feeds bytes as they come and takes out what is complete.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from gadget.errors import OwnProtocolError, PeerProtocolError
from gadget.wire.binary import UINT64, ReadBytes, Steps, read_uint64
from gadget.wire.gadgetron_messages import (
    bucket_parts,
    image_array_parts,
    read_bucket,
    read_image_array,
    read_recon_data,
    recon_data_parts,
)
from gadget.wire.limits import Budget, Limits
from gadget.wire.message_ids import MessageId
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    Close,
    ConfigFile,
    ConfigText,
    Error,
    Image,
    ImageArray,
    Message,
    Query,
    ReconData,
    Response,
    ScanHeader,
    Text,
    Waveform,
)
from gadget.wire.plain_messages import (
    acquisition_parts,
    config_file_parts,
    image_parts,
    long_text_parts,
    read_acquisition,
    read_config_file,
    read_image,
    read_long_text,
    read_short_text,
    read_waveform,
    short_text_parts,
    waveform_parts,
)
from gadget.wire.readout_runs import read_run

_ID_BYTES = 2


class MrdDecoder:
    """Turns the bytes of one direction of a conversation into messages.

    ``feed`` stores bytes, ``messages`` yields what is complete; memory and time are linear in the bytes fed,
    however they are cut. Arrays are read-only views of the received bytes. After an error it stays in error.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._chunks: deque[bytes] = deque()
        self._offset = 0  # of what is unread in the first chunk
        self._n_waiting = 0  # unread bytes in all chunks
        self._part = bytearray()  # the wanted bytes, where they span chunks
        self._wanted = _ID_BYTES
        self._steps: Steps[Message] | None = None  # None: between messages
        self._run: Iterator[Acquisition] = iter(())  # read, and not yet yielded
        self._message_id: int | None = None
        self._previous: Message | None = None
        self._at_end = False
        self._failure: PeerProtocolError | None = None
        self._n_message_bytes = 0
        self.n_bytes_of_last_message = 0
        """Length on the wire of the message yielded last."""

    def feed(self, data: bytes) -> None:
        """Store received bytes; ``b""`` says that the stream has ended."""
        if self._at_end:
            raise ValueError("MrdDecoder.feed was called after the end of the stream; use a new decoder.")
        if not data:
            self._at_end = True
            return
        self._chunks.append(bytes(data))
        self._n_waiting += len(data)

    def messages(self) -> Iterator[Message]:
        """Yield the messages that are complete.

        Raises
        ------
        PeerProtocolError
            The bytes break the protocol, or the stream ended inside a message.
        """
        if self._failure:
            raise self._failure
        try:
            while (message := self._next_of_run() or self._next_message()) is not None:
                yield message
            if self._at_end and (self._n_waiting or self._part or self._steps):
                raise PeerProtocolError(
                    f"The connection ended {self._where()}: {len(self._part)} of the next {self._wanted} "
                    "bytes came. The peer stopped or was cut off."
                )
        except PeerProtocolError as error:
            self._failure = error
            self._chunks.clear()
            self._part = bytearray()
            raise

    def _next_of_run(self) -> Acquisition | None:
        """Return the next of the readouts that are read at once; None where the next message is not one."""
        readout = next(self._run, None)
        if readout is None and self._chunks and not (self._steps or self._part or self._is_closed):
            found = read_run(self._chunks[0], self._offset, self._limits)
            if found is not None:
                n_readouts, self.n_bytes_of_last_message, self._run = found
                self._skip(n_readouts * self.n_bytes_of_last_message)
                readout = next(self._run)
        if readout is not None:
            self._previous = readout
        return readout

    @property
    def _is_closed(self) -> bool:
        return isinstance(self._previous, Close)

    def _next_message(self) -> Message | None:
        while (raw := self._take()) is not None:
            self._n_message_bytes += len(raw)
            try:
                if self._steps is None:
                    self._steps = self._start_of_message(int.from_bytes(raw, "little"))
                    self._wanted = next(self._steps)
                else:
                    self._wanted = self._steps.send(raw)
            except StopIteration as finished:
                message: Message = finished.value
                self.n_bytes_of_last_message = self._n_message_bytes
                self._n_message_bytes = 0
                self._previous, self._steps, self._message_id = message, None, None
                self._wanted = _ID_BYTES
                return message
        return None

    def _take(self) -> ReadBytes | None:
        """Return the wanted bytes once they are there; move what there is of them out of the chunks."""
        wanted = self._wanted
        if not self._part and self._chunks and len(self._chunks[0]) - self._offset >= wanted:
            taken = self._chunks[0][self._offset : self._offset + wanted]
            self._skip(wanted)
            return taken
        while self._chunks and len(self._part) < wanted:
            view = memoryview(self._chunks[0])[self._offset : self._offset + wanted - len(self._part)]
            self._part += view
            self._skip(len(view))
        if len(self._part) < wanted:
            return None
        part, self._part = self._part, bytearray()
        return memoryview(part).toreadonly()

    def _skip(self, n_bytes: int) -> None:
        self._offset += n_bytes
        self._n_waiting -= n_bytes
        if self._chunks and self._offset == len(self._chunks[0]):
            self._chunks.popleft()
            self._offset = 0

    def _start_of_message(self, message_id: int) -> Steps[Message]:
        if self._is_closed:
            raise PeerProtocolError(
                f"The peer sent message id {message_id} after CLOSE; nothing may follow CLOSE. "
                "The peer must open a new connection for the next scan."
            )
        start = _DECODERS.get(message_id)
        if start is None:
            raise PeerProtocolError(
                f"Unknown MRD message id {message_id} {self._where()} (expected {_KNOWN_IDS})."
                f" {self._advice()}"
            )
        self._message_id = message_id
        return start(Budget(self._limits))

    def _where(self) -> str:
        if self._message_id is not None:
            return f"inside a {MessageId(self._message_id).name} message"
        if self._previous is None:
            return "at the start of the stream"
        return f"after a complete {type(self._previous).__name__}"

    def _advice(self) -> str:
        if isinstance(self._previous, Acquisition) and self._previous.trajectory.size:
            return (
                "The readout before has a trajectory: Gadgetron's RemoveROOversamplingGadget halves samples "
                "but not trajectories, so put the external node before it."
            )
        return "The peer speaks another protocol, or the stream is out of step."


def encode_parts(message: Message) -> list[ReadBytes]:
    """Return the bytes of a message as buffers to be sent in turn; large arrays are not copied.

    Raises
    ------
    OwnProtocolError
        The message contradicts itself, such as a header that does not match its array.
    """
    message_id, parts = _ENCODERS.get(type(message), (None, None))
    if message_id is None or parts is None:
        raise OwnProtocolError(f"{type(message).__name__} is not a message of gadget.wire.messages.")
    return [message_id.to_bytes(_ID_BYTES, "little"), *parts(message)]


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    return b"".join(encode_parts(message))


def _as(
    kind: Callable[[str], Message], read: Callable[..., Steps[str]], name: str
) -> Callable[[Budget], Steps[Any]]:
    def steps(budget: Budget) -> Steps[Message]:
        return kind((yield from read(budget, name)))

    return steps


def _read_close(_budget: Budget) -> Steps[Close]:
    yield 0
    return Close()


def _read_query(budget: Budget) -> Steps[Query]:
    reserved = yield from read_uint64(budget, "A query")
    if reserved != 0:
        raise PeerProtocolError(f"A query starts with the reserved number {reserved}; it must be 0.")
    query_id = yield from read_uint64(budget, "A query")
    return Query(query_id, (yield from read_long_text(budget, "A query")))


def _read_response(budget: Budget) -> Steps[Response]:
    query_id = yield from read_uint64(budget, "A response")
    return Response(query_id, (yield from read_long_text(budget, "A response")))


_DECODERS: dict[int, Callable[[Budget], Steps[Any]]] = {
    MessageId.CONFIG_FILE: read_config_file,
    MessageId.CONFIG_TEXT: _as(ConfigText, read_short_text, "A config text"),
    MessageId.HEADER: _as(ScanHeader, read_short_text, "A scan header"),
    MessageId.CLOSE: _read_close,
    MessageId.TEXT: _as(Text, read_short_text, "A text"),
    MessageId.QUERY: _read_query,
    MessageId.RESPONSE: _read_response,
    MessageId.ERROR: _as(Error, read_long_text, "An error"),
    MessageId.ACQUISITION: read_acquisition,
    MessageId.IMAGE: read_image,
    MessageId.RECON_DATA: read_recon_data,
    MessageId.IMAGE_ARRAY: read_image_array,
    MessageId.WAVEFORM: read_waveform,
    MessageId.ACQUISITION_BUCKET: read_bucket,
}

_KNOWN_IDS = ", ".join(f"{message_id.value} {message_id.name}" for message_id in MessageId)


def _raw(encode_text: Callable[[str], list[ReadBytes]]) -> Callable[[Any], list[ReadBytes]]:
    return lambda message: encode_text(message.raw)


def _close_parts(_message: Close) -> list[ReadBytes]:
    return []


def _query_parts(message: Query) -> list[ReadBytes]:
    return [UINT64.pack(0), UINT64.pack(message.query_id), *long_text_parts(message.raw)]


def _response_parts(message: Response) -> list[ReadBytes]:
    return [UINT64.pack(message.query_id), *long_text_parts(message.raw)]


_ENCODERS: dict[type, tuple[MessageId, Callable[[Any], list[ReadBytes]]]] = {
    ConfigFile: (MessageId.CONFIG_FILE, config_file_parts),
    ConfigText: (MessageId.CONFIG_TEXT, _raw(short_text_parts)),
    ScanHeader: (MessageId.HEADER, _raw(short_text_parts)),
    Close: (MessageId.CLOSE, _close_parts),
    Text: (MessageId.TEXT, _raw(short_text_parts)),
    Query: (MessageId.QUERY, _query_parts),
    Response: (MessageId.RESPONSE, _response_parts),
    Error: (MessageId.ERROR, _raw(long_text_parts)),
    Acquisition: (MessageId.ACQUISITION, acquisition_parts),
    Image: (MessageId.IMAGE, image_parts),
    ReconData: (MessageId.RECON_DATA, recon_data_parts),
    ImageArray: (MessageId.IMAGE_ARRAY, image_array_parts),
    Waveform: (MessageId.WAVEFORM, waveform_parts),
    AcquisitionBucket: (MessageId.ACQUISITION_BUCKET, bucket_parts),
}
