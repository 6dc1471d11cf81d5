"""``inspect`` on the command line: its text, its pictures, and its exit codes."""

import json
import re
from functools import partial

import h5py
import matplotlib.image
import numpy as np
import pytest
from scan_files import write_scan_file
from synthetic_scan import OBJECT, Protocol, kspace_of, lines_of, noise_readout, readout

from gadget.inspection.inspect_file import Inspector
from gadget.inspection.pictures import COLOURS, sampling_figure
from gadget.inspection.text import as_text
from gadget.wire.codec import MrdDecoder
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, ScanHeader

PROTOCOL = Protocol()


@pytest.fixture
def run(run):
    """Return a function that runs the command and returns exit code, stdout and stderr."""
    return partial(run, "inspect")


@pytest.fixture
def scan(tmp_path):
    kspace = PROTOCOL.kspace()
    readouts = [
        noise_readout(n_coils=3),
        *lines_of(kspace, list(range(0, 45, 3))),
        readout(kspace[:, 22], 22, Flag.IS_PARALLEL_CALIBRATION),
    ]
    return write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), readouts)


def test_the_text_says_what_is_there_and_what_would_become_of_it(run, scan):
    code, out, err = run(scan)

    assert (code, err) == (0, "")
    assert f"{scan}: " in out
    assert re.search(r"-> dataset +scan +17 readouts, XML header", out)
    assert "encoded 80 x 45 x 1, 240 x 135 x 5 mm, pixel 3 x 3 x 5 mm" in out
    assert re.search(r"kspace_encode_step_1 +0 to 44, centre 22 +0 to 42 +16", out)
    assert re.search(r"15 +image +0 +3 +80 +40 +0, 0 +5 us", out)
    assert "slice 0: 16 of 45 lines, 1 with calibration only" in out
    assert f"    0 {'#..' * 7}#c.{'#..' * 7}"[:-1] in out
    assert "1 image\n" in out
    assert "slice 0: 40 x 45 pixels, 120 x 135 mm, from 3 coils" in out
    assert "prewhitened with 4000 noise samples" in out
    assert "Doe" not in out


def test_patient_data_comes_when_asked_for(run, scan):
    code, out, _ = run(scan, "--patient")

    assert code == 0
    assert "patientName: Doe^Jane" in out


def test_json_is_all_that_stdout_gets(run, scan, tmp_path):
    code, out, err = run(scan, "--json", "--png", tmp_path, "--overwrite")

    assert code == 0
    assert json.loads(out)["n_readouts"] == 17
    assert "sampling_encoding_0.png" in err


def test_pictures_show_sampling_noise_and_trajectory(run, tmp_path):
    spiral = Protocol(trajectory="spiral")
    readouts = [noise_readout()]
    for one in lines_of(spiral.kspace(), [0, 1, 2]):
        header = one.header.copy()
        header["trajectory_dimensions"] = 2
        readouts.append(type(one)(header, np.linspace(0, 1, 160, dtype=np.float32).reshape(80, 2), one.data))
    path = write_scan_file(tmp_path / "scan.h5", spiral.xml(), readouts)

    code, out, _ = run(path, "--png", tmp_path / "pictures")

    assert code == 0
    assert "REFUSED: The trajectory (kx from 0 to 0.993711, ky from 0.00628931 to 1)" in out
    names = {picture.name for picture in (tmp_path / "pictures").iterdir()}
    assert names == {"sampling_encoding_0.png", "noise_correlation.png", "trajectory.png"}
    for name in names:
        pixels = matplotlib.image.imread(tmp_path / "pictures" / name)
        assert pixels.shape[0] > 300
        assert pixels[..., :3].std() > 0.01


def test_pictures_that_exist_are_not_replaced(run, scan, tmp_path):
    picture = tmp_path / "sampling_encoding_0.png"
    picture.write_bytes(b"mine")

    code, _, err = run(scan, "--png", tmp_path)

    assert code == 1
    assert "sampling_encoding_0.png exists" in err
    assert picture.read_bytes() == b"mine"


def test_the_sampling_picture_has_the_colours_of_the_lines(scan):
    """Asked of the picture itself: never measured, imaging and calibration in their rows."""
    inspector = Inspector(scan)
    inspector.inspect()
    figure = sampling_figure(0, inspector.sampling[0])

    shown = figure.axes[0].images[0].get_array()
    assert shown.shape == (45, 80)
    assert [int(shown[row, 40]) for row in (0, 1, 3, 22)] == [1, 0, 1, 3]
    assert len(COLOURS) == 4


def test_echoes_that_begin_late_leave_their_first_columns_grey(tmp_path):
    kspace = PROTOCOL.kspace()
    readouts = [readout(kspace[:, line, 20:], line, center=20) for line in range(45)]
    inspector = Inspector(write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), readouts))
    inspector.inspect()

    np.testing.assert_array_equal(inspector.sampling[0].column_counts()[0], [0] * 20 + [45] * 60)
    codes = inspector.sampling[0].sample_codes()
    np.testing.assert_array_equal(codes, np.broadcast_to([0] * 20 + [1] * 60, (45, 80)))


def test_large_sampling_pictures_are_drawn_in_blocks(tmp_path):
    """A volume of 100 x 200 lines, every second partition: 48 rows and 96 letters at most."""
    protocol = Protocol(
        encoded=(8, 200, 100),
        recon=(8, 200, 100),
        encoded_fov=(200.0, 200.0, 100.0),
        recon_fov=(200.0, 200.0, 100.0),
        limits={"kspace_encoding_step_1": (0, 199, 100), "kspace_encoding_step_2": (0, 99, 50)},
    )
    kspace = kspace_of(OBJECT, (8, 200), (200.0, 200.0))
    readouts = [
        readout(kspace[:, line], line, kspace_encode_step_2=partition)
        for partition in range(0, 100, 50)
        for line in range(100)
    ]

    text = as_text(Inspector(write_scan_file(tmp_path / "scan.h5", protocol.xml(), readouts)).inspect())

    assert "one letter for 3 x 3, +: some of them" in text
    drawn = [line for line in text.splitlines() if re.fullmatch(r" +\d+ [#.+]{50,}", line)]
    assert len(drawn) == 34
    assert drawn[0].endswith(" " + "+" * 34 + "." * 33)
    assert drawn[1].endswith(" " + "." * 67)


def test_names_in_a_file_cannot_steer_the_terminal(run, tmp_path):
    xml = PROTOCOL.xml().replace("t1_test", "t1&#x9b;31m")
    path = write_scan_file(tmp_path / "scan.h5", xml, lines_of(PROTOCOL.kspace()), group="a\x1b[31m")

    code, out, _ = run(path)

    assert code == 0
    assert out.replace("\n", "").isprintable()
    assert "t1 31m" in out


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"nothing", "is not an HDF5 file"), (None, r"truncated")],
)
def test_a_file_that_cannot_be_read_ends_with_1(run, scan, content, words):
    scan.write_bytes(content if content is not None else scan.read_bytes()[:-2000])

    code, out, err = run(scan)

    assert (code, out) == (1, "")
    assert re.search(words, err)


def test_a_file_that_breaks_off_is_described_and_ends_with_1(run, scan, monkeypatch):
    original = h5py.Dataset.__getitem__

    def failing(dataset, key, *others):
        if isinstance(key, slice) and key.start == 16:
            raise OSError("can't read data")
        return original(dataset, key, *others)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", failing)

    code, out, _ = run(scan)

    assert code == 1
    assert "15 of 45 lines" in out
    assert "can't read data. The file is damaged." in " ".join(out.split())


def test_a_scan_that_a_client_sent_is_described(data_folder, tmp_path):
    """README of the data: 64 x 64, 4 coils, 2 repetitions, twofold oversampling, one noise readout."""
    decoder = MrdDecoder()
    decoder.feed((data_folder / "wire" / "external_acquisitions.bin").read_bytes())
    messages = list(decoder.messages())
    xml = next(message for message in messages if isinstance(message, ScanHeader))
    readouts = [message for message in messages if isinstance(message, Acquisition)]
    path = write_scan_file(tmp_path / "scan.h5", xml.text, readouts)

    found = Inspector(path).inspect()

    assert found.n_readouts == 129
    assert {one.kind: (one.n_readouts, one.n_coils, one.n_samples) for one in found.readouts} == {
        "image": (128, 4, 128),
        "noise": (1, 4, 128),
    }
    assert found.sampling[0].images == "slice 0, repetition 0-1"
    assert found.sampling[0].codes == ("#" * 64,)
    assert found.trajectory[0].dimensions == 2
    assert (found.outcome.n_images, found.outcome.images[0].matrix) == (2, (64, 64))


def test_a_group_that_is_not_there_ends_with_1(run, scan):
    code, _, err = run(scan, "--group", "noise")

    assert code == 1
    assert "has no group 'noise'; it has the scan dataset. Choose one with --group" in err


def test_a_scan_that_replay_refuses_ends_with_0(run, tmp_path):
    path = write_scan_file(tmp_path / "scan.h5", None, [])

    code, out, _ = run(path)

    assert code == 0
    assert "0 images" in out
    # Lines are broken at blanks, and where depends on the length of the path.
    assert re.search(r"REFUSED: .* has no XML header", " ".join(out.split()))
