"""An inspection finds what is in a file, counts it, and goes on where replay would stop."""

import json

import h5py
import ismrmrd
import numpy as np
import pytest
from scan_files import write_scan_file
from simulated_scans import TOTAL_VARIATION, StandIn, make_scan, reconstructor, settings
from synthetic_scan import OBJECT, Protocol, kspace_of, lines_of, noise_readout, readout

from gadget.errors import FileError, ScanError
from gadget.inspection.content import as_json
from gadget.inspection.inspect_file import Inspector
from gadget.inspection.readouts import plane_of
from gadget.inspection.sampling import ranges_in_words
from gadget.replay import replay
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

PROTOCOL = Protocol(
    limits={"kspace_encoding_step_1": (0, 44, 22), "slice": (0, 1, 0)},
    acceleration=2,
    calibration_mode="embedded",
)


def inspect(path, group=None, **others):
    return Inspector(path).inspect(group, **others)


def accelerated(**fields):
    """Every second line, and calibration lines between them in the middle: 20, 22 and 24 are both."""
    kspace = PROTOCOL.kspace()
    readouts = []
    for line in range(45):
        flags = []
        if 19 <= line <= 25:
            flags = [Flag.IS_PARALLEL_CALIBRATION if line % 2 else Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING]
        elif line % 2:
            continue
        readouts.append(readout(kspace[:, line], line, *flags, scan_counter=line, **fields))
    return readouts


def with_trajectory(acquisition, points):
    header = acquisition.header.copy()
    header["trajectory_dimensions"] = points.shape[1]
    return Acquisition(header, points.astype(np.float32), acquisition.data)


def test_encodings_loops_and_readouts_are_counted(tmp_path):
    readouts = [
        noise_readout(n_samples=100, sample_time_us=7.0),
        *accelerated(slice=0),
        *accelerated(slice=1, acquisition_time_stamp=400, physiology_time_stamp=(0, 9, 0)),
        readout(np.ones((3, 16), complex), 0, Flag.IS_NAVIGATION_DATA),
    ]
    found = inspect(write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), readouts))

    assert found.is_whole
    assert found.faults == ()
    assert found.group == "dataset"
    assert found.n_readouts == len(readouts) == 56
    kinds = {one.kind: (one.n_readouts, one.n_samples, one.n_coils, one.dwell_us) for one in found.readouts}
    assert kinds == {
        "image": (2 * 23, 80, 3, 5.0),
        "calibration-only": (2 * 4, 80, 3, 5.0),
        "noise": (1, 100, 3, 7.0),
        "navigator": (1, 16, 3, 5.0),
    }
    assert found.flags == {
        "IS_NOISE_MEASUREMENT": 1,
        "IS_PARALLEL_CALIBRATION": 8,
        "IS_PARALLEL_CALIBRATION_AND_IMAGING": 6,
        "IS_NAVIGATION_DATA": 1,
    }
    encoding = found.encodings[0]
    assert encoding.encoded_matrix == (80, 45, 1)
    assert encoding.recon_fov_mm == (120.0, 135.0, 5.0)
    assert encoding.recon_pixel_mm == (3.0, 3.0, 5.0)
    assert (encoding.acceleration, encoding.calibration_mode) == ((2, 1), "embedded")
    loops = {loop.name: loop for loop in encoding.loops}
    lines = loops["kspace_encode_step_1"]
    assert (lines.minimum, lines.maximum, lines.n_values, lines.announced.center) == (0, 44, 27, 22)
    assert loops["slice"].n_values == 2
    assert found.times.duration_s == 1.0
    assert found.times.physiology_stamps == (1,)


def test_sampling_shows_lines_by_what_they_are_for(tmp_path):
    found = inspect(write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), accelerated()))

    pattern = found.sampling[0]
    text = pattern.codes[0]
    assert len(text) == 45
    assert text[19:26] == "cbcbcbc"
    assert text[:19] == "#.#.#.#.#.#.#.#.#.#"
    assert text[26:] == "#.#.#.#.#.#.#.#.#.#"
    assert (pattern.n_imaging, pattern.n_calibration, pattern.center_row) == (23, 4, 22)


def test_images_with_other_lines_are_told_apart_and_alike_ones_are_put_together(tmp_path):
    kspace = PROTOCOL.kspace()
    readouts = [
        one
        for repetition in range(3)
        for slice_ in range(2)
        for one in lines_of(kspace, list(range(repetition == 1, 45, 2)), slice=slice_, repetition=repetition)
    ]

    found = inspect(write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), readouts))

    assert [one.images for one in found.sampling] == ["slice 0-1, repetition 0, 2", "slice 0-1, repetition 1"]
    assert [one.n_images for one in found.sampling] == [4, 2]
    assert [one.n_imaging for one in found.sampling] == [23, 22]


def test_rows_follow_the_center_of_the_header(tmp_path):
    """Lines 0 to 29 with centre 10 of 45 rows lie at rows 12 to 41: the lower part was not measured."""
    protocol = Protocol(limits={"kspace_encoding_step_1": (0, 29, 10)})
    kspace = protocol.kspace()
    readouts = [readout(kspace[:, line + 12], line) for line in range(30)]

    found = inspect(write_scan_file(tmp_path / "scan.h5", protocol.xml(), readouts))

    assert found.sampling[0].codes == ("." * 12 + "#" * 30 + "...",)


def test_a_volume_is_shown_by_partitions(tmp_path):
    protocol = Protocol(
        encoded=(20, 9, 5),
        recon=(20, 9, 5),
        encoded_fov=(200.0, 90.0, 25.0),
        recon_fov=(200.0, 90.0, 25.0),
        limits={"kspace_encoding_step_1": (0, 8, 4), "kspace_encoding_step_2": (0, 4, 2)},
    )
    kspace = kspace_of(OBJECT, (20, 9), (200.0, 90.0))
    readouts = [
        readout(kspace[:, line], line, kspace_encode_step_2=partition)
        for partition in range(5)
        for line in range(partition % 2, 9, 2)
    ]

    found = inspect(write_scan_file(tmp_path / "scan.h5", protocol.xml(), readouts))

    assert found.sampling[0].codes == tuple("#.#.#.#.#" if n % 2 == 0 else ".#.#.#.#." for n in range(5))
    assert found.outcome.n_images == 5
    assert found.outcome.images[0].matrix == (20, 9)


def test_what_replay_does_is_what_was_foretold(tmp_path):
    """Counted against a real replay: images, their matrix, and the notes in their meta."""
    path = make_scan(tmp_path / "scan.h5", n_slices=3, n_repetitions=2)
    finished = []
    summary = replay(
        path,
        tmp_path / "out.h5",
        TOTAL_VARIATION,
        reconstructor=reconstructor(StandIn()),
        on_slice=finished.append,
    )

    outcome = inspect(path).outcome

    assert outcome.refusal is None
    assert outcome.n_images == summary.n_images == 6
    for expected, one in zip(outcome.images, finished, strict=True):
        assert expected.label == one.slice.context.label()
        assert expected.notes == one.slice.context.notes
        assert expected.matrix == one.slice.context.recon_matrix[:2]


def test_noise_and_coils_are_measured(tmp_path):
    rng = np.random.default_rng(4)
    noise = 2.0 * (rng.normal(size=(4, 9000)) + 1j * rng.normal(size=(4, 9000)))
    noise[1] = 0.6 * noise[0] + 0.8 * noise[1]
    noise[2], noise[3] = 0.0, 0.5j * noise[0]
    imaging = np.ones((4, 80)) * np.array([3.0, 4.0, 0.0, 1.0])[:, None]
    readouts = [readout(noise, 0, Flag.IS_NOISE_MEASUREMENT, center=0), readout(imaging, 3)]
    found = inspect(write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), readouts))

    assert (found.noise.n_readouts, found.noise.n_samples) == (1, 9000)
    assert found.coils[0].noise_std == pytest.approx(2.0, rel=0.03)
    assert np.array(found.noise.correlation)[0, 1] == pytest.approx(0.6, abs=0.03)
    assert [coil.signal_rms for coil in found.coils] == pytest.approx([3.0, 4.0, 0.0, 1.0])
    assert [coil.note for coil in found.coils] == ["a copy of coil 3", None, "no signal", "a copy of coil 0"]


def test_trajectories_waveforms_and_geometry_are_described(tmp_path):
    points = np.stack([np.linspace(-0.5, 0.25, 80), np.linspace(0.125, 0.5, 80)], axis=1)
    tilt = np.deg2rad(20.0)
    fields = {
        "position": (1.0, 2.0, 3.0),
        "read_dir": (1, 0, 0),
        "phase_dir": (0, np.cos(tilt), np.sin(tilt)),
        "slice_dir": (0, -np.sin(tilt), np.cos(tilt)),
    }
    readouts = [
        with_trajectory(one, points) for one in lines_of(PROTOCOL.kspace(), [0, 1], slice=4, **fields)
    ]
    waveforms = [ismrmrd.Waveform.from_array(np.ones((2, 7), np.uint32), waveform_id=3) for _ in range(2)]
    spiral = Protocol(trajectory="spiral")
    path = write_scan_file(tmp_path / "scan.h5", spiral.xml(), readouts, waveforms=waveforms)

    found = inspect(path)

    assert found.trajectory[0].dimensions == 2
    assert found.trajectory[0].minimum == pytest.approx((-0.5, 0.125))
    assert found.trajectory[0].maximum == pytest.approx((0.25, 0.5))
    wave = found.waveforms[0]
    assert (wave.waveform_id, wave.n_waveforms, wave.n_channels, wave.n_samples) == (3, 2, 2, 14)
    place = found.geometry[0]
    assert (place.slice, place.position_mm, place.plane) == (
        4,
        (1.0, 2.0, 3.0),
        "axial, tilted by 20 degrees",
    )
    assert "2 readout(s) touch 2.9 % of the k-space" in found.outcome.refusal
    assert found.encodings[0].refusal is None


@pytest.mark.parametrize(
    ("directions", "plane"),
    [
        (np.eye(3), "axial"),
        (np.eye(3)[[1, 2, 0]], "sagittal"),
        (np.eye(3)[[0, 2, 1]] * [[1], [1], [-1]], "coronal"),
        (np.zeros((3, 3)), "not given"),
        (np.ones((3, 3)), "directions are not orthonormal"),
        (np.full((3, 3), np.nan), "directions are not finite"),
    ],
)
def test_planes_have_names(directions, plane):
    assert plane_of(directions) == plane


def test_values_are_written_as_ranges():
    assert ranges_in_words([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"


# Faults


def test_a_scan_without_a_header_is_described_by_its_readouts(tmp_path):
    path = write_scan_file(tmp_path / "scan.h5", None, [noise_readout(), *accelerated()])

    found = inspect(path)

    assert found.n_readouts == 28
    assert found.encodings[0].trajectory is None
    assert found.sampling[0].n_imaging == 23
    assert "has no XML header 'dataset/xml'" in found.outcome.refusal
    assert found.faults == (found.outcome.refusal,)
    assert found.is_whole


@pytest.mark.parametrize("xml", ["", "<ismrmrdHeader>", "no XML", PROTOCOL.xml().replace("45", "-3")])
def test_a_header_that_cannot_be_used_is_refused_in_the_words_of_replay(tmp_path, xml):
    path = write_scan_file(tmp_path / "scan.h5", xml, accelerated())

    found = inspect(path)

    assert found.n_readouts == 27
    with pytest.raises(ScanError, match=r"[sS]can header") as refused:
        replay(path, tmp_path / "out.h5", settings())
    assert found.outcome.refusal == str(refused.value)


def test_readouts_that_do_not_fit_their_headers_are_counted_and_the_rest_is_told(tmp_path):
    path = write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), accelerated())
    with h5py.File(path, "a") as file:
        for number in (3, 4, 5, 6, 7):
            row = file["dataset/data"][number]
            row["data"] = row["data"][:17]
            file["dataset/data"][number] = row

    found = inspect(path)

    assert found.n_readouts == 27
    assert found.sampling[0].n_imaging == 23
    assert "Readout 3 of" in found.faults[0]
    assert "has 17 values" in found.faults[0]
    assert found.faults[3] == "... and 2 more readouts that do not fit their headers."
    assert found.outcome.refusal == found.faults[0]


def test_lines_outside_the_matrix_and_numbers_that_are_not_finite_are_told(tmp_path):
    readouts = accelerated()
    readouts[2].data[1, 5] = np.nan
    readouts.append(readout(np.ones((3, 80), complex), 77))
    readouts.append(readout(np.ones((3, 80), complex), 1, encoding_space_ref=3))

    found = inspect(write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), readouts))

    assert found.faults == (
        "Readouts name the encoding(s) 3, but the header has 1, counted from 0.",
        "1 readout of encoding 0 with a line or partition outside the matrix.",
        "1 readout with NaN or infinite numbers.",
    )
    assert found.encodings[0].loops[0].note == "1 value outside the header's limits (77)"
    assert "NaN or infinite" in found.outcome.refusal


def test_images_alone_are_described(tmp_path):
    path = tmp_path / "images.h5"
    with ismrmrd.Dataset(str(path), "dataset") as dataset:
        dataset.write_xml_header(PROTOCOL.xml().encode())
        for _ in range(3):
            dataset.append_image(
                "image_0", ismrmrd.Image.from_array(np.ones((4, 6), np.int16), transpose=False)
            )

    found = inspect(path)

    kinds = {group.name: (group.kind, group.holds) for group in found.groups}
    assert kinds == {
        "dataset": ("header", "XML header, no readouts"),
        "dataset/image_0": ("images", "3 images of 6 x 4 x 1 x 1 (x, y, z, channels), int16"),
    }
    assert found.encodings[0].encoded_matrix == (80, 45, 1)
    assert "It holds images (image_0)" in found.outcome.refusal
    assert found.is_whole


def test_a_file_with_nothing_of_ours_is_described(tmp_path):
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file["kspace/data"] = np.zeros((3, 4), np.float32)
        file.create_group("empty")

    found = inspect(path)

    assert {group.name: group.kind for group in found.groups} == {"kspace": "arrays", "empty": "empty"}
    assert found.group is None
    assert found.outcome.refusal == "The file has no group with readouts or with an XML header."


def test_one_of_several_scans_is_chosen(tmp_path):
    path = write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), [noise_readout()], group="b")
    write_scan_file(path, PROTOCOL.xml(), accelerated(), group="c")

    assert inspect(path).group == "b"
    assert inspect(path, "c").n_readouts == 27
    assert "only noise" in inspect(path).outcome.refusal
    with pytest.raises(FileError, match=r"no group 'd'; it has the scans b, c\. Choose one with --group"):
        inspect(path, "d")


def test_a_file_that_breaks_off_is_described_up_to_there(tmp_path, monkeypatch):
    path = write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), accelerated())
    original = h5py.Dataset.__getitem__

    def failing(dataset, key, *others):
        if isinstance(key, slice) and key.start == 16:
            raise OSError("can't read data")
        return original(dataset, key, *others)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", failing)

    found = inspect(path)

    assert not found.is_whole
    assert found.n_readouts == 16
    assert "the entries from 16 on in 'dataset/data'" in found.faults[0]
    assert found.outcome.refusal == found.faults[0]


def test_counters_too_large_for_any_matrix_take_no_memory(tmp_path):
    readouts = [readout(np.ones((3, 8), complex), 65535, kspace_encode_step_2=65535)]
    path = write_scan_file(tmp_path / "scan.h5", Protocol(trajectory="radial").xml(), readouts)

    found = inspect(path)

    assert found.sampling == ()
    assert found.faults == ("1 readout with counters too large for any matrix, not drawn.",)


def test_patient_data_is_shown_when_asked_for_only(tmp_path):
    path = write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), accelerated())

    assert "Doe" not in json.dumps(as_json(inspect(path)))
    assert "m_17" not in json.dumps(as_json(inspect(path)))
    patient = inspect(path, with_patient=True).patient
    assert patient["subjectInformation"] == {"patientName": "Doe^Jane", "patientID": "4711"}
    assert patient["measurementInformation"]["measurementID"] == "m_17"


def test_the_json_has_stable_keys_and_only_numbers_that_json_knows(tmp_path):
    path = write_scan_file(tmp_path / "scan.h5", PROTOCOL.xml(), accelerated(sample_time_us=np.nan))

    content = json.loads(json.dumps(as_json(inspect(path)), allow_nan=False))

    assert set(content) == {
        *("file", "n_bytes", "groups", "group", "n_readouts", "is_whole", "faults", "system", "encodings"),
        *("readouts", "flags", "sampling", "coils", "noise", "trajectory", "waveforms", "geometry", "times"),
        *("outcome", "patient"),
    }
    assert content["readouts"][0]["dwell_us"] is None
    assert set(content["outcome"]) == {"n_images", "images", "report", "refusal"}
    assert content["encodings"][0]["loops"][0]["announced"] == {"minimum": 0, "maximum": 44, "center": 22}


def test_a_measured_scan_is_described(data_folder):
    found = inspect(data_folder / "kspace" / "skyra_phantom_14coil_r3.h5")

    assert found.n_readouts == 69
    # README of the data: 106 of 144 lines, centre 54, R = 3, the lines between are calibration only
    code = found.sampling[0].codes[0]
    assert code.strip(".").startswith("#..#..#")
    assert code.index("#") == 144 // 2 - 54
    assert code.count("c") == 32
    assert found.coils[0].name == "Body_18:1:B22"
    assert found.noise.dwell_us == (20.0,)
    assert found.geometry[0].plane == "axial"
    assert found.outcome.n_images == 1
    assert found.outcome.images[0].matrix == (192, 144)
