"""Recorded scans are read as they are and never changed; what is wrong with a file is said."""

import hashlib
import os
import shutil
from pathlib import Path

import h5py
import ismrmrd
import numpy as np
import pytest

from gadget.errors import FileError, ScanError
from gadget.scan_file import READOUTS_AT_ONCE, count_readouts, read_scan
from gadget.wire.messages import Acquisition, Close, ScanHeader, Waveform

XML = "<ismrmrdHeader>é</ismrmrdHeader>"


def readout(line: int, *, n_dims: int = 0, time: int = 0) -> ismrmrd.Acquisition:
    """Make a readout of 3 channels and 5 samples whose values tell which one it is."""
    data = (line + np.arange(15).reshape(3, 5) * 1j).astype(np.complex64)
    trajectory = np.full((5, n_dims), line, np.float32) if n_dims else None
    acquisition = ismrmrd.Acquisition.from_array(data, trajectory, acquisition_time_stamp=time)
    acquisition.idx.kspace_encode_step_1 = line
    acquisition.setFlag(ismrmrd.ACQ_LAST_IN_SLICE)
    return acquisition


def write_scan(path: Path, acquisitions: list, waveforms: list = (), group: str = "dataset") -> Path:
    with ismrmrd.Dataset(str(path), group, mode="a") as dataset:
        dataset.write_xml_header(XML.encode())
        for acquisition in acquisitions:
            dataset.append_acquisition(acquisition)
        for waveform in waveforms:
            dataset.append_waveform(waveform)
    return path


def test_a_scan_is_read_in_order_with_all_fields(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(4), readout(2, n_dims=2)])

    header, first, second, close = read_scan(path)

    assert isinstance(header, ScanHeader)
    assert header.text == XML
    assert isinstance(close, Close)
    for message, line in ((first, 4), (second, 2)):
        expected = readout(line)
        assert isinstance(message, Acquisition)
        assert message.data.dtype == np.complex64
        np.testing.assert_array_equal(message.data, expected.data)
        assert message.header["idx"]["kspace_encode_step_1"] == line
        assert message.header["flags"] == expected.flags
        assert message.header["active_channels"] == 3
    assert first.trajectory.shape == (5, 0)
    np.testing.assert_array_equal(second.trajectory, np.full((5, 2), 2, np.float32))


def test_waveforms_come_before_the_first_readout_that_is_not_older(tmp_path):
    waveforms = []
    for time in (5, 20, 99):
        waveforms.append(ismrmrd.Waveform.from_array(np.full((2, 3), time, np.uint32), time_stamp=time))
    path = write_scan(tmp_path / "scan.h5", [readout(0, time=10), readout(1, time=20)], waveforms)

    messages = list(read_scan(path))[1:-1]

    kinds = "".join("w" if isinstance(message, Waveform) else "a" for message in messages)
    assert kinds == "wawaw"
    assert [int(m.data[1, 2]) for m in messages if isinstance(m, Waveform)] == [5, 20, 99]


def test_a_long_scan_is_read_in_blocks_without_a_gap(tmp_path):
    n_readouts = READOUTS_AT_ONCE + 3
    path = write_scan(tmp_path / "scan.h5", [readout(line) for line in range(n_readouts)])

    lines = [
        int(m.header["idx"]["kspace_encode_step_1"]) for m in read_scan(path) if isinstance(m, Acquisition)
    ]

    assert lines == list(range(n_readouts))
    assert count_readouts(path) == n_readouts


def test_reading_changes_nothing_even_in_a_folder_that_cannot_be_written(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    path = write_scan(folder / "scan.h5", [readout(0)])
    os.utime(path, (1, 1))
    path.chmod(0o400)
    folder.chmod(0o500)

    def state() -> tuple:
        return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns, list(folder.iterdir())

    before = state()
    list(read_scan(path))

    assert state() == before
    folder.chmod(0o700)


def test_another_group_can_be_chosen(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(7)], group="second")

    assert len(list(read_scan(path, "second"))) == 3


def test_a_measured_scan_is_read_as_the_ismrmrd_package_reads_it(data_folder, tmp_path):
    path = tmp_path / "scan.h5"
    shutil.copy(data_folder / "kspace" / "skyra_phantom_14coil_r3.h5", path)

    messages = [message for message in read_scan(path) if isinstance(message, Acquisition)]

    with ismrmrd.Dataset(str(path), mode="r") as dataset:
        assert len(messages) == dataset.number_of_acquisitions() == 69
        for index in (0, 1, 40, 68):
            expected = dataset.read_acquisition(index)
            np.testing.assert_array_equal(messages[index].data, expected.data)
            assert bytes(messages[index].header.tobytes()) == bytes(expected.getHead())


def test_a_file_that_is_not_hdf5_is_refused(tmp_path):
    path = tmp_path / "scan.h5"
    path.write_text("no HDF5")

    with pytest.raises(FileError, match="is not an HDF5 file; a scan is needed in the ISMRMRD format"):
        next(read_scan(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"Cannot read .*absent\.h5: .*No such file"):
        next(read_scan(tmp_path / "absent.h5"))


def test_a_missing_group_is_refused_with_those_that_are_there(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(0)], group="b")
    write_scan(path, [readout(0)], group="a")

    with pytest.raises(FileError, match=r"has no group 'dataset'; it has the scans a, b\. Choose one with"):
        next(read_scan(path))


def test_a_file_without_groups_is_refused(tmp_path):
    path = tmp_path / "scan.h5"
    h5py.File(path, "w").close()

    with pytest.raises(FileError, match="it has no groups at all"):
        next(read_scan(path))


def test_a_scan_without_acquisitions_is_refused(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [])

    with pytest.raises(ScanError, match=r"has no acquisitions in 'dataset/data'"):
        list(read_scan(path))


def test_an_empty_list_of_acquisitions_is_refused(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(0)])
    with h5py.File(path, "a") as file:
        file["dataset/data"].resize(0, axis=0)

    with pytest.raises(ScanError, match=r"has no acquisitions in 'dataset/data'"):
        list(read_scan(path))


def test_a_scan_without_an_xml_header_is_refused(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(0)])
    with h5py.File(path, "a") as file:
        del file["dataset/xml"]

    with pytest.raises(ScanError, match="has no XML header 'dataset/xml'"):
        list(read_scan(path))


def test_a_header_that_is_not_utf8_keeps_its_bytes(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(0)])
    with h5py.File(path, "a") as file:
        file["dataset/xml"][0] = b"<x>\xff</x>"

    header = next(read_scan(path))

    assert header.text.encode("utf-8", "surrogateescape") == b"<x>\xff</x>"


def test_data_of_another_kind_is_refused(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(0)])
    with h5py.File(path, "a") as file:
        del file["dataset/data"]
        file["dataset/data"] = np.zeros(3)

    with pytest.raises(ScanError, match="is no list of ISMRMRD acquisitions"):
        list(read_scan(path))


@pytest.mark.parametrize("field", ["number_of_samples", "active_channels", "trajectory_dimensions"])
def test_a_header_that_does_not_fit_its_samples_is_refused(tmp_path, field):
    path = write_scan(tmp_path / "scan.h5", [readout(0), readout(1)])
    with h5py.File(path, "a") as file:
        row = file["dataset/data"][1]
        row["head"][field] = 7
        file["dataset/data"][1] = row

    with pytest.raises(
        ScanError, match=r"Readout 1 of .* has 30 values and 0 trajectory values; its header says"
    ):
        list(read_scan(path))


def test_headers_of_another_version_are_refused(tmp_path):
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        floats = h5py.special_dtype(vlen=np.float32)
        kind = np.dtype(
            [("head", [("version", "<u2"), ("flags", "<u8")]), ("traj", floats), ("data", floats)]
        )
        file["dataset/xml"] = np.array([XML], dtype=h5py.special_dtype(vlen=str))
        file.create_dataset("dataset/data", (1,), dtype=kind)

    with pytest.raises(
        ScanError, match=r"have no measurement_uid, .*user_float; they are not ISMRMRD headers"
    ):
        list(read_scan(path))


def test_a_truncated_file_is_refused(tmp_path):
    path = write_scan(tmp_path / "scan.h5", [readout(line) for line in range(40)])
    path.write_bytes(path.read_bytes()[:-3000])

    with pytest.raises(FileError, match=r"Cannot read .*truncated"):
        list(read_scan(path))
