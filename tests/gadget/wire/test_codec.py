"""The codec on messages written by hand: every kind, every field that matters, whatever the cuts."""

import itertools

import ismrmrd
import numpy as np
import pytest
import written_by_hand as by_hand
from hypothesis import given
from hypothesis import strategies as st

from gadget.errors import OwnProtocolError
from gadget.wire.codec import MrdDecoder, encode, encode_parts
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

ONE_OF_EACH = by_hand.one_of_each()
CONVERSATION = b"".join(ONE_OF_EACH.values())


def decode(data: bytes, step: int | None = None) -> list[Message]:
    decoder = MrdDecoder()
    messages: list[Message] = []
    for start in range(0, len(data), step or len(data)):
        decoder.feed(data[start : start + (step or len(data))])
        messages += decoder.messages()
    decoder.feed(b"")
    return [*messages, *decoder.messages()]


def decode_one(data: bytes) -> Message:
    (message,) = decode(data)
    return message


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("step", [None, 1, 3])
def test_a_message_is_written_back_as_it_came(name, step):
    assert b"".join(map(encode, decode(ONE_OF_EACH[name], step))) == ONE_OF_EACH[name]


@given(places=st.lists(st.integers(0, len(CONVERSATION)), max_size=12))
def test_messages_do_not_depend_on_where_the_bytes_are_cut(places):
    edges = [0, *sorted(places), len(CONVERSATION)]
    decoder = MrdDecoder()
    messages: list[Message] = []
    for start, end in itertools.pairwise(edges):
        if end > start:
            decoder.feed(CONVERSATION[start:end])
        messages += decoder.messages()
    assert [encode(message) for message in messages] == list(ONE_OF_EACH.values())


def test_several_feeds_may_come_before_messages_are_taken():
    decoder = MrdDecoder()
    for start in range(0, len(CONVERSATION), 5):
        decoder.feed(CONVERSATION[start : start + 5])
    assert [encode(message) for message in decoder.messages()] == list(ONE_OF_EACH.values())


def test_the_decoder_knows_the_length_of_the_last_message():
    decoder = MrdDecoder()
    decoder.feed(CONVERSATION)
    lengths = [decoder.n_bytes_of_last_message for _ in decoder.messages()]
    assert lengths == [len(data) for data in ONE_OF_EACH.values()]


@pytest.mark.parametrize(
    ("dtype", "theirs"),
    [
        (ACQUISITION_HEADER, ismrmrd.AcquisitionHeader),
        (IMAGE_HEADER, ismrmrd.ImageHeader),
        (WAVEFORM_HEADER, ismrmrd.hdf5.waveform_header_dtype),
    ],
    ids=["acquisition", "image", "waveform"],
)
def test_header_fields_lie_where_ismrmrd_has_them(dtype, theirs):
    if isinstance(theirs, np.dtype):
        assert [theirs.fields[name][1] for name in theirs.names] == [
            dtype.fields[name][1] for name in dtype.names
        ]
        return
    assert dtype.itemsize == len(bytes(theirs()))
    offsets = {name: getattr(theirs, name).offset for name, *_ in theirs._fields_}
    assert {name: field[1] for name, field in dtype.fields.items()} == offsets


def test_texts_end_at_the_first_nul():
    assert decode_one(ONE_OF_EACH["config file"]) == ConfigFile("default.xml")
    config = decode_one(ONE_OF_EACH["config text"])
    assert isinstance(config, ConfigText)
    assert config.text == "<configuration/>\n"
    assert config.raw == "<configuration/>\n\0"
    assert decode_one(ONE_OF_EACH["text"]) == Text('{"parameters": {}}')
    assert decode_one(ONE_OF_EACH["query"]) == Query(3, "gadgetron::info")
    assert decode_one(ONE_OF_EACH["response"]) == Response(3, "4.7.2")
    assert decode_one(ONE_OF_EACH["error"]) == Error("no header")
    assert decode_one(ONE_OF_EACH["close"]) == Close()


def test_a_header_keeps_bytes_that_are_not_utf_8_and_hides_its_text():
    header = decode_one(ONE_OF_EACH["header in latin-1"])
    assert isinstance(header, ScanHeader)
    assert header.xml == "<name>José</name>".encode("latin-1")
    assert "Jos" not in repr(header)


def test_a_readout_has_the_fields_that_were_written():
    readout = decode_one(ONE_OF_EACH["acquisition with trajectory"])
    assert isinstance(readout, Acquisition)
    header = readout.header
    assert (header["version"], header["flags"], header["measurement_uid"]) == (1, 1 << 18, 7)
    assert (header["scan_counter"], header["acquisition_time_stamp"]) == (11, 13)
    assert header["physiology_time_stamp"].tolist() == [17, 19, 23]
    assert (header["number_of_samples"], header["available_channels"], header["active_channels"]) == (5, 3, 3)
    assert header["channel_mask"].tolist() == list(range(16))
    assert (header["discard_pre"], header["discard_post"], header["center_sample"]) == (1, 2, 2)
    assert (header["encoding_space_ref"], header["trajectory_dimensions"], header["sample_time_us"]) == (
        0,
        2,
        2.5,
    )
    assert header["position"].tolist() == [0, 1, 2]
    assert header["slice_dir"].tolist() == [9, 10, 11]
    assert header["patient_table_position"].tolist() == [12, 13, 14]
    counters = header["idx"]
    assert (counters["kspace_encode_step_1"], counters["slice"], counters["segment"]) == (40, 1, 6)
    assert counters["user"].tolist() == list(range(8))
    assert header["user_int"].tolist() == list(range(-4, 4))
    assert header["user_float"].tolist() == list(range(8))
    np.testing.assert_array_equal(readout.trajectory, 100 * np.arange(5)[:, None] + np.arange(2))
    np.testing.assert_array_equal(readout.data, np.arange(3)[:, None] + 1j * np.arange(5))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("uint16", np.uint16),
        ("int16", np.int16),
        ("uint32", np.uint32),
        ("int32", np.int32),
        ("float", np.float32),
        ("double", np.float64),
        ("complex64", np.complex64),
        ("complex128", np.complex128),
    ],
)
def test_images_of_every_pixel_type_are_read(name, dtype):
    image = decode_one(ONE_OF_EACH[f"image of {name}"])
    assert isinstance(image, Image)
    assert image.data.dtype == dtype
    assert image.data.flags.aligned
    factor = 1j if name.startswith("complex") else 1
    np.testing.assert_array_equal(image.data, factor * np.arange(24).reshape(2, 1, 3, 4))
    header = image.header
    assert header["matrix_size"].tolist() == [4, 3, 1]
    assert header["field_of_view"].tolist() == [256, 192, 6]
    assert (header["slice"], header["set"], header["acquisition_time_stamp"]) == (2, 6, 77)
    assert (header["image_index"], header["image_series_index"]) == (21, 22)


def test_a_waveform_has_the_fields_that_were_written():
    waveform = decode_one(ONE_OF_EACH["waveform"])
    assert isinstance(waveform, Waveform)
    assert waveform.header.item() == (1, 9, 3, 4, 5, 5, 2, 2.5, 2)
    np.testing.assert_array_equal(waveform.data, np.arange(10).reshape(2, 5))


def test_recon_data_is_in_fortran_order():
    recon = decode_one(ONE_OF_EACH["recon data"])
    assert isinstance(recon, ReconData)
    first, second = recon.bits
    assert first.reference is not None
    assert second.reference is None
    assert first.data.data.shape == (3, 2, 1, 2, 1, 1, 1)
    # The twelve elements were written as 0, 1i, 2i, ...: the first axis runs fastest.
    np.testing.assert_array_equal(first.data.data[:, 0, 0, 0, 0, 0, 0], [0, 1j, 2j])
    assert first.data.data[0, 1, 0, 0, 0, 0, 0] == 3j
    assert first.data.data[0, 0, 0, 1, 0, 0, 0] == 6j
    assert first.data.trajectory is not None
    assert first.data.density is not None
    assert first.data.trajectory[:, 1, 0, 0, 0, 0, 0].tolist() == [100, 101]
    assert first.data.headers["idx"]["kspace_encode_step_1"].ravel().tolist() == [0, 1]
    assert first.data.sampling == bytes(range(56))
    assert second.data.trajectory is None
    assert second.data.density is None


def test_an_image_array_has_its_optional_parts():
    array = decode_one(ONE_OF_EACH["image array with waveforms and readout headers"])
    assert isinstance(array, ImageArray)
    assert array.data.shape == (3, 2, 1, 1, 2, 1, 1)
    assert array.headers["image_series_index"].tolist() == [[[22]], [[22]]]
    assert array.metas == ("<a/>\0", "")
    assert array.waveforms is not None
    assert [waveform.data.shape for waveform in array.waveforms] == [(3, 2), (1, 1)]
    assert array.acquisition_headers is not None
    assert array.acquisition_headers.shape == (2, 1, 2, 1, 1)
    bare = decode_one(ONE_OF_EACH["image array"])
    assert isinstance(bare, ImageArray)
    assert bare.waveforms is None
    assert bare.acquisition_headers is None


def test_a_bucket_gives_each_readout_its_own_arrays():
    bucket = decode_one(ONE_OF_EACH["bucket"])
    assert isinstance(bucket, AcquisitionBucket)
    assert [readout.data.shape for readout in bucket.data] == [(2, 3), (1, 2)]
    assert [readout.trajectory.shape for readout in bucket.data] == [(3, 2), (2, 0)]
    np.testing.assert_array_equal(bucket.data[0].data, np.arange(2)[:, None] + 1j * np.arange(3))
    np.testing.assert_array_equal(bucket.data[1].data, [[0, 1j]])
    assert [readout.data.shape for readout in bucket.reference] == [(4, 1)]
    np.testing.assert_array_equal(bucket.waveforms[0].data, np.arange(6).reshape(3, 2))
    np.testing.assert_array_equal(bucket.waveforms[1].data, [[0]])
    assert len(bucket.data_statistics) == 80
    assert len(bucket.reference_statistics) == 8


def test_received_arrays_cannot_be_written_to():
    messages = decode(CONVERSATION)
    fields = [getattr(message, name, None) for message in messages for name in ("data", "trajectory")]
    arrays = [field for field in fields if isinstance(field, np.ndarray)]
    assert len(arrays) == 2 * 3 + 2 + 8 + 3  # readouts have two; waveforms, images, arrays of images
    assert not any(array.flags.writeable for array in arrays)
    readouts = [message for message in messages if isinstance(message, Acquisition)]
    assert len(readouts) == 3
    for readout in readouts:
        with pytest.raises(ValueError, match="read-only"):
            readout.header["flags"] = 0


def test_large_arrays_are_sent_without_a_copy():
    image = decode_one(by_hand.image(np.ones((1, 1, 64, 64), "<f4"), 5))
    assert isinstance(image, Image)
    assert np.shares_memory(np.asarray(encode_parts(image)[-1]), image.data)


def _changed(message: Message, **fields: object) -> Message:
    values = {name: getattr(message, name) for name in message.__slots__}
    return type(message)(**(values | fields))


@pytest.mark.parametrize(
    ("name", "fields", "complaint"),
    [
        ("acquisition", {"data": np.zeros((3, 4), "c8")}, r"data \(3, 4\).*header says \(3, 5\)"),
        ("acquisition", {"data": np.zeros((3, 5), "c16")}, "complex128; the message needs complex64"),
        ("acquisition", {"trajectory": np.zeros((5, 2), "f4")}, r"trajectory \(5, 2\).*\(5, 0\)"),
        ("acquisition", {"header": np.zeros((), IMAGE_HEADER)[()]}, "must be one record"),
        ("waveform", {"data": np.zeros((5, 2), "u4")}, r"\(5, 2\), but its header says \(2, 5\)"),
        ("image of float", {"data": np.zeros((2, 1, 4, 3), "f4")}, r"\(2, 1, 4, 3\), but its header says"),
        ("image of float", {"data": np.zeros((2, 1, 3, 4), "i2")}, "int16; the message needs float32"),
        ("image of float", {"header": np.zeros((), IMAGE_HEADER)[()]}, "data_type 0; known are 1 uint16"),
        ("config file", {"raw": "x" * 1025}, "1025 bytes long; at most 1024 fit"),
    ],
)
def test_a_message_that_contradicts_itself_is_not_sent(name, fields, complaint):
    with pytest.raises(OwnProtocolError, match=complaint):
        encode(_changed(decode_one(ONE_OF_EACH[name]), **fields))


def test_something_that_is_no_message_is_not_sent():
    with pytest.raises(OwnProtocolError, match="dict is not a message"):
        encode({})  # type: ignore[arg-type]
