"""From the bytes of a stream to slices: the same slices at the same readouts, however the bytes were cut."""

from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest
from synthetic_scan import Protocol, lines_of, noise_readout, readout

from gadget.errors import ScanError
from gadget.scan.assemble import SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.scan.kept_readout import kept_copy
from gadget.scan.readout_labels import ReadoutLabels, labels_of
from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.headers import ACQUISITION_HEADER, WAVEFORM_HEADER
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Message, Waveform

PROTOCOL = Protocol(
    encoded=(20, 17, 1),
    encoded_fov=(240.0, 102.0, 5.0),
    recon=(10, 17, 1),
    recon_fov=(120.0, 102.0, 5.0),
    limits={"kspace_encoding_step_1": (0, 16, 8), "slice": (0, 1, 0)},
)


def waveform() -> Waveform:
    header = np.zeros((), WAVEFORM_HEADER)
    header["number_of_samples"], header["channels"] = 3, 1
    return Waveform(header[()], np.arange(3, dtype=np.uint32)[None])


def scan() -> list[Message]:
    """Noise, two slices whose lines alternate, a calibration of another length and a waveform among them."""
    messages: list[Message] = [noise_readout(n_samples=200)]
    kspace = PROTOCOL.kspace()
    slices = [lines_of(kspace, slice=0), lines_of(2 * kspace, slice=1)]
    for number, pair in enumerate(zip_longest(*slices)):
        messages += pair
        if number == 5:
            messages += [waveform(), readout(np.ones((3, 7)), 3, Flag.IS_PARALLEL_CALIBRATION), waveform()]
    return messages


def assembled(stream: bytes, n_bytes: int):
    """Return what is complete with each readout, for a stream that comes in pieces."""
    assembler = SliceAssembler(parse_scan_header(PROTOCOL.xml()))
    decoder = MrdDecoder()
    found, n_readouts = [], 0
    for start in range(0, len(stream), n_bytes):
        decoder.feed(stream[start : start + n_bytes])
        for message in decoder.messages():
            if isinstance(message, Acquisition):
                n_readouts += 1
                found += [(n_readouts, one) for one in assembler.add(message)]
    assert assembler.finish() == ()
    return found, assembler.report()


@pytest.mark.parametrize("n_bytes", [1 << 20, 5000, 821, 340])
def test_slices_do_not_depend_on_how_the_stream_was_cut(n_bytes):
    stream = b"".join(map(encode, scan()))
    expected, expected_report = assembled(stream, 1)
    found, report = assembled(stream, n_bytes)
    assert report == expected_report
    assert [number for number, _ in found] == [number for number, _ in expected] == [1 + 33 + 1, 1 + 34 + 1]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert one.context == other.context
        np.testing.assert_array_equal(one.kspace.samples.numpy(), other.kspace.samples.numpy())
        np.testing.assert_array_equal(one.kspace.mask.numpy(), other.kspace.mask.numpy())


@pytest.mark.parametrize("n_bytes", [1 << 20, 1])
def test_a_damaged_readout_among_others_is_named(n_bytes):
    messages = scan()
    data = messages[20].data.copy()
    data[1, 4] = np.nan
    messages[20] = replace(messages[20], data=data)
    with pytest.raises(
        ScanError, match=r"Readout 19 of the stream \(scan_counter 108\) holds 1 NaN or infinite numbers"
    ):
        assembled(b"".join(map(encode, messages)), n_bytes)


def test_labels_are_the_fields_of_the_header():
    raw = np.random.default_rng(4).integers(0, 256, 340, np.uint8)
    header = raw.view(ACQUISITION_HEADER)[0]
    labels = labels_of(header)
    for name in ReadoutLabels._fields:
        value = header[name] if name in ACQUISITION_HEADER.names else header["idx"][name]
        expected = value.tobytes() if name == "channel_mask" else value.item()
        assert getattr(labels, name) == expected, name


@pytest.mark.parametrize(
    ("said", "taken"), [(2.5, 2.5), (0.0, 0.0), (-1.0, 0.0), (np.nan, 0.0), (np.inf, 0.0), (2e6, 0.0)]
)
def test_a_dwell_time_that_cannot_be_is_not_known(said, taken):
    assert labels_of(readout(np.ones((1, 4)), sample_time_us=said).header).dwell_us == taken


def test_a_readout_that_is_kept_holds_nothing_of_the_stream():
    decoder = MrdDecoder()
    decoder.feed(encode(readout(np.ones((2, 4)), 3)) * 5)
    came = next(decoder.messages())
    kept = kept_copy(came)
    assert encode(kept) == encode(came)
    for name in ("data", "trajectory"):
        assert getattr(kept, name).base is None
    assert not np.shares_memory(np.atleast_1d(kept.header), np.atleast_1d(came.header))
