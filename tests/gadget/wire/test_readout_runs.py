"""Small readouts that are read at once are what they are one by one, whatever lies between them."""

import itertools

import numpy as np
import pytest
import written_by_hand as by_hand
from hypothesis import given
from hypothesis import strategies as st

from gadget.errors import PeerProtocolError
from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.limits import Limits
from gadget.wire.messages import Acquisition, Message
from gadget.wire.readout_runs import MOST_BYTES, SMALL_BYTES

TEXT = by_hand.short_text(5, b"{}")
WAVEFORM = b"\x02\x04" + by_hand.waveform_header(2, 1) + bytes(8)
MIXED = [
    *(by_hand.acquisition(4, 2, 2, line=line) for line in range(3)),
    WAVEFORM,
    *(by_hand.acquisition(4, 2, line=line) for line in range(3)),
    TEXT,
    by_hand.acquisition(4, 3, line=7),
    *(by_hand.acquisition(4, 2, line=line) for line in range(2)),
    *(by_hand.acquisition(0, 2) for _ in range(2)),
    *(by_hand.acquisition(1, 5, 1, line=line) for line in range(2)),
    WAVEFORM,
    by_hand.acquisition(3, 1, 3),
    by_hand.close(),
]
STREAM = b"".join(MIXED)


def decoded(pieces: list[bytes], limits: Limits | None = None) -> tuple[list[tuple[bytes, int]], str]:
    """Return each message as written back, and its length; and how the stream failed, if it did."""
    decoder = MrdDecoder(limits)
    found = []
    try:
        for piece in pieces:
            decoder.feed(piece)
            for message in decoder.messages():
                found.append((encode(message), decoder.n_bytes_of_last_message))
        decoder.feed(b"")
        assert list(decoder.messages()) == []
    except PeerProtocolError as error:
        return found, str(error)
    return found, ""


def one_by_one(stream: bytes, limits: Limits | None = None) -> tuple[list[tuple[bytes, int]], str]:
    """Decode single bytes: no two readouts are ever there at once."""
    return decoded([stream[at : at + 1] for at in range(len(stream))], limits)


def readouts_of(stream: bytes) -> list[Acquisition]:
    decoder = MrdDecoder()
    decoder.feed(stream)
    return [message for message in decoder.messages() if isinstance(message, Acquisition)]


def test_a_stream_may_be_cut_at_any_byte():
    some = MIXED[1:9]
    stream, expected = b"".join(some), [(message, len(message)) for message in some]
    assert one_by_one(stream) == (expected, "")
    for cut in range(1, len(stream)):
        assert decoded([stream[:cut], stream[cut:]]) == (expected, "")


@given(places=st.lists(st.integers(1, len(STREAM) - 1), max_size=8))
def test_and_in_any_pieces(places):
    edges = sorted({0, *places, len(STREAM)})
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert decoded(pieces) == ([(message, len(message)) for message in MIXED], "")


FIRST = by_hand.acquisition(4, 2, line=0)
SECOND = by_hand.acquisition(4, 2, line=1)
SMALLER = by_hand.acquisition(3, 2)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (by_hand.acquisition(4, 0) * 2, "0 active channels"),
        (by_hand.acquisition(4, 3) * 2, "A readout of 3 channels and 4 samples claims 96 bytes; at most 80"),
        (by_hand.acquisition(4, 2, 2) * 2, "2 channels and 4 samples claims 96 bytes; at most 80"),
        (b"\x4d\x00" + bytes(500), "id 77 after a complete Acquisition"),
        (FIRST[:-1], "ended inside a ACQUISITION message: 63 of the next 64 bytes"),
        (FIRST[:1], "ended after a complete Acquisition: 1 of the next 2 bytes"),
        (by_hand.close() + FIRST + SECOND, "id 1008 after CLOSE"),
    ],
)
def test_what_is_wrong_behind_a_run_is_said_after_it_in_the_same_words(wrong, complaint):
    stream = FIRST + SECOND + SMALLER + SMALLER + wrong
    limits = Limits(readout_bytes=80)
    found, failure = decoded([stream], limits)
    assert [message for message, _ in found][:4] == [FIRST, SECOND, SMALLER, SMALLER]
    assert complaint in failure
    assert (found, failure) == one_by_one(stream, limits)


@pytest.mark.parametrize("limits", [{"readout_bytes": 63}, {"message_bytes": 340 + 63}], ids=str)
def test_a_run_of_readouts_beyond_a_limit_is_refused_at_the_first(limits):
    found, failure = decoded([FIRST + SECOND], Limits(**limits))
    assert (found, failure) == one_by_one(FIRST + SECOND, Limits(**limits))
    assert found == []
    assert "are accepted" in failure


def test_a_trajectory_that_was_not_halved_is_explained_after_a_run():
    whole = by_hand.acquisition(4, 2, 2)
    too_long = whole[: 2 + 340] + by_hand.trajectory(8, 2) + by_hand.samples(2, 4)
    found, failure = decoded([whole + whole + too_long])
    assert len(found) >= 2
    assert "RemoveROOversamplingGadget" in failure


def test_messages_that_nobody_has_taken_yet_stay():
    decoder = MrdDecoder()
    decoder.feed(STREAM[: len(STREAM) // 2])
    taken: list[Message] = [next(decoder.messages())]
    decoder.feed(STREAM[len(STREAM) // 2 :])
    decoder.feed(b"")
    for _ in MIXED[1:]:
        taken.append(next(decoder.messages()))
    assert [encode(message) for message in taken] == MIXED
    assert list(decoder.messages()) == []


def test_a_run_keeps_no_more_memory_than_it_may():
    """What is fed may be far larger, as where a file is read at once."""
    one = by_hand.acquisition(64, 4)
    found = readouts_of(one * (4 * MOST_BYTES // len(one)))
    assert len({id(_owner(readout.data)) for readout in found}) > 4
    for array in (*(readout.data for readout in found), *(readout.trajectory for readout in found)):
        assert _owner(array).nbytes <= MOST_BYTES


@pytest.mark.parametrize("n_samples", [64, SMALL_BYTES // 8])
def test_arrays_are_aligned_and_cannot_be_written_to(n_samples):
    """Small readouts in a run, and larger ones each by itself."""
    readouts = readouts_of(by_hand.acquisition(n_samples, 1, 3) * 3)
    assert len(readouts) == 3
    for readout in readouts:
        assert readout.data.flags.aligned
        assert readout.trajectory.flags.aligned
        assert not readout.data.flags.writeable
        assert not readout.trajectory.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            readout.header["flags"] = 1


def _owner(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
