"""A point source of known patient position in an oblique scan, from readouts to its pixel's position.

Its k-space is written down in closed form. The patient position of pixel (y, x) follows from the image header
alone: position + (x - nx // 2) * fov_x / nx * read_dir + (y - ny // 2) * fov_y / ny * phase_dir.
"""

import ismrmrd
import numpy as np
import pytest
from simulated_scans import settings
from synthetic_scan import Protocol, Spot, kspace_of, noise_readout, readout

from gadget.pipeline import reconstruct_stream
from gadget.wire.headers import WAVEFORM_HEADER, AcquisitionFlag
from gadget.wire.messages import Image, ScanHeader, Waveform

POSITION = np.array([12.5, -31.0, 47.25])
_ROUGH = np.random.default_rng(11).normal(size=(3, 3))
READ, PHASE, SLICE = np.linalg.qr(_ROUGH)[0].T
"""Three unit vectors at right angles, none along an axis of the patient."""

CASES = {
    # encoded matrix, its field of view, recon matrix, its field of view (x, y)
    "as measured": ((40, 36), (120, 108), (40, 36), (120, 108)),
    "odd": ((41, 35), (123, 105), (41, 35), (123, 105)),
    "readout oversampled": ((80, 36), (240, 108), (40, 36), (120, 108)),
    "readout oversampled, odd": ((78, 37), (234, 111), (39, 37), (117, 111)),
    "phase oversampled": ((40, 54), (120, 162), (40, 36), (120, 108)),
    "both, odd": ((82, 51), (246, 153), (41, 35), (123, 105)),
    "interpolated": ((40, 36), (120, 108), (64, 72), (120, 108)),
    "interpolated to odd": ((40, 36), (120, 108), (63, 55), (120, 108)),
    "fewer pixels": ((64, 60), (128, 120), (40, 36), (128, 120)),
    "all of it": ((80, 54), (240, 162), (64, 61), (120, 108)),
}
POINTS = [(17.0, -23.5), (-31.6, 30.1), (0.0, 0.0)]
"""Along read and phase direction, in mm."""


def point_scan(case, points=POINTS, **odd_fields):
    """One slice for each point; every readout's header says which row it is."""
    (nx, ny), (fov_x, fov_y), (rx, ry), (rfov_x, rfov_y) = case
    protocol = Protocol(
        encoded=(nx, ny, 1),
        encoded_fov=(fov_x, fov_y, 5.0),
        recon=(rx, ry, 1),
        recon_fov=(rfov_x, rfov_y, 5.0),
        limits={"kspace_encoding_step_1": (0, ny - 1, ny // 2), "slice": (0, len(points) - 1, 0)},
    )
    messages = [ScanHeader(protocol.xml()), noise_readout(0.005)]
    pixel = max(fov_x / nx, fov_y / ny)
    for slice_, (x, y) in enumerate(points):
        kspace = kspace_of((Spot(x=x, y=y, width=1.2 * pixel),), (nx, ny), (fov_x, fov_y))
        for row in np.random.default_rng(slice_).permutation(ny):
            away = 0.0 if row == ny // 2 else 100.0 + row
            fields = {
                "slice": slice_,
                "position": POSITION + away + slice_ * 4 * SLICE,
                "read_dir": READ,
                "phase_dir": PHASE,
                "slice_dir": SLICE,
                "patient_table_position": (row, 0.5, -row),
                "acquisition_time_stamp": 4_000_000_000 + row,
                "physiology_time_stamp": (row, 2 * row, 4_000_000_000),
                "user_int": [row - 30, *range(7)],
                "user_float": [row / 8, *range(7)],
                "measurement_uid": 3_000_000_000,
                "contrast": 65535,
                "repetition": 65535,
            }
            messages.append(readout(kspace[:, row], row, scan_counter=row, **{**fields, **odd_fields}))
    return messages


def images_of(messages, **changes):
    return list(reconstruct_stream(messages, settings(solver__iterations=4, **changes)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_pixel_of_a_point_lies_where_the_point_lies_in_the_patient(case):
    images = images_of(point_scan(case))

    assert [int(image.header["slice"]) for image in images] == [0, 1, 2]
    for image, (x, y) in zip(images, POINTS, strict=True):
        header = image.header
        point = POSITION + int(header["slice"]) * 4 * SLICE + x * READ + y * PHASE
        n_x, n_y, n_z = (int(n) for n in header["matrix_size"])
        assert (n_x, n_y, n_z) == (*case[2], 1)
        assert image.data.shape == (1, 1, n_y, n_x)
        row, column = np.unravel_index(image.data[0, 0].argmax(), (n_y, n_x))
        pixel_x, pixel_y = header["field_of_view"][:2] / np.array([n_x, n_y])
        place = (
            header["position"]
            + (column - n_x // 2) * pixel_x * header["read_dir"]
            + (row - n_y // 2) * pixel_y * header["phase_dir"]
        )
        assert abs((place - point) @ READ) <= 0.501 * pixel_x
        assert abs((place - point) @ PHASE) <= 0.501 * pixel_y
        assert abs((place - point) @ SLICE) < 1e-3


def test_header_values_come_from_the_readout_through_the_centre_of_kspace():
    case = CASES["both, odd"]
    row = case[0][1] // 2
    images = images_of(point_scan(case))
    assert len(images) == 3
    for number, image in enumerate(images, start=1):
        header = image.header
        assert header["image_index"] == number
        np.testing.assert_allclose(header["position"], POSITION + (number - 1) * 4 * SLICE, rtol=1e-6)
        for name, direction in (("read_dir", READ), ("phase_dir", PHASE), ("slice_dir", SLICE)):
            assert header[name].tolist() == direction.astype(np.float32).tolist()
        assert header["patient_table_position"].tolist() == [row, 0.5, -row]
        assert header["acquisition_time_stamp"] == 4_000_000_000 + row
        assert header["physiology_time_stamp"].tolist() == [row, 2 * row, 4_000_000_000]
        assert header["user_int"].tolist() == [row - 30, *range(7)]
        assert header["user_float"].tolist() == [row / 8, *range(7)]
        assert header["measurement_uid"] == 3_000_000_000
        assert (header["contrast"], header["repetition"]) == (65535, 65535)
        assert header["field_of_view"].tolist() == [*case[3], 5.0]
        meta = ismrmrd.Meta.deserialize(image.meta)
        np.testing.assert_allclose([float(v) for v in meta["ImageRowDir"]], READ, rtol=1e-6)
        np.testing.assert_allclose([float(v) for v in meta["ImageColumnDir"]], PHASE, rtol=1e-6)
        assert "EBM_DirectionWarnings" not in meta


def test_directions_that_place_nothing_warn_and_pass_unchanged(caplog):
    messages = point_scan(CASES["odd"], POINTS[:2], read_dir=1.25 * READ, phase_dir=SLICE)
    images = images_of(messages)

    for image in images:
        assert image.header["read_dir"].tolist() == (1.25 * READ).astype(np.float32).tolist()
        assert image.header["phase_dir"].tolist() == SLICE.astype(np.float32).tolist()
        warnings = list(ismrmrd.Meta.deserialize(image.meta)["EBM_DirectionWarnings"])
        assert [warning.partition(":")[0] for warning in warnings] == [
            "read_dir has the length 1.25 instead of 1",
            "phase_dir and slice_dir make an angle of 0.0 degrees instead of 90",
        ]
    assert caplog.text.count("read_dir has the length 1.25 instead of 1") == 1


def test_a_scan_that_its_prior_was_not_made_for_warns_in_log_meta_and_comment(caplog, tmp_path):
    folder = tmp_path / "planes"
    folder.mkdir()
    (folder / "card.yaml").write_text(
        "name: planes\nversion: '1.0'\ndescription: TV of axial slices\n"
        "architecture: {kind: total-variation, epsilon: 0.001}\ntemperature: 0.1\n"
        "input: {values: signed, orientation: axial slices, pixel_spacing_mm: [0.4, 1.2]}\n"
        "prior_weight: {rule: fit, slope: 0.1}\nanatomy: any\nlicence: MIT\n"
    )
    images = images_of(
        point_scan(
            CASES["odd"],
            POINTS[:2],
            slice_dir=(0.0, 1.0, 0.0),
            read_dir=(1.0, 0.0, 0.0),
            phase_dir=(0.0, 0.0, 1.0),
        ),
        prior=str(folder),
    )

    for image in images:
        meta = ismrmrd.Meta.deserialize(image.meta)
        assert list(meta["EBM_PriorMismatch"]) == [
            "the slice is coronal, but the prior planes 1.0 was made for axial ones",
            "the pixels are 3 x 3 mm, but the prior planes 1.0 was made for 0.4 to 1.2 mm",
        ]
        assert meta["ImageComments"] == (
            "gadgetron-ebm: WARNING, the prior does not know coronal slices; "
            "WARNING, the prior does not know pixels of 3 x 3 mm"
        )
    assert caplog.text.count("the slice is coronal, but the prior") == 1


def test_the_comments_of_uncertainty_images_warn_of_an_unsuitable_prior_too():
    axes = {"read_dir": (1.0, 0.0, 0.0), "phase_dir": (0.0, 0.0, 1.0), "slice_dir": (0.0, 1.0, 0.0)}
    images = images_of(
        point_scan(CASES["odd"], POINTS[:1], **axes),
        prior="brain-local",
        posterior__enabled=True,
        posterior__draws=2,
        posterior__warmup=0,
    )
    assert [int(image.header["image_series_index"]) for image in images] == [1, 2, 3]
    for image in images:
        comment = ismrmrd.Meta.deserialize(image.meta)["ImageComments"]
        assert "WARNING, the prior does not know coronal slices" in comment


def test_waveforms_pass_through_as_they_came():
    header = np.zeros((), WAVEFORM_HEADER)
    header["waveform_id"], header["time_stamp"], header["scan_counter"] = 3, 4_000_000_000, 17
    sent = [
        Waveform(header=header[()], data=np.arange(12, dtype=np.uint32).reshape(2, 6) + number)
        for number in range(3)
    ]
    messages = point_scan(CASES["odd"], POINTS[:1])
    answers = list(reconstruct_stream([*messages[:9], *sent, *messages[9:]], settings(solver__iterations=1)))
    came = [answer for answer in answers if isinstance(answer, Waveform)]
    assert len([answer for answer in answers if isinstance(answer, Image)]) == 1
    assert [one.header.tobytes() for one in came] == [one.header.tobytes() for one in sent]
    assert all((one.data == other.data).all() for one, other in zip(came, sent, strict=True))


def test_the_flag_that_ends_a_slice_is_not_needed_for_its_header():
    """Readouts in any order, and the last one flagged though it lies at the edge of k-space."""
    messages = point_scan(CASES["odd"], POINTS[:1])
    last = messages[-1]
    last.header["flags"] = AcquisitionFlag.LAST_IN_SLICE.bit
    (image,) = images_of(messages)
    assert image.header["acquisition_time_stamp"] == 4_000_000_000 + CASES["odd"][0][1] // 2
