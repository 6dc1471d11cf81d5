"""What must not matter: how a stream is cut into pieces, and the order in which readouts and slices come."""

import random
import re
import socket
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_scans import reconstructor
from simulated_scans import settings as chosen
from stand_ins import ZeroFilled
from synthetic_scan import noise_readout
from twin_scans import (
    DOUBLE,
    FOV,
    MATRIX,
    NOISE_STD,
    NY,
    OBJECT,
    OVERSAMPLED,
    PARTITIONS,
    SLAB,
    WIDE,
    brightened,
    kspace_of,
    protocol,
    rows_of,
    slab_protocol,
    slab_rows,
)

from gadget.pipeline import reconstruct_stream
from gadget.server import Server
from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Close, ConfigFile, Image, Message, ScanHeader

BOUNDED = settings(max_examples=6, derandomize=True, database=None, deadline=None)


def images_of(messages: list[Message]) -> list[Image]:
    answers = reconstruct_stream(messages, chosen(), reconstructor=reconstructor(ZeroFilled()))
    return [answer for answer in answers if isinstance(answer, Image)]


def by_counters(images: list[Image]) -> dict[tuple[int, ...], Image]:
    names = ("slice", "contrast", "repetition", "set", "phase")
    found = {tuple(int(image.header[name]) for name in names): image for image in images}
    assert len(found) == len(images) > 0
    return found


def assert_same(found: list[Image], expected: list[Image]) -> None:
    """Compare images whatever their order; image_index counts in that order, all else has to be equal."""
    others = by_counters(expected)
    assert by_counters(found).keys() == others.keys()
    for counters, image in by_counters(found).items():
        other = others[counters]
        np.testing.assert_allclose(image.data, other.data, atol=1e-5 * other.data.max())
        assert described(image) == described(other)


def described(image: Image) -> tuple[dict[str, bytes], str]:
    """Return what header and meta say, but for the image's place in the stream and the time that it took."""
    varying = ("image_index", "attribute_string_len")
    header = {name: image.header[name].tobytes() for name in image.header.dtype.names if name not in varying}
    return header, re.sub(r"<name>EBM_(Seconds|CompletedBy)</name>\s*<value>[^<]*", "", image.meta)


def loops() -> list[Acquisition]:
    """Three slices, two contrasts, two averages, calibration lines, all flags where a scanner sets them."""
    readouts = []
    for contrast in range(2):
        for number in range(3):
            kspace = kspace_of(brightened(1 + 0.2 * number + 0.5 * contrast), *WIDE)
            for average in range(2):
                for row in range(NY):
                    is_last = average == 1 and row == NY - 1
                    readouts += rows_of(
                        kspace * (0.9 + 0.2 * average),
                        [row],
                        flags=lambda _row, is_last=is_last: (Flag.LAST_IN_SLICE,) if is_last else (),
                        contrast=contrast,
                        slice=number,
                        average=average,
                        position=(0.0, 0.0, 8.0 * number),
                        acquisition_time_stamp=len(readouts),
                    )
    return readouts


HEADER = ScanHeader(
    protocol(
        encoded=OVERSAMPLED.encoded,
        encoded_fov=OVERSAMPLED.encoded_fov,
        limits={**OVERSAMPLED.limits, "average": (0, 1, 0), "slice": (0, 2, 0), "contrast": (0, 1, 0)},
    ).xml()
)
NOISE = noise_readout(NOISE_STD)


@pytest.fixture(scope="module")
def in_order() -> list[Image]:
    images = images_of([HEADER, NOISE, *loops()])
    assert len(images) == 6
    return images


def test_the_read_order_may_be_inverted(in_order: list[Image]) -> None:
    """Flags that end a slice come first then, and the noise last."""
    assert_same(images_of([HEADER, *loops()[::-1], NOISE]), in_order)
    assert_same(images_of([HEADER, NOISE, *loops()[::-1]]), in_order)


@BOUNDED
@given(st.randoms(use_true_random=False))
def test_readouts_may_come_in_any_order_where_no_flag_says_that_they_are_the_last(rng: random.Random) -> None:
    readouts = loops()
    for one in readouts:
        one.header["flags"] = 0
    expected = images_of([HEADER, NOISE, *readouts])
    rng.shuffle(readouts)
    assert_same(images_of([HEADER, NOISE, *readouts]), expected)


@BOUNDED
@given(st.permutations(range(6)))
def test_slices_may_come_in_any_order(in_order: list[Image], order: list[int]) -> None:
    readouts, size = loops(), 2 * NY
    moved = [one for block in order for one in readouts[block * size : (block + 1) * size]]
    found = images_of([HEADER, NOISE, *moved])
    assert_same(found, in_order)
    # One by one, as they complete.
    counters = [(int(image.header["contrast"]), int(image.header["slice"])) for image in found]
    assert counters == [divmod(block, 3) for block in order]


@BOUNDED
@given(st.randoms(use_true_random=False))
def test_a_slab_and_its_calibration_may_come_in_any_order(rng: random.Random) -> None:
    kspace = kspace_of(OBJECT, (*MATRIX, PARTITIONS), (*FOV, SLAB))
    readouts = slab_rows(kspace, lambda _z, y: y % 2 == 0)
    extra = slab_rows(kspace, lambda z, y: 3 < z < 8 and y in (9, 11))
    for one in extra:
        one.header["flags"] = Flag.IS_PARALLEL_CALIBRATION.bit
    header = ScanHeader(slab_protocol(acceleration=2, calibration_mode="embedded").xml())
    together = [*extra, *readouts]
    expected = images_of([header, NOISE, *together])
    assert len(expected) == PARTITIONS
    rng.shuffle(together)
    assert_same(images_of([header, NOISE, *together]), expected)


# Pieces of the stream


def small_scan() -> list[Message]:
    return [
        ConfigFile("default"),
        HEADER,
        NOISE,
        *rows_of(DOUBLE, average=0),
        *rows_of(DOUBLE, average=1),
        Close(),
    ]


@pytest.fixture(scope="module")
def whole() -> tuple[bytes, list[Image]]:
    messages = small_scan()
    images = images_of(messages)
    assert len(images) == 1
    return b"".join(encode(message) for message in messages), images


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % len(stream) for cut in cuts} | {0, len(stream)})
    return [stream[a:b] for a, b in pairwise(ends)]


@BOUNDED
@given(st.lists(st.integers(0, 2**24), max_size=40))
def test_the_stream_may_be_cut_anywhere(whole: tuple[bytes, list[Image]], cuts: list[int]) -> None:
    stream, expected = whole
    decoder, messages = MrdDecoder(), []
    for piece in [*pieces_of(stream, cuts), b""]:
        decoder.feed(piece)
        messages += decoder.messages()
    assert [image.data.tobytes() for image in images_of(messages)] == [one.data.tobytes() for one in expected]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_server_gives_the_same_images_for_any_tcp_pieces(
    whole: tuple[bytes, list[Image]], seed: int
) -> None:
    """Pieces from one byte to 20 kB, so that headers, numbers and texts are cut."""
    stream, expected = whole
    rng = random.Random(seed)

    def handle(messages, _peer):
        return reconstruct_stream(messages, chosen(), reconstructor=reconstructor(ZeroFilled()))

    server = Server(handle, hosts=("127.0.0.1",), port=0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with socket.create_connection(server.addresses[0], 20) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            start = 0
            while start < len(stream):
                size = rng.choice((1, 2, 3, 100, 339, 20_000))
                peer.sendall(stream[start : start + size])
                start += size
            received = b""
            while piece := peer.recv(2**16):
                received += piece
    finally:
        server.stop()
        thread.join(10)
        server.close()
    decoder = MrdDecoder()
    decoder.feed(received)
    decoder.feed(b"")
    *images, last = decoder.messages()
    assert isinstance(last, Close)
    assert [one.data.tobytes() for one in images if isinstance(one, Image)] == [
        one.data.tobytes() for one in expected
    ]
