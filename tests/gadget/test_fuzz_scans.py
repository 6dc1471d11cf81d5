"""Random scans: no crash but with the project's own errors, and no image fewer than there are combinations.

Derandomised, so that every run sees the same scans. The joint reconstruction is a stand-in: what is tested is
everything round it.
"""

import contextlib
import logging

from fuzzed_scans import headers, scans
from hypothesis import HealthCheck, given, settings
from simulated_scans import reconstructor
from simulated_scans import settings as chosen
from stand_ins import ZeroFilled

from gadget.errors import GadgetError, ScanError
from gadget.image_labels import StreamSummary
from gadget.pipeline import reconstruct_stream
from gadget.scan.header import parse_scan_header
from gadget.scan.readout_kinds import ReadoutKind, kind_of_readout
from gadget.wire.messages import Acquisition, Image, Message, ScanHeader, Text

BOUNDED = settings(
    max_examples=120,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
RECONSTRUCTOR = reconstructor(ZeroFilled())


def answers_of(messages: list[Message], summary: StreamSummary | None = None) -> list[Message]:
    return list(reconstruct_stream(messages, chosen(), reconstructor=RECONSTRUCTOR, summary=summary))


def combinations(readouts: list[Acquisition]) -> set[tuple[int, ...]]:
    """Return what makes an image of its own, of the imaging readouts."""
    names = ("slice", "contrast", "phase", "repetition", "set")
    return {
        (int(one.header["encoding_space_ref"]), *(int(one.header["idx"][name]) for name in names))
        for one in readouts
        if kind_of_readout(int(one.header["flags"])) is ReadoutKind.IMAGE
    }


def test_a_random_scan_ends_in_its_images_or_in_an_error_that_says_why(caplog):
    caplog.set_level(logging.INFO, logger="gadget")
    n_images = []

    @BOUNDED
    @given(scans())
    def each(scan):
        text, readouts = scan
        caplog.clear()
        summary = StreamSummary()
        with contextlib.suppress(GadgetError):
            check(answers_of([ScanHeader(text), *readouts], summary), readouts, summary, caplog.text)
            n_images.append(summary.n_images)

    each()
    assert any(n_images)  # not all were refused, nor without an image


def check(answers: list[Message], readouts: list[Acquisition], summary: StreamSummary, log: str) -> None:
    images = [answer for answer in answers if isinstance(answer, Image)]
    assert len(images) == summary.n_images
    assert [int(image.header["image_index"]) for image in images] == list(range(1, len(images) + 1))
    assert all(isinstance(answer, Image | Text) for answer in answers)
    n_image = sum(kind_of_readout(int(one.header["flags"])) is ReadoutKind.IMAGE for one in readouts)
    if n_image:
        assert f"{n_image} image" in log
    if "lines outside the matrix" not in log:
        assert len(images) >= len(combinations(readouts))


def test_a_random_header_is_read_or_refused_with_words():
    n_encodings = []

    @settings(BOUNDED, max_examples=40)
    @given(headers())
    def each(text):
        with contextlib.suppress(ScanError):
            n_encodings.append(len(parse_scan_header(text).encodings))

    each()
    assert n_encodings  # not all were refused
    assert min(n_encodings) > 0
