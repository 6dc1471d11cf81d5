"""Which message may follow which: one table for each end of a conversation.

One end sends a scan (a scanner, a client, or Gadgetron to its external node), the other answers with images.
The two directions do not wait for each other, so each end has a state of its own.
"""

import re
from enum import Enum
from xml.etree import ElementTree

from gadget.errors import OwnProtocolError, PeerProtocolError
from gadget.wire.messages import (
    TEXT_ENCODING,
    TEXT_ERRORS,
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


class Dialect(Enum):
    """What kind of peer sends the scan; the value is what a log says."""

    MRD = "an MRD or FIRE client"
    GADGETRON = "Gadgetron, to its external node"


class End(Enum):
    """The two ends of a conversation."""

    SCAN_SENDER = "the sender of the scan"
    ANSWERER = "the sender of the images"


class State(Enum):
    """How far one end has come; the value says what has been sent."""

    START = "nothing yet"
    CONFIGURED = "the config"
    HEADED = "the header, but no config"
    STREAMING = "config and header"
    STREAMING_WITHOUT_CONFIG = "header and data, but no config"
    ANSWERING = "its answers so far"
    FAILED = "an ERROR"
    CLOSED = "CLOSE"
    ERROR = "a message out of turn"


class Kind(Enum):
    """Messages that the same rule holds for."""

    CONFIG = "a config"
    HEADER = "a header"
    TEXT = "a TEXT"
    DATA = "data"
    QUERY = "a QUERY"
    RESPONSE = "a RESPONSE"
    ERROR = "an ERROR"
    CLOSE = "CLOSE"


_KINDS: dict[type, Kind] = {
    ConfigFile: Kind.CONFIG,
    ConfigText: Kind.CONFIG,
    ScanHeader: Kind.HEADER,
    Text: Kind.TEXT,
    Query: Kind.QUERY,
    Response: Kind.RESPONSE,
    Error: Kind.ERROR,
    Close: Kind.CLOSE,
    Acquisition: Kind.DATA,
    Image: Kind.DATA,
    Waveform: Kind.DATA,
    ReconData: Kind.DATA,
    ImageArray: Kind.DATA,
    AcquisitionBucket: Kind.DATA,
}


def is_data(message: Message) -> bool:
    """Whether a message is one of the data that a scan, or its images, consist of."""
    return _KINDS.get(type(message)) is Kind.DATA


_START = {End.SCAN_SENDER: State.START, End.ANSWERER: State.ANSWERING}

TRANSITIONS: dict[tuple[End, Dialect], dict[State, dict[Kind, State]]] = {
    (End.SCAN_SENDER, Dialect.MRD): {
        State.START: {
            Kind.CONFIG: State.CONFIGURED,
            Kind.HEADER: State.HEADED,
            Kind.QUERY: State.START,
            Kind.CLOSE: State.CLOSED,
        },
        State.CONFIGURED: {
            Kind.HEADER: State.STREAMING,
            Kind.TEXT: State.CONFIGURED,
            Kind.QUERY: State.CONFIGURED,
            Kind.CLOSE: State.CLOSED,
        },
        State.HEADED: {
            Kind.CONFIG: State.STREAMING,
            Kind.TEXT: State.HEADED,
            Kind.DATA: State.STREAMING_WITHOUT_CONFIG,
            Kind.QUERY: State.HEADED,
            Kind.CLOSE: State.CLOSED,
        },
        State.STREAMING: {
            Kind.TEXT: State.STREAMING,
            Kind.DATA: State.STREAMING,
            Kind.QUERY: State.STREAMING,
            Kind.CLOSE: State.CLOSED,
        },
        State.STREAMING_WITHOUT_CONFIG: {
            Kind.TEXT: State.STREAMING_WITHOUT_CONFIG,
            Kind.DATA: State.STREAMING_WITHOUT_CONFIG,
            Kind.QUERY: State.STREAMING_WITHOUT_CONFIG,
            Kind.CLOSE: State.CLOSED,
        },
    },
    (End.SCAN_SENDER, Dialect.GADGETRON): {
        State.START: {Kind.CONFIG: State.CONFIGURED, Kind.CLOSE: State.CLOSED},
        State.CONFIGURED: {
            Kind.HEADER: State.STREAMING,
            Kind.TEXT: State.CONFIGURED,
            Kind.CLOSE: State.CLOSED,
        },
        State.STREAMING: {Kind.TEXT: State.STREAMING, Kind.DATA: State.STREAMING, Kind.CLOSE: State.CLOSED},
    },
    (End.ANSWERER, Dialect.MRD): {
        State.ANSWERING: {
            Kind.DATA: State.ANSWERING,
            Kind.TEXT: State.ANSWERING,
            Kind.RESPONSE: State.ANSWERING,
            Kind.CLOSE: State.CLOSED,
        },
    },
    (End.ANSWERER, Dialect.GADGETRON): {
        State.ANSWERING: {
            Kind.DATA: State.ANSWERING,
            Kind.ERROR: State.FAILED,
            Kind.CLOSE: State.CLOSED,
        },
        State.FAILED: {Kind.CLOSE: State.CLOSED},
    },
}
"""Where a message leads; what is not here may not be sent. ERROR is for Gadgetron only; it refuses TEXT."""

GADGETRON_REFUSES_PIXELS = {2: "int16", 4: "int32"}
"""Pixel types that end a Gadgetron chain when its external node sends them."""


class Session:
    """Follows both directions of a conversation; after a message out of turn that end stays in ERROR.

    Parameters
    ----------
    own
        Which end we are.
    dialect
        The scan sender's kind. None: learn it from the first message, see :func:`dialect_of`.
    """

    def __init__(self, own: End, dialect: Dialect | None = None) -> None:
        self.own = own
        self.peer = End.ANSWERER if own is End.SCAN_SENDER else End.SCAN_SENDER
        self.dialect = dialect or Dialect.MRD
        self._learns_dialect = dialect is None and own is End.ANSWERER
        self.states: dict[End, State] = dict(_START)

    @property
    def own_state(self) -> State:
        """How far we have come."""
        return self.states[self.own]

    @property
    def peer_state(self) -> State:
        """How far the peer has come."""
        return self.states[self.peer]

    def received(self, message: Message) -> None:
        """Take note of a message that the peer sent; raise PeerProtocolError if it is out of turn.

        A server learns the peer's dialect here, from the first message.
        """
        if self._learns_dialect:
            self.dialect = dialect_of(message)
            self._learns_dialect = False
        self._move(self.peer, message, PeerProtocolError)

    def sending(self, message: Message) -> None:
        """Take note of a message that we will send now; raise OwnProtocolError if it is out of turn."""
        if self.own is End.ANSWERER and self.dialect is Dialect.GADGETRON and isinstance(message, Image):
            pixel_type = GADGETRON_REFUSES_PIXELS.get(int(message.header["data_type"]))
            if pixel_type:
                self.states[self.own] = State.ERROR
                raise OwnProtocolError(
                    f"An image of pixel type {pixel_type} may not be sent to Gadgetron, which ends the chain "
                    "over it; send uint16, uint32, float or complex pixels."
                )
        self._move(self.own, message, OwnProtocolError)

    def closing_words(self, failure: str | None) -> tuple[Message, ...]:
        """Return what is left to say at the end, and take it as said: the reason of a failure, then CLOSE.

        This is also the one way on after a message of ours was out of turn.
        """
        state = self.own_state
        if state is State.CLOSED:
            return ()
        self.states[self.own] = State.CLOSED
        if failure is None or state is State.FAILED or self.own is End.SCAN_SENDER:
            return (Close(),)
        return (Error(failure) if self.dialect is Dialect.GADGETRON else Text(failure), Close())

    def peer_ended(self) -> None:
        """Take note that the peer's stream has ended.

        Raises
        ------
        PeerProtocolError
            It ended without CLOSE, so there is no saying whether the scan is complete. A peer that connects
            and sends nothing is normal.
        """
        if self.peer_state in (State.CLOSED, State.START):
            return
        sent = self.peer_state.value
        self.states[self.peer] = State.ERROR
        raise PeerProtocolError(
            f"The connection ended without CLOSE; {self.peer.value} had sent {sent}. It stopped or was cut "
            "off, so the data may be incomplete."
        )

    def _move(self, end: End, message: Message, error: type[PeerProtocolError | OwnProtocolError]) -> None:
        state = self.states[end]
        kind = _KINDS[type(message)]
        allowed = TRANSITIONS[end, self.dialect].get(state, {})
        if kind not in allowed:
            self.states[end] = State.ERROR
            may_follow = ", ".join(kind.value for kind in allowed) or "nothing"
            raise error(
                f"{type(message).__name__} out of turn: {end.value} had sent {state.value}, after which "
                f"{may_follow} may follow (dialect: {self.dialect.value})."
            )
        self.states[end] = allowed[kind]


_BARE_DECLARATION = re.compile(r"<\?xml[^>]*\?>")


def dialect_of(config: Message) -> Dialect:
    """Tell Gadgetron from other peers by the first message of a stream.

    Gadgetron sends its external node a config as text: the ``<configuration>`` element of the external, or a
    bare XML declaration where the chain has none. MRD and FIRE clients send a name, or a text that is
    something else; Gadgetron's own client may send a whole chain, with a ``<stream>`` in it.
    """
    if not isinstance(config, ConfigText):
        return Dialect.MRD
    text = config.text.strip()
    if _BARE_DECLARATION.fullmatch(text):
        return Dialect.GADGETRON
    try:
        root = ElementTree.fromstring(text.encode(TEXT_ENCODING, TEXT_ERRORS))
    except (ElementTree.ParseError, LookupError, ValueError):  # not XML, or an encoding that is not known
        return Dialect.MRD
    is_chain = any(_local_name(child.tag) == "stream" for child in root)
    return Dialect.GADGETRON if _local_name(root.tag) == "configuration" and not is_chain else Dialect.MRD


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]
