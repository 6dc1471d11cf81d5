"""A stream file is readable wherever it was cut, and is what came, byte for byte."""

import errno
import io
import itertools
import logging
import os
import resource
import stat

import h5py
import numpy as np
import pytest
from ismrmrd.serialization import ProtocolDeserializer
from spooled_bytes import CLOSE, CONFIG, GADGETRON_CONFIG, HEADER, SCAN, messages_of, readout
from synthetic_scan import Protocol, lines_of

from gadget.errors import FileError, ScanError
from gadget.scan_file import count_readouts, open_scan, read_scan
from gadget.spool.stream_file import StreamReader, StreamWriter, is_stream
from gadget.wire.codec import encode_parts
from gadget.wire.messages import Acquisition, Close, ConfigFile, ScanHeader, Waveform

ENDS = list(itertools.accumulate(map(len, SCAN)))


def write(path, pieces):
    path.write_bytes(b"".join(pieces))
    return path


def test_a_stream_file_is_read_as_a_scan_of_header_data_and_close(tmp_path):
    path = write(tmp_path / "scan.stream", SCAN)

    header, first, wave, second, third, close = read_scan(path)

    assert isinstance(header, ScanHeader)
    assert isinstance(close, Close)
    assert isinstance(wave, Waveform)
    assert wave.data.tolist() == [[5, 5, 5]] * 2
    np.testing.assert_array_equal(first.data, np.full((2, 4), 1))
    np.testing.assert_array_equal(second.trajectory, np.full((3, 2), 2))
    assert int(third.header["scan_counter"]) == 3
    assert count_readouts(path) == 3


def test_cut_at_every_byte_the_whole_messages_are_there(tmp_path):
    pieces = [GADGETRON_CONFIG, *SCAN[1:]]
    whole = b"".join(pieces)
    ends = list(itertools.accumulate(map(len, pieces)))
    path = tmp_path / "scan.stream"
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        n_whole = sum(end <= cut for end in ends)
        reader = StreamReader(path)

        got = list(reader)

        assert is_stream(path)
        assert len(got) == n_whole
        assert reader.n_bytes == [0, *ends][n_whole]
        assert (reader.broken_off is None) == (cut == len(whole))
        assert reader.broken_off is None or f"after {n_whole} whole messages" in reader.broken_off


@pytest.mark.parametrize("cut", [ENDS[1], ENDS[3] - 1, ENDS[5] + 1, ENDS[6]])
def test_an_incomplete_file_is_a_scan_up_to_the_break_which_is_said(tmp_path, caplog, cut):
    path = tmp_path / "scan.stream"
    path.write_bytes(b"".join(SCAN)[:cut])
    n_readouts = sum(ENDS[place] <= cut for place in (3, 5, 6))

    with caplog.at_level(logging.WARNING):
        messages = list(read_scan(path))

    assert sum(isinstance(one, Acquisition) for one in messages) == n_readouts == count_readouts(path)
    assert isinstance(messages[-1], Close)
    assert "is incomplete: it breaks off after" in caplog.text
    assert "slices may lack lines" in caplog.text


@pytest.mark.parametrize("tail", [bytes(600), b"\xff" * 7], ids=["zeros", "rubbish"])
def test_what_a_loss_of_power_leaves_behind_the_last_message_does_no_harm(tmp_path, caplog, tail):
    path = write(tmp_path / "scan.stream", [*SCAN[:-1], tail])

    assert sum(isinstance(one, Acquisition) for one in read_scan(path)) == 3
    assert "Unknown MRD message id" in caplog.text


def test_a_file_cut_before_its_header_holds_no_scan(tmp_path):
    path = write(tmp_path / "scan.stream", [CONFIG, HEADER[:-1]])

    with pytest.raises(
        ScanError, match=r"holds no scan: the XML header never came.*breaks off after 1 whole"
    ):
        list(read_scan(path))
    with pytest.raises(ScanError, match="holds no scan"):
        list(read_scan(write(tmp_path / "empty.stream", [])))


def test_data_before_the_header_are_refused(tmp_path):
    with pytest.raises(ScanError, match="has a Acquisition before the scan's header"):
        list(read_scan(write(tmp_path / "scan.stream", [CONFIG, readout(1), HEADER, CLOSE])))


def test_a_stream_file_has_no_groups_and_is_no_hdf5_file(tmp_path):
    path = write(tmp_path / "scan.stream", SCAN)

    with pytest.raises(FileError, match=r"one scan and no group 'other'\. Leave --group out"):
        next(read_scan(path, "other"))
    with pytest.raises(FileError, match="no group 'other'"):
        count_readouts(path, "other")
    with pytest.raises(FileError, match="is a stream file, where an HDF5 file is needed"):
        open_scan(path)


def test_the_format_is_told_by_content_not_by_name(tmp_path):
    hdf5 = tmp_path / "scan.stream"
    h5py.File(hdf5, "w").close()

    assert not is_stream(hdf5)
    assert is_stream(write(tmp_path / "scan.h5", SCAN))
    assert not is_stream(tmp_path / "absent.stream")


def test_a_stream_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileError, match=r"Cannot read .*absent\.stream: No such file"):
        list(StreamReader(tmp_path / "absent.stream"))


@pytest.mark.parametrize("name", ["client_fire.bin", "client_gadgetron.bin", "external_bucket.bin"])
def test_captured_streams_are_written_back_byte_for_byte(tmp_path, data_folder, name):
    captured = (data_folder / "wire" / name).read_bytes()
    writer = StreamWriter(tmp_path / "scan.stream")

    for message in messages_of([captured]):
        writer.append(encode_parts(message))
    writer.close()

    assert writer.path.read_bytes() == captured
    assert writer.n_bytes == len(captured)


def test_ismrmrd_s_own_reader_reads_a_stream_file(tmp_path):
    xml = Protocol().xml()
    sent = [ConfigFile("simplefft"), ScanHeader(xml), *lines_of(Protocol().kspace(), list(range(9))), Close()]
    writer = StreamWriter(tmp_path / "scan.stream")
    for message in sent:
        writer.append(encode_parts(message))
    writer.close()

    with ProtocolDeserializer(io.BytesIO(writer.path.read_bytes())) as theirs:
        config, header, *readouts = theirs.deserialize()

    assert config == "simplefft"
    assert header.encoding[0].encodedSpace.matrixSize.x == 80
    assert len(readouts) == 9
    for one, line in zip(readouts, sent[2:-1], strict=True):
        np.testing.assert_array_equal(one.data, line.data)


def test_only_the_owner_can_read_a_stream_file_and_none_is_written_over(tmp_path):
    before = os.umask(0)
    try:
        writer = StreamWriter(tmp_path / "scan.stream")
    finally:
        os.umask(before)
    writer.close()

    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        StreamWriter(writer.path)
    (tmp_path / "link.stream").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        StreamWriter(tmp_path / "link.stream")


def test_a_message_of_many_parts_and_writes_that_take_only_some_of_it(tmp_path, monkeypatch):
    parts = [bytes([number % 251]) * (number % 5) for number in range(1300)]
    whole_writev = os.writev
    monkeypatch.setattr(os, "writev", lambda handle, buffers: whole_writev(handle, [buffers[0][:3]]))
    writer = StreamWriter(tmp_path / "scan.stream")

    writer.append(parts)
    writer.close()

    assert writer.path.read_bytes() == b"".join(parts)


def test_a_message_for_which_there_is_no_room_is_taken_back(tmp_path):
    first, second = encode_parts(next(messages_of([CONFIG]))), encode_parts(next(messages_of([HEADER])))
    writer = StreamWriter(tmp_path / "scan.stream")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONFIG) + 50, limits[1]))
    try:
        writer.append(first)
        with pytest.raises(OSError, match="too large") as refused:
            writer.append(second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        writer.close()

    assert refused.value.errno == errno.EFBIG
    assert writer.path.read_bytes() == CONFIG


def test_a_full_disk_leaves_the_whole_messages(small_disk):
    writer = StreamWriter(small_disk / "scan.stream")
    writer.append([CONFIG])
    writer.append([HEADER])

    lines = itertools.count()
    with pytest.raises(OSError, match="No space left on device"):
        all(writer.append([readout(line)]) is None for line in lines)
    writer.close()

    reader = StreamReader(writer.path)
    got = list(reader)
    assert len(got) == next(lines) - 1 + 2 > 10
    assert reader.n_bytes == writer.path.stat().st_size
