"""Bytes that break the protocol: cut short, unknown, inconsistent, or claiming absurd lengths."""

import contextlib
import struct
import time
import tracemalloc

import numpy as np
import pytest
import written_by_hand as by_hand
from hypothesis import given
from hypothesis import strategies as st

from gadget.errors import PeerProtocolError
from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.limits import Limits
from gadget.wire.messages import Message

ONE_OF_EACH = by_hand.one_of_each()


def decode(data: bytes, limits: Limits | None = None, *, ended: bool = True) -> list[Message]:
    decoder = MrdDecoder(limits)
    decoder.feed(data)
    messages = list(decoder.messages())
    if ended:
        decoder.feed(b"")
        messages += decoder.messages()
    return messages


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if name != "close"])
def test_a_stream_that_ends_inside_a_message_is_an_error(name):
    data = ONE_OF_EACH[name]
    for length in sorted({1, 2, 3, len(data) // 3, len(data) // 2, len(data) - 2, len(data) - 1}):
        if length < len(data):
            with pytest.raises(PeerProtocolError, match=r"ended (inside a|at the start).*cut off"):
                decode(data[:length])


def test_the_messages_before_a_cut_are_yielded():
    decoder = MrdDecoder()
    whole = ONE_OF_EACH["acquisition"]
    decoder.feed(whole + whole + whole[:100])
    decoder.feed(b"")
    messages = decoder.messages()
    assert [encode(next(messages)) for _ in range(2)] == [whole, whole]
    with pytest.raises(PeerProtocolError, match="inside a ACQUISITION message: 98 of the next 340 bytes"):
        next(messages)


def test_a_stream_may_end_between_messages():
    assert len(decode(ONE_OF_EACH["acquisition"])) == 1
    decoder = MrdDecoder()
    decoder.feed(b"")
    assert list(decoder.messages()) == []


def test_an_error_is_for_good():
    decoder = MrdDecoder()
    decoder.feed(b"\x4d\x00")
    for _ in range(2):
        with pytest.raises(PeerProtocolError, match="message id 77"):
            list(decoder.messages())
        decoder.feed(ONE_OF_EACH["text"])


def test_nothing_is_fed_after_the_end():
    decoder = MrdDecoder()
    decoder.feed(b"")
    with pytest.raises(ValueError, match="after the end of the stream"):
        decoder.feed(b"x")


@pytest.mark.parametrize("message_id", [0, 9, 77, 999, 1000, 1009, 1012, 1025, 65535])
def test_an_unknown_id_names_the_known_ones(message_id):
    with pytest.raises(PeerProtocolError, match=rf"id {message_id} .*1 CONFIG_FILE.*1008 ACQUISITION.*1050"):
        decode(struct.pack("<H", message_id))


def test_a_trajectory_that_was_not_halved_is_explained():
    readout = by_hand.acquisition(4, 2, 2)
    too_long = readout[: 2 + 340] + by_hand.trajectory(8, 2) + by_hand.samples(2, 4)
    with pytest.raises(PeerProtocolError, match="RemoveROOversamplingGadget"):
        decode(too_long)


@pytest.mark.parametrize("name", list(ONE_OF_EACH))
def test_nothing_may_follow_close(name):
    decoder = MrdDecoder()
    decoder.feed(by_hand.close() + ONE_OF_EACH[name])
    messages = decoder.messages()
    next(messages)
    with pytest.raises(PeerProtocolError, match="after CLOSE"):
        next(messages)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (by_hand.acquisition(5, 0), "0 active channels"),
        (by_hand.image(np.zeros((1, 1, 2, 2), "<u2"), 0), "data_type 0, which ISMRMRD does not define"),
        (by_hand.image(np.zeros((1, 1, 2, 2), "<u2"), 99), r"data_type 99.*1 uint16.*8 complex128"),
        (by_hand.image(np.zeros((0, 1, 2, 2), "<u2"), 1), r"shape \(0, 1, 2, 2\)"),
        (by_hand.image(np.zeros((1, 0, 2, 2), "<u2"), 1), r"shape \(1, 0, 2, 2\)"),
        (by_hand.bucket(trajectory_bytes=24 + 4), "bucket's data claims 28 bytes.*RemoveROOversampling"),
        (b"\x06\x00" + by_hand.uint64(1, 2, 0), "reserved number 1; it must be 0"),
        (
            b"\xff\x03" + by_hand.uint64(1) + by_hand.array((3,), by_hand.samples(1, 3)) + b"\x02",
            "whether a trajectory follows is 2",
        ),
        (
            b"\xff\x03"
            + by_hand.uint64(1)
            + by_hand.array((3, 1), by_hand.samples(1, 3))
            + b"\0\0"
            + by_hand.array((1,) * 5, by_hand.acquisition_header(n_samples=3, n_channels=1))
            + bytes(56),
            r"data of shape \(3, 1\).*7 axes",
        ),
    ],
)
def test_a_message_that_contradicts_itself_is_an_error(data, complaint):
    with pytest.raises(PeerProtocolError, match=complaint):
        decode(data, ended=False)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ((0, 3), "does not match 3 acquisition headers"),
        ((1, 339), "claims 339 bytes, which does not match 2 acquisition headers"),
        ((2, 8), "claims 8 bytes.*samples of 64 bytes"),
        ((10, 1), "does not match 1 waveform headers"),
        ((12, 4), "claims 4 bytes.*waveform headers tell of"),
    ],
    ids=str,
)
def test_the_sizes_of_a_bucket_must_fit_together(change, complaint):
    bucket = bytearray(by_hand.bucket())
    struct.pack_into("<Q", bucket, 2 + 8 * change[0], change[1])
    with pytest.raises(PeerProtocolError, match=complaint):
        decode(bytes(bucket), ended=False)


HUGE = {
    "config text": struct.pack("<HI", 2, 2**32 - 1),
    "header": struct.pack("<HI", 3, 2**32 - 1),
    "text": struct.pack("<HI", 5, 2**32 - 1),
    "query": struct.pack("<HQQQ", 6, 0, 1, 2**64 - 1),
    "response": struct.pack("<HQQ", 7, 1, 2**63),
    "error": struct.pack("<HQ", 8, 2**63),
    "readout": by_hand.acquisition_header(n_samples=65535, n_channels=65535).join([b"\xf0\x03", b""]),
    "trajectory": by_hand.acquisition_header(n_samples=65535, n_channels=1, n_dimensions=65535).join(
        [b"\xf0\x03", b""]
    ),
    "waveform": b"\x02\x04" + by_hand.waveform_header(65535, 65535),
    "pixels": b"\xfe\x03"
    + by_hand.image_header(data_type=8, matrix=(65535,) * 3, n_channels=65535)
    + bytes(8),
    "meta": b"\xfe\x03" + by_hand.image_header(data_type=1, matrix=(1, 1, 1)) + by_hand.uint64(2**40),
    "recon bits": b"\xff\x03" + by_hand.uint64(2**63),
    "axes": b"\xff\x03" + by_hand.uint64(1, 2**63),
    "seventeen axes": b"\xff\x03" + by_hand.uint64(1, 17),
    "recon data": b"\xff\x03" + by_hand.uint64(1, 7, 2**63, 1, 1, 1, 1, 1, 1),
    "recon data, product": b"\xff\x03" + by_hand.uint64(1, 7, *[2**16] * 7),
    "recon data, behind an empty axis": b"\xff\x03" + by_hand.uint64(1, 7, 0, 2**63, 1, 1, 1, 1, 1),
    "image array": b"\x00\x04" + by_hand.uint64(7, *[2**62] * 7),
    "metas": b"\x00\x04" + by_hand.uint64(0, 0, 2**63),
    "one meta": b"\x00\x04" + by_hand.uint64(0, 0, 1, 2**63),
    "image array waveforms": b"\x00\x04" + by_hand.uint64(0, 0, 0) + b"\x01" + by_hand.uint64(2**63),
    "bucket readouts": b"\x1a\x04" + by_hand.uint64(2**63, *[0] * 12),
    "bucket headers": b"\x1a\x04" + by_hand.uint64(2**22, 340 * 2**22, *[0] * 11)[:104],
    "bucket statistics": b"\x1a\x04" + by_hand.uint64(*[0] * 8, 2**63, 0, 0, 0, 0),
    "bucket waveforms": b"\x1a\x04" + by_hand.uint64(*[0] * 10, 2**63, 0, 0),
}


@pytest.mark.parametrize("name", HUGE)
def test_absurd_lengths_are_refused_before_memory_is_taken(name):
    decoder = MrdDecoder(Limits(message_bytes=2**30))
    decoder.feed(HUGE[name])
    tracemalloc.start()
    try:
        with pytest.raises(PeerProtocolError, match=r"at most \d+ are accepted"):
            list(decoder.messages())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_memory_grows_with_what_came_not_with_what_was_claimed():
    """A claim within the limits costs nothing until the bytes are there."""
    decoder = MrdDecoder()
    tracemalloc.start()
    try:
        decoder.feed(b"\xff\x03" + by_hand.uint64(1, 7, 2**28, 1, 1, 1, 1, 1, 1))  # 2 GiB
        assert list(decoder.messages()) == []
        decoder.feed(bytes(1_000_000))
        assert list(decoder.messages()) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"text_bytes": 10}, "config text"),
        ({"meta_bytes": 10}, "image of int16"),
        ({"readout_bytes": 100}, "acquisition"),
        ({"readout_bytes": 10}, "waveform"),
        ({"message_bytes": 100}, "image of float"),
        ({"n_items": 1}, "bucket"),
        ({"n_dimensions": 4}, "recon data"),
    ],
    ids=str,
)
def test_every_limit_can_be_set(limits, name):
    assert len(decode(ONE_OF_EACH[name])) == 1
    with pytest.raises(PeerProtocolError, match="are accepted"):
        decode(ONE_OF_EACH[name], Limits(**limits), ended=False)


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match=r"Limits.text_bytes is 0; it must be positive"):
        Limits(text_bytes=0)


@given(data=st.binary(min_size=1, max_size=600))
def test_arbitrary_bytes_give_messages_or_a_protocol_error(data):
    with contextlib.suppress(PeerProtocolError):
        decode(data)


@given(
    name=st.sampled_from(sorted(ONE_OF_EACH)),
    position=st.integers(0, 10_000),
    value=st.integers(0, 255),
)
def test_one_wrong_byte_gives_messages_or_a_protocol_error(name, position, value):
    data = bytearray(ONE_OF_EACH[name])
    data[position % len(data)] = value
    with contextlib.suppress(PeerProtocolError):
        decode(bytes(data))


def test_time_is_linear_however_small_the_pieces_are():
    """Four times as many single bytes take about four times as long; quadratic buffering takes 16 times."""

    def seconds(n_pixels: int) -> float:
        data = by_hand.image(np.zeros((1, 1, 1, n_pixels), "<u2"), 1)
        decoder = MrdDecoder()
        start = time.process_time()
        for position in range(len(data)):
            decoder.feed(data[position : position + 1])
            for _ in decoder.messages():
                pass
        return time.process_time() - start

    seconds(1000)
    short, long = (min(seconds(n) for _ in range(3)) for n in (16_000, 64_000))
    assert long < 10 * short
