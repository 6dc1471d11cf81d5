"""Which message may follow which: the tables of PROTOCOL.md, typed anew."""

import re

import numpy as np
import pytest

from gadget.errors import OwnProtocolError, PeerProtocolError
from gadget.wire.headers import ACQUISITION_HEADER, IMAGE_HEADER, WAVEFORM_HEADER
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
from gadget.wire.session import Dialect, End, Session, State, dialect_of


def _record(dtype: np.dtype, **fields: int) -> object:
    record = np.zeros((), dtype)
    for name, value in fields.items():
        record[name] = value
    return record[()]


def _image(data_type: int = 5) -> Image:
    return Image(_record(IMAGE_HEADER, data_type=data_type), "", np.zeros((1, 1, 1, 1), "f4"))


EXAMPLES: dict[str, Message] = {
    "name": ConfigFile("default.xml"),
    "config": ConfigText("<configuration/>"),
    "header": ScanHeader("<ismrmrdHeader/>"),
    "text": Text("{}"),
    "close": Close(),
    "query": Query(1, ""),
    "response": Response(1, ""),
    "error": Error(""),
    "readout": Acquisition(_record(ACQUISITION_HEADER), np.zeros((1, 0), "f4"), np.zeros((1, 1), "c8")),
    "image": _image(),
    "waveform": Waveform(_record(WAVEFORM_HEADER), np.zeros((1, 1), "u4")),
    "buffers": ReconData(()),
    "images": ImageArray(np.zeros(0, "c8"), np.zeros(0, IMAGE_HEADER), (), None, None),
    "bucket": AcquisitionBucket((), (), (), b"", b""),
}
DATA = {"readout", "image", "waveform", "buffers", "images", "bucket"}

# After these messages of a scan's sender, exactly these may follow.
MRD_SENDER = {
    (): {"name", "config", "header", "query", "close"},
    ("query",): {"name", "config", "header", "query", "close"},
    ("name",): {"header", "text", "query", "close"},
    ("name", "text"): {"header", "text", "query", "close"},
    ("name", "query"): {"header", "text", "query", "close"},
    ("header",): {"name", "config", "text", "query", "close"} | DATA,
    ("header", "text"): {"name", "config", "text", "query", "close"} | DATA,
    ("header", "readout"): {"text", "query", "close"} | DATA,
    ("header", "readout", "text"): {"text", "query", "close"} | DATA,
    ("header", "name"): {"text", "query", "close"} | DATA,
    ("name", "header"): {"text", "query", "close"} | DATA,
    ("name", "header", "text", "waveform", "readout", "image"): {"text", "query", "close"} | DATA,
    ("name", "header", "query", "buffers", "bucket", "images"): {"text", "query", "close"} | DATA,
    ("close",): set(),
    ("name", "close"): set(),
    ("name", "header", "close"): set(),
    ("name", "header", "readout", "close"): set(),
}
GADGETRON_SENDER = {
    (): {"name", "config", "close"},
    ("config",): {"header", "text", "close"},
    ("config", "header"): {"text", "close"} | DATA,
    ("config", "header", "waveform", "readout", "bucket"): {"text", "close"} | DATA,
    ("config", "header", "readout", "close"): set(),
}
MRD_ANSWERER = {
    (): {"text", "response", "close"} | DATA,
    ("image", "text", "waveform", "response"): {"text", "response", "close"} | DATA,
    ("image", "close"): set(),
}
GADGETRON_ANSWERER = {
    (): {"error", "close"} | DATA,
    ("image", "waveform"): {"error", "close"} | DATA,
    ("image", "error"): {"close"},
    ("error", "close"): set(),
    ("image", "close"): set(),
}

CASES = [
    pytest.param(
        end, dialect, history, allowed, id=f"{end.name}-{dialect.name}-{'-'.join(history) or 'start'}"
    )
    for (end, dialect), table in {
        (End.SCAN_SENDER, Dialect.MRD): MRD_SENDER,
        (End.SCAN_SENDER, Dialect.GADGETRON): GADGETRON_SENDER,
        (End.ANSWERER, Dialect.MRD): MRD_ANSWERER,
        (End.ANSWERER, Dialect.GADGETRON): GADGETRON_ANSWERER,
    }.items()
    for history, allowed in table.items()
]
OTHER = {End.SCAN_SENDER: End.ANSWERER, End.ANSWERER: End.SCAN_SENDER}


@pytest.mark.parametrize(("end", "dialect", "history", "allowed"), CASES)
def test_what_we_hear_follows_the_table(end, dialect, history, allowed):
    for name, message in EXAMPLES.items():
        session = Session(OTHER[end], dialect)
        for earlier in history:
            session.received(EXAMPLES[earlier])
        if name in allowed:
            session.received(message)
            assert session.peer_state is not State.ERROR
        else:
            with pytest.raises(PeerProtocolError, match=f"{type(message).__name__} out of turn.*may follow"):
                session.received(message)
            assert session.peer_state is State.ERROR


@pytest.mark.parametrize(("end", "dialect", "history", "allowed"), CASES)
def test_what_we_say_follows_the_same_table(end, dialect, history, allowed):
    for name, message in EXAMPLES.items():
        session = Session(end, dialect)
        for earlier in history:
            session.sending(EXAMPLES[earlier])
        if name in allowed:
            session.sending(message)
            assert session.own_state is not State.ERROR
        else:
            with pytest.raises(OwnProtocolError, match="out of turn"):
                session.sending(message)
            assert session.own_state is State.ERROR


def test_out_of_turn_is_for_good():
    session = Session(End.ANSWERER)
    with pytest.raises(PeerProtocolError, match="had sent nothing yet, after which a config, a header"):
        session.received(EXAMPLES["readout"])
    with pytest.raises(PeerProtocolError, match="after which nothing may follow"):
        session.received(EXAMPLES["name"])


def test_the_two_directions_do_not_wait_for_each_other():
    session = Session(End.ANSWERER, Dialect.MRD)
    session.sending(EXAMPLES["close"])
    session.received(EXAMPLES["name"])
    session.received(EXAMPLES["header"])
    session.received(EXAMPLES["close"])
    assert (session.own_state, session.peer_state) == (State.CLOSED, State.CLOSED)


@pytest.mark.parametrize(
    ("config", "dialect"),
    [
        (ConfigFile("default.xml"), Dialect.MRD),
        (ConfigFile("<configuration/>"), Dialect.MRD),
        (
            ConfigText(
                '<?xml version="1.0"?>\n<configuration>\n\t<property name="a" value="1"/>\n</configuration>\n'
            ),
            Dialect.GADGETRON,
        ),
        (ConfigText('<?xml version="1.0"?>\n'), Dialect.GADGETRON),
        (ConfigText('<?xml version="1.0"?>\n\0'), Dialect.GADGETRON),
        (
            ConfigText("<configuration><property><name>stream</name></property></configuration>"),
            Dialect.GADGETRON,
        ),
        (ConfigText("<!-- a note --><configuration/>"), Dialect.GADGETRON),
        (ConfigText("<configuration><version>2</version><stream/></configuration>"), Dialect.MRD),
        (ConfigText("<gadgetronStreamConfiguration/>"), Dialect.MRD),
        (ConfigText("<configurations/>"), Dialect.MRD),
        (ConfigText("prior: tv"), Dialect.MRD),
        (ConfigText(""), Dialect.MRD),
        (ConfigText("<configuration>"), Dialect.MRD),
        (ConfigText('<?xml version="1.0" encoding="nonsense"?><configuration/>'), Dialect.MRD),
        (ScanHeader("<ismrmrdHeader/>"), Dialect.MRD),
    ],
    ids=repr,
)
def test_the_first_message_tells_the_dialect(config, dialect):
    assert dialect_of(config) is dialect
    session = Session(End.ANSWERER)
    session.received(config)
    assert session.dialect is dialect


def test_a_dialect_that_is_given_is_not_learned():
    session = Session(End.ANSWERER, Dialect.GADGETRON)
    session.received(ConfigText(""))
    assert session.dialect is Dialect.GADGETRON


@pytest.mark.parametrize(("data_type", "name"), [(2, "int16"), (4, "int32")])
def test_pixels_that_end_a_gadgetron_chain_are_not_sent(data_type, name):
    session = Session(End.ANSWERER, Dialect.GADGETRON)
    with pytest.raises(OwnProtocolError, match=f"pixel type {name} may not be sent to Gadgetron"):
        session.sending(_image(data_type))
    assert session.closing_words("why") == (Error("why"), Close())
    Session(End.ANSWERER, Dialect.MRD).sending(_image(data_type))


@pytest.mark.parametrize("data_type", [1, 3, 5, 6, 7, 8])
def test_other_pixels_may_be_sent_to_gadgetron(data_type):
    Session(End.ANSWERER, Dialect.GADGETRON).sending(_image(data_type))


def test_the_last_words_fit_the_peer_and_come_once():
    assert Session(End.ANSWERER, Dialect.MRD).closing_words("no header") == (Text("no header"), Close())
    assert Session(End.ANSWERER, Dialect.GADGETRON).closing_words("no header") == (
        Error("no header"),
        Close(),
    )
    assert Session(End.ANSWERER, Dialect.MRD).closing_words(None) == (Close(),)
    failed = Session(End.ANSWERER, Dialect.GADGETRON)
    failed.sending(Error("first"))
    assert failed.closing_words("second") == (Close(),)
    closed = Session(End.ANSWERER)
    closed.sending(Close())
    assert closed.closing_words("too late") == ()


@pytest.mark.parametrize(
    ("history", "had_sent"),
    [
        (("name",), "the config"),
        (("name", "header"), "config and header"),
        (("name", "header", "readout"), "config and header"),
        (("header",), "the header, but no config"),
    ],
)
def test_an_end_without_close_is_an_error(history, had_sent):
    session = Session(End.ANSWERER)
    for name in history:
        session.received(EXAMPLES[name])
    with pytest.raises(
        PeerProtocolError, match=re.escape(f"without CLOSE; the sender of the scan had sent {had_sent}")
    ):
        session.peer_ended()


def test_an_end_after_close_or_before_anything_is_normal():
    Session(End.ANSWERER).peer_ended()
    session = Session(End.ANSWERER)
    session.received(Close())
    session.peer_ended()


def test_a_client_minds_an_answerer_that_ends_without_close():
    with pytest.raises(PeerProtocolError, match="the sender of the images"):
        Session(End.SCAN_SENDER).peer_ended()
