"""The codec on bytes that real peers sent: Gadgetron 4.7.2, its client, and the FIRE client."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget.wire.codec import MrdDecoder, encode
from gadget.wire.headers import AcquisitionFlag
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    Close,
    ConfigFile,
    ConfigText,
    Image,
    ImageArray,
    Message,
    ReconData,
    ScanHeader,
    Waveform,
)

FILES = {
    # name: kinds of messages in it, from data/README.md and PROTOCOL.md
    "client_fire": {ConfigFile: 1, ScanHeader: 1, Acquisition: 129, Close: 1},
    "client_gadgetron": {ConfigFile: 1, ScanHeader: 1, Acquisition: 129, Close: 1},
    "external_acquisitions": {ConfigText: 1, ScanHeader: 1, Acquisition: 129, Waveform: 12},
    "external_bucket": {ConfigText: 1, ScanHeader: 1, AcquisitionBucket: 2, Close: 1},
    "external_recondata": {ConfigText: 1, ScanHeader: 1, ReconData: 2, Close: 1},
    "external_image_float": {ConfigText: 1, ScanHeader: 1, Image: 2},
    "external_image_ushort": {ConfigText: 1, ScanHeader: 1, Image: 2},
    "external_image_meta": {ConfigText: 1, ScanHeader: 1, Image: 2},
    "external_imagearray": {ConfigText: 1, ScanHeader: 1, ImageArray: 2, Close: 1},
}
SENT_READOUTS = ("client_fire", "client_gadgetron", "external_acquisitions")


def golden(data_folder: Path, name: str) -> bytes:
    return (data_folder / "wire" / f"{name}.bin").read_bytes()


def decode(*pieces: bytes) -> list[Message]:
    decoder = MrdDecoder()
    messages: list[Message] = []
    for piece in pieces:
        if piece:
            decoder.feed(piece)
            messages += decoder.messages()
    decoder.feed(b"")
    return [*messages, *decoder.messages()]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize("name", FILES)
def test_golden_bytes_decode_to_the_messages_that_were_sent(name, data_folder):
    assert Counter(map(type, decode(golden(data_folder, name)))) == FILES[name]


@pytest.mark.parametrize("name", FILES)
def test_golden_bytes_are_written_back_as_they_came(name, data_folder):
    data = golden(data_folder, name)
    assert b"".join(map(encode, decode(data))) == data


@pytest.mark.parametrize("name", FILES)
def test_golden_bytes_may_come_one_at_a_time(name, data_folder):
    data = golden(data_folder, name)[:100_000]
    decoder = MrdDecoder()
    written = b""
    for position in range(len(data)):
        decoder.feed(data[position : position + 1])
        written += b"".join(map(encode, decoder.messages()))
    assert data.startswith(written)
    whole = MrdDecoder()
    whole.feed(data)
    assert written == b"".join(map(encode, whole.messages()))


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=20, deadline=None)
@given(choice=st.data())
def test_golden_bytes_may_be_cut_anywhere(name, data_folder, choice):
    data = golden(data_folder, name)
    places = choice.draw(st.lists(st.integers(0, len(data)), max_size=8))
    assert b"".join(map(encode, decode(*cut(data, places)))) == data


@pytest.mark.parametrize("name", SENT_READOUTS)
def test_readouts_are_the_phantom_scan(name, data_folder):
    """64 x 64 phantom, 4 coils, 2 repetitions, twofold oversampling, one noise readout first."""
    readouts = [message for message in decode(golden(data_folder, name)) if isinstance(message, Acquisition)]
    noise, imaging = readouts[0], readouts[1:]
    assert bool(int(noise.header["flags"]) & AcquisitionFlag.IS_NOISE_MEASUREMENT.bit)
    assert not any(bool(int(r.header["flags"]) & AcquisitionFlag.IS_NOISE_MEASUREMENT.bit) for r in imaging)
    n_dimensions = 2 if name == "external_acquisitions" else 0
    for readout in readouts:
        assert readout.data.shape == (4, 128)
        assert readout.trajectory.shape == (128, n_dimensions)
    where = [
        (int(r.header["idx"]["repetition"]), int(r.header["idx"]["kspace_encode_step_1"])) for r in imaging
    ]
    assert where == [(repetition, line) for repetition in range(2) for line in range(64)]
    last = [bool(int(r.header["flags"]) & AcquisitionFlag.LAST_IN_SLICE.bit) for r in imaging]
    assert last == [line == 63 for _, line in where]


def test_the_two_clients_sent_the_same_samples(data_folder):
    fire, gadgetron = (
        [m.data for m in decode(golden(data_folder, name)) if isinstance(m, Acquisition)]
        for name in ("client_fire", "client_gadgetron")
    )
    np.testing.assert_array_equal(np.stack(fire), np.stack(gadgetron))


def test_samples_are_those_of_a_phantom(data_folder):
    """The first repetition lies in the middle half of the oversampled readout; noise is all around."""
    lines = [m.data for m in decode(golden(data_folder, "client_fire")) if isinstance(m, Acquisition)][1:65]
    kspace = np.stack(lines, axis=1)
    image = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace, axes=(1, 2))), axes=(1, 2))
    energy = (np.abs(image) ** 2).sum(axis=(0, 1))
    assert energy[32:96].sum() > 5 * (energy[:32].sum() + energy[96:].sum())


def test_recon_data_holds_the_samples_of_the_readouts(data_folder):
    repetitions = [m for m in decode(golden(data_folder, "external_recondata")) if isinstance(m, ReconData)]
    readouts = [
        m for m in decode(golden(data_folder, "external_acquisitions")) if isinstance(m, Acquisition)
    ][1:]
    assert [len(one.bits) for one in repetitions] == [1, 1]
    for repetition, one in enumerate(repetitions):
        buffer = one.bits[0].data
        assert buffer.data.shape == (128, 64, 1, 4, 1, 1, 1)
        assert buffer.headers.shape == (64, 1, 1, 1, 1)
        assert buffer.trajectory is not None
        assert buffer.trajectory.shape == (2, 128, 64, 1, 1, 1, 1)
        assert buffer.density is None
        assert one.bits[0].reference is None
        for line in range(64):
            readout = readouts[64 * repetition + line]
            np.testing.assert_array_equal(buffer.data[:, line, 0, :, 0, 0, 0].T, readout.data)
            np.testing.assert_array_equal(buffer.trajectory[:, :, line, 0, 0, 0, 0].T, readout.trajectory)
            assert buffer.headers[line, 0, 0, 0, 0]["scan_counter"] == readout.header["scan_counter"]


def test_buckets_hold_the_readouts_and_waveforms(data_folder):
    buckets = [m for m in decode(golden(data_folder, "external_bucket")) if isinstance(m, AcquisitionBucket)]
    sent = decode(golden(data_folder, "external_acquisitions"))
    readouts = [m for m in sent if isinstance(m, Acquisition)][1:]
    waveforms = [m for m in sent if isinstance(m, Waveform)]
    assert [len(bucket.data) for bucket in buckets] == [64, 64]
    assert [len(bucket.reference) for bucket in buckets] == [0, 0]
    assert [len(bucket.waveforms) for bucket in buckets] == [6, 6]
    for bucketed, readout in zip((r for bucket in buckets for r in bucket.data), readouts, strict=True):
        np.testing.assert_array_equal(bucketed.data, readout.data)
        np.testing.assert_array_equal(bucketed.trajectory, readout.trajectory)
        assert bucketed.header["idx"] == readout.header["idx"]
    for bucketed, waveform in zip(
        (w for bucket in buckets for w in bucket.waveforms), waveforms, strict=True
    ):
        assert bucketed.data.shape == (2, 50)
        np.testing.assert_array_equal(bucketed.data, waveform.data)
        assert bucketed.header["waveform_id"] == waveform.header["waveform_id"]


@pytest.mark.parametrize(
    ("name", "data_type", "dtype"), [("external_image_float", 5, "<f4"), ("external_image_ushort", 1, "<u2")]
)
def test_images_have_the_pixel_type_of_their_chain(name, data_type, dtype, data_folder):
    images = [m for m in decode(golden(data_folder, name)) if isinstance(m, Image)]
    assert [int(image.header["repetition"]) for image in images] == [0, 1]
    for image in images:
        assert image.header["data_type"] == data_type
        assert image.data.dtype == np.dtype(dtype)
        assert image.data.shape == (1, 1, 64, 64)
        assert image.data.max() > 0
        assert image.meta == ""


def test_meta_of_images_is_kept_with_the_nul_that_gadgetron_counts(data_folder):
    images = [m for m in decode(golden(data_folder, "external_image_meta")) if isinstance(m, Image)]
    assert len(images) == 2
    for image in images:
        assert image.meta.endswith("</ismrmrdMeta>\n\0")
        assert "<name>ExampleKey</name>" in image.meta
        assert len(image.meta) == image.header["attribute_string_len"]


def test_image_arrays_hold_the_images(data_folder):
    arrays = [m for m in decode(golden(data_folder, "external_imagearray")) if isinstance(m, ImageArray)]
    images = [m for m in decode(golden(data_folder, "external_image_float")) if isinstance(m, Image)]
    assert len(arrays) == 2
    for array, image in zip(arrays, images, strict=True):
        assert array.data.shape == (64, 64, 1, 1, 1, 1, 1)
        assert array.headers.shape == (1, 1, 1)
        assert array.metas == ()
        assert array.waveforms is None
        assert array.acquisition_headers is None
        # Sent as float, the same picture as magnitude, on another scale.
        magnitude = np.abs(array.data[:, :, 0, 0, 0, 0, 0]).T
        scale = magnitude.max() / image.data.max()
        np.testing.assert_allclose(image.data[0, 0] * scale, magnitude, atol=1e-3 * magnitude.max())


def test_texts_are_what_their_senders_wrote(data_folder):
    config, header = decode(golden(data_folder, "client_fire"))[:2]
    assert isinstance(config, ConfigFile)
    assert config.text == "simplefft"
    assert isinstance(header, ScanHeader)
    assert header.raw.endswith("\0")  # the FIRE client counts the NUL
    assert header.text.endswith("</ismrmrdHeader>\n")
    assert decode(golden(data_folder, "client_gadgetron"))[0] == ConfigFile("default.xml")
    config = decode(golden(data_folder, "external_acquisitions"))[0]
    assert isinstance(config, ConfigText)
    assert '<property name="alpha" value="1.5" />' in config.text
