"""Files that other programs wrote, and damaged ones: read as they are meant, or refused by what is wrong."""

import os
import re
import shutil

import h5py
import ismrmrd
import numpy as np
import pytest
from ismrmrd import hdf5
from scan_files import write_scan_file
from synthetic_scan import Protocol, lines_of, noise_readout

import gadget.scan_file
from gadget.errors import FileError, GadgetError, ScanError
from gadget.scan_file import count_readouts, open_scan, read_readouts, read_scan
from gadget.scan_groups import scan_groups
from gadget.wire.messages import Acquisition

PROTOCOL = Protocol()


@pytest.fixture
def lines():
    return lines_of(PROTOCOL.kspace(), list(range(7)))


@pytest.fixture
def path(tmp_path, lines):
    return write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), lines)


def readouts_of(path, group="dataset"):
    return [message for message in read_scan(path, group) if isinstance(message, Acquisition)]


def rewrite(path, dtype, change=lambda row: row):
    """Store the readouts of a file again as another type, each row as ``change`` makes it."""
    with h5py.File(path, "a") as file:
        rows = file["dataset/data"][()]
        del file["dataset/data"]
        stored = file.create_dataset("dataset/data", (len(rows),), dtype=dtype)
        for number, row in enumerate(rows):
            stored[number] = change(row)


def test_samples_stored_as_complex_numbers_are_read(path, lines):
    """Some writers store complex64; numpy would drop the imaginary part without a word that can be missed."""
    dtype = np.dtype(
        [
            ("head", hdf5.acquisition_header_dtype),
            ("traj", h5py.special_dtype(vlen=np.float32)),
            ("data", h5py.special_dtype(vlen=np.complex64)),
        ]
    )
    rewrite(path, dtype, lambda row: (row["head"], row["traj"], row["data"].view(np.complex64)))

    for stored, line in zip(readouts_of(path), lines, strict=True):
        np.testing.assert_array_equal(stored.data, line.data)


def test_samples_stored_in_double_precision_are_read(path, lines):
    dtype = np.dtype(
        [
            ("head", hdf5.acquisition_header_dtype),
            ("traj", h5py.special_dtype(vlen=np.float64)),
            ("data", h5py.special_dtype(vlen=np.float64)),
        ]
    )
    rewrite(path, dtype, lambda row: (row["head"], row["traj"].astype(float), row["data"].astype(float)))

    stored = readouts_of(path)

    np.testing.assert_array_equal(stored[6].data, lines[6].data)
    assert stored[6].data.dtype == np.complex64


def test_samples_that_are_texts_are_refused(path):
    dtype = np.dtype(
        [
            ("head", hdf5.acquisition_header_dtype),
            ("traj", h5py.special_dtype(vlen=np.float32)),
            ("data", h5py.special_dtype(vlen=bytes)),
        ]
    )
    rewrite(path, dtype, lambda row: (row["head"], row["traj"], b"samples"))

    with pytest.raises(ScanError, match=r"Readout 0 of .* holds .* where numbers are needed"):
        readouts_of(path)


def test_counters_in_another_order_are_copied_by_name(path, lines):
    counters = hdf5.acquisition_header_dtype["idx"]
    turned = np.dtype([(name, counters[name]) for name in reversed(counters.names)])
    head = np.dtype(
        [
            (name, turned if name == "idx" else hdf5.acquisition_header_dtype[name])
            for name in reversed(hdf5.acquisition_header_dtype.names)
        ]
    )
    dtype = np.dtype([("data", hdf5.acquisition_dtype["data"]), ("traj", hdf5.acquisition_dtype["traj"])])
    dtype = np.dtype([("head", head), *((name, dtype[name]) for name in ("traj", "data"))])

    def turn(row):
        header = np.zeros((), head)
        for name in head.names:
            if name != "idx":
                header[name] = row["head"][name]
        for name in turned.names:
            header["idx"][name] = row["head"]["idx"][name]
        return header, row["traj"], row["data"]

    rewrite(path, dtype, turn)

    for stored, line in zip(readouts_of(path), lines, strict=True):
        assert stored.header.tobytes() == line.header.tobytes()


def test_a_missing_counter_is_named(path):
    counters = hdf5.acquisition_header_dtype["idx"]
    fewer = np.dtype([(name, counters[name]) for name in counters.names if name != "slice"])
    head = np.dtype(
        [
            (name, fewer if name == "idx" else hdf5.acquisition_header_dtype[name])
            for name in hdf5.acquisition_header_dtype.names
        ]
    )
    rewrite(
        path,
        np.dtype([("head", head), *((name, hdf5.acquisition_dtype[name]) for name in ("traj", "data"))]),
        lambda row: (np.zeros((), head), row["traj"], row["data"]),
    )

    with pytest.raises(ScanError, match=r"have no idx\.slice; they are not ISMRMRD headers of version 1"):
        readouts_of(path)


def test_a_counter_that_is_a_text_is_named(path):
    names = hdf5.acquisition_header_dtype.names
    head = np.dtype(
        [(name, "S3" if name == "scan_counter" else hdf5.acquisition_header_dtype[name]) for name in names]
    )
    header = np.zeros((), head)
    header["scan_counter"] = b"one"
    rewrite(
        path,
        np.dtype([("head", head), *((name, hdf5.acquisition_dtype[name]) for name in ("traj", "data"))]),
        lambda row: (header, row["traj"], row["data"]),
    )

    with pytest.raises(ScanError, match=r"header field scan_counter in .* holds .*; uint32 is needed"):
        readouts_of(path)


@pytest.mark.parametrize("stored", [np.zeros(3), np.array(7), np.zeros((0,))])
def test_an_xml_header_that_is_no_text_is_refused(path, stored):
    with h5py.File(path, "a") as file:
        del file["dataset/xml"]
        file["dataset/xml"] = stored

    with pytest.raises(ScanError, match=r"XML header 'dataset/xml'"):
        next(read_scan(path))


@pytest.mark.parametrize("kind", ["scalar", "fixed", "text"])
def test_an_xml_header_is_read_however_its_text_is_stored(path, kind):
    xml = PROTOCOL.xml()
    with h5py.File(path, "a") as file:
        del file["dataset/xml"]
        if kind == "scalar":
            file["dataset/xml"] = xml
        elif kind == "fixed":
            file["dataset/xml"] = np.array([xml.encode()])
        else:
            file["dataset"].create_dataset("xml", data=np.array([xml], dtype=h5py.string_dtype()))

    assert next(read_scan(path)).text == xml


def test_all_scans_of_a_file_are_found_and_named_where_one_is_missing(path, lines):
    write_scan_file(path, PROTOCOL.xml(), [noise_readout()], group="noise")
    write_scan_file(path, PROTOCOL.xml(), lines[:3], group="day 1/scan")

    with open_scan(path) as file:
        assert scan_groups(file) == ("dataset", "day 1/scan", "noise")
    assert [count_readouts(path, group) for group in ("noise", "day 1/scan")] == [1, 3]
    assert len(readouts_of(path, "day 1/scan")) == 3
    with pytest.raises(
        FileError, match=r"no group 'x'; it has the scans dataset, day 1/scan, noise. Choose one with --group"
    ):
        count_readouts(path, "x")


@pytest.mark.parametrize("group", ["", "/", "dataset/xml", "a\0b", "dataset/data/head", ".."])
def test_names_that_are_no_groups_are_refused(path, group):
    with pytest.raises(GadgetError, match=r"no group|no acquisitions"):
        count_readouts(path, group)


def test_a_group_without_readouts_tells_where_there_are_some(path):
    with h5py.File(path, "a") as file:
        file.create_group("empty")

    with pytest.raises(
        ScanError,
        match=r"no acquisitions in 'empty/data': .* Scans are in: dataset\. Choose one with --group",
    ):
        count_readouts(path, "empty")


def test_images_are_told_from_readouts(path):
    image = ismrmrd.Image.from_array(np.ones((4, 6), np.float32), transpose=False)
    with ismrmrd.Dataset(str(path), "pictures", mode="a") as dataset:
        dataset.append_image("image_0", image)

    with pytest.raises(ScanError, match=r"It holds images \(image_0\)\. Scans are in: dataset"):
        count_readouts(path, "pictures")
    with pytest.raises(ScanError, match=r"'pictures/image_0' of .* holds images, not readouts"):
        count_readouts(path, "pictures/image_0")


def test_links_that_lead_nowhere_do_no_harm(path):
    with h5py.File(path, "a") as file:
        file["gone"] = h5py.SoftLink("/nowhere")
        file["elsewhere"] = h5py.ExternalLink("absent.h5", "/dataset")

    assert count_readouts(path) == 7
    with pytest.raises(FileError, match="no group 'gone'; it has the scan dataset"):
        count_readouts(path, "gone")


def test_waveforms_of_another_kind_are_refused(path):
    with h5py.File(path, "a") as file:
        file["dataset/waveforms"] = np.zeros(4)

    with pytest.raises(ScanError, match="is no list of ISMRMRD waveforms"):
        list(read_scan(path))


def test_a_waveform_that_does_not_fit_its_header_is_refused(tmp_path, lines):
    waveform = ismrmrd.Waveform.from_array(np.ones((2, 3), np.uint32))
    path = write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), lines, waveforms=[waveform])
    with h5py.File(path, "a") as file:
        row = file["dataset/waveforms"][0]
        row["head"]["channels"] = 5
        file["dataset/waveforms"][0] = row

    with pytest.raises(ScanError, match=r"Waveform 0 of .* has 6 values, its header says \(5, 3\)"):
        list(read_scan(path))


def test_a_file_of_another_format_says_what_to_do(tmp_path):
    path = tmp_path / "meas.dat"
    path.write_bytes(bytes(range(256)) * 9)

    with pytest.raises(FileError, match=r"not an HDF5 file; .* Convert a scanner's own files first"):
        count_readouts(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(path):
    path.chmod(0)

    with pytest.raises(FileError, match="Permission denied"):
        count_readouts(path)


def test_long_readouts_are_read_in_smaller_blocks(path, monkeypatch):
    monkeypatch.setattr(gadget.scan_file, "BYTES_AT_ONCE", 1)
    read = []
    original = h5py.Dataset.__getitem__

    def counting(dataset, key, *others):
        if isinstance(key, slice):
            read.append(key.stop - key.start)
        return original(dataset, key, *others)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    monkeypatch.setattr(gadget.scan_file, "FIRST_BLOCK", 2)

    assert len(readouts_of(path)) == 7
    assert read == [2, 1, 1, 1, 1, 1]


def test_records_with_overlapping_fields_are_refused(path, monkeypatch):
    """HDF5 itself crashes where it converts them."""
    head = np.dtype({"names": ["a", "b"], "formats": ["<f8", "<f4"], "offsets": [0, 4], "itemsize": 12})
    overlapping = np.dtype([("head", head), *((n, hdf5.acquisition_dtype[n]) for n in ("traj", "data"))])
    monkeypatch.setattr(h5py.Dataset, "dtype", property(lambda _dataset: overlapping))

    with pytest.raises(FileError, match=r"the fields of its records overlap. The file is damaged"):
        list(read_readouts(h5py.File(path)["dataset"], path))


def test_data_that_is_there_but_cannot_be_opened_is_no_empty_scan(path):
    content = path.read_bytes()
    # In the stored type a field's name is followed by its place in the record: 218 for slice_dir.
    damaged, n_places = re.subn(rb"(slice_dir\0+)\xda", lambda found: found[1] + b"\xd6", content)
    path.write_bytes(damaged)

    assert n_places == 1
    with pytest.raises(FileError, match=r"Cannot open 'dataset/data' of .*, though it is there"):
        readouts_of(path)


def test_a_type_that_cannot_be_read_is_refused(path):
    path.write_bytes(path.read_bytes().replace(b"patient_table_position", b"patient_table_\x96osition"))

    with pytest.raises(GadgetError, match=r"is no list of ISMRMRD acquisitions|Cannot read"):
        readouts_of(path)


def test_a_block_that_cannot_be_read_is_named(path, monkeypatch):
    original = h5py.Dataset.__getitem__

    def failing(dataset, key, *others):
        if isinstance(key, slice) and key.start == 16:
            raise OSError("can't read data (inflate() failed)")
        return original(dataset, key, *others)

    write_scan_file(path, PROTOCOL.xml(), lines_of(PROTOCOL.kspace()), group="long")
    monkeypatch.setattr(h5py.Dataset, "__getitem__", failing)

    with pytest.raises(FileError, match=r"the entries from 16 on in 'long/data' of .*inflate\(\) failed"):
        readouts_of(path, "long")


def test_a_measured_file_cut_short_is_refused(data_folder, tmp_path):
    path = tmp_path / "scan.h5"
    shutil.copy(data_folder / "kspace" / "skyra_phantom_14coil_r3.h5", path)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)

    with pytest.raises(FileError, match=r"Cannot read .*truncated"):
        count_readouts(path)
