"""DICOM folders written by pydicom: order, scale, privacy, and what is left out or refused."""

import logging

import numpy as np
import pydicom
import pytest
from image_files import AXIAL, all_of, by_sum, dicom, write_dicom
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import MPEG2MPML, DeflatedExplicitVRLittleEndian, JPEGLSLossless, RLELossless

from reconlib.training.images import DataError, ImageSettings, load_images

AS_IS = ImageSettings(scaling="as-is", empty_below=0.0)


def pixels(seed: int, shape=(12, 10)):
    return np.random.default_rng(seed).integers(100, 4000, shape).astype(np.uint16)


def write_series(folder, n=5, *, patient="A", first=0, names=None, **attributes):
    """Write n slices from foot to head, in files whose names and instance numbers run the other way."""
    for i in range(n):
        image = dicom(
            pixels(first + i),
            patient=patient,
            series=f"1.{first}",
            ImagePositionPatient=[0.0, 0.0, 4.0 * i],
            ImageOrientationPatient=list(AXIAL),
            PixelSpacing=[0.8, 0.7],
            InstanceNumber=n - i,
            **attributes,
        )
        write_dicom(folder / (names or "IM{:04d}").format(n - i), image)


def test_slices_are_sorted_by_position_and_scaled_by_slope_and_intercept(tmp_path):
    write_series(tmp_path / "a", patient="A", RescaleSlope=1 / 4096, RescaleIntercept=0.25)
    write_series(tmp_path / "b", patient="B", first=10, RescaleSlope=1 / 4096, RescaleIntercept=0.25)
    images = load_images(tmp_path, AS_IS.model_copy(update={"validation_subjects": ("b",)}))

    expected = np.stack([pixels(i) for i in range(5)]) / 4096 + 0.25
    np.testing.assert_allclose(images.training.float().numpy(), expected, atol=1e-3)
    assert images.pixel_spacing_mm == pytest.approx((0.7, 0.8))
    assert images.orientation == "axial (y to posterior, x to left)"
    assert "orientation: axial" in images.summary


def test_central_slices_count_positions_not_echoes(tmp_path):
    for patient in ("A", "B"):
        for place in range(4):
            for echo in range(2):
                image = dicom(
                    (100 * place + 10 * echo + 1 + (ord(patient) - 64) * np.eye(12, 10)).astype(np.uint16),
                    patient=patient,
                    ImagePositionPatient=[0, 0, 3 * place],
                    ImageOrientationPatient=list(AXIAL),
                    InstanceNumber=1 + 4 * echo + place,
                    RescaleSlope=0.001,
                    RescaleIntercept=0,
                    SeriesInstanceUID=f"1.{ord(patient)}",
                )
                write_dicom(tmp_path / patient / f"{echo}{place}.dcm", image)
    images = load_images(tmp_path, ImageSettings(scaling="as-is", central_fraction=0.5, empty_below=0.0))
    lowest = images.training.float().amin((1, 2)).numpy()
    np.testing.assert_allclose(lowest, [0.101, 0.111, 0.201, 0.211], atol=1e-3)


def multi_frame(n: int, patient: str, seed: int) -> Dataset:
    """Make an image whose frames are stored from head to foot, each with its own slope."""
    image = dicom(pixels(seed, (n, 12, 10)), patient=patient, series=f"1.{seed}")
    shared, orientation, measures = Dataset(), Dataset(), Dataset()
    orientation.ImageOrientationPatient = list(AXIAL)
    measures.PixelSpacing = [0.5, 0.5]
    shared.PlaneOrientationSequence, shared.PixelMeasuresSequence = (
        Sequence([orientation]),
        Sequence([measures]),
    )
    image.SharedFunctionalGroupsSequence = Sequence([shared])
    frames = []
    for i in range(n):
        frame, position, values = Dataset(), Dataset(), Dataset()
        position.ImagePositionPatient = [0, 0, -5 * i]
        values.RescaleSlope, values.RescaleIntercept = (i + 1) / 40000, 0
        frame.PlanePositionSequence = Sequence([position])
        frame.PixelValueTransformationSequence = Sequence([values])
        frames.append(frame)
    image.PerFrameFunctionalGroupsSequence = Sequence(frames)
    return image


def test_frames_of_a_multi_frame_image_have_their_own_place_and_slope(tmp_path):
    write_dicom(tmp_path / "a.dcm", multi_frame(3, "A", 1))
    write_dicom(tmp_path / "b.dcm", multi_frame(3, "B", 2))
    images = load_images(tmp_path, AS_IS.model_copy(update={"validation_subjects": ("b.dcm",)}))
    stored = pixels(1, (3, 12, 10)) * np.array([1, 2, 3])[:, None, None] / 40000
    np.testing.assert_allclose(images.training.float().numpy(), stored[::-1], atol=1e-3)
    assert images.pixel_spacing_mm == (0.5, 0.5)


def test_phase_frames_among_magnitudes_are_left_out(tmp_path):
    for i, patient in enumerate("AB"):
        image = multi_frame(4, patient, i)
        for k, frame in enumerate(image.PerFrameFunctionalGroupsSequence):
            kind = Dataset()
            kind.ComplexImageComponent = "PHASE" if k % 2 else "MAGNITUDE"
            frame.MRImageFrameTypeSequence = Sequence([kind])
        write_dicom(tmp_path / f"{patient}.dcm", image)
    images = load_images(tmp_path)
    assert len(images.training) == len(images.validation) == 2
    assert "left out: 4 phase, real or imaginary images (first: A.dcm, frame 2)" in images.summary


def test_frames_without_places_keep_their_order(tmp_path):
    for i, patient in enumerate("AB"):
        image = dicom(pixels(i, (3, 12, 10)), patient=patient, series=f"1.{i}", RescaleSlope=0.0002)
        image.RescaleIntercept = 0
        write_dicom(tmp_path / f"{patient}.dcm", image)
    images = load_images(tmp_path, AS_IS.model_copy(update={"validation_subjects": ("B",)}))
    np.testing.assert_allclose(images.training.float().numpy(), pixels(0, (3, 12, 10)) * 0.0002, atol=5e-4)


def test_images_of_one_patient_stay_together_whatever_their_folders(tmp_path):
    for i, patient in enumerate(["A", "B", "A", "C", "A "]):
        write_series(tmp_path / f"f{i}", patient=patient, first=10 * i)
    for seed in range(4):
        images = load_images(tmp_path, ImageSettings(seed=seed))
        assert (images.n_training_subjects, images.n_validation_subjects) == (2, 1)
        assert len(images.validation) in (5, 15)  # B or C alone, or all that A has


def test_an_emptied_patient_identifier_leaves_the_study(tmp_path):
    for i in range(3):
        write_series(tmp_path / f"f{i}", patient="", first=10 * i)
    images = load_images(tmp_path)
    assert (images.n_training_subjects, images.n_validation_subjects) == (2, 1)


def test_nothing_of_the_patient_gets_out(tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    for i in (1, 2):
        write_series(tmp_path / f"f{i}", patient=f"SECRET{i}", first=10 * i)
    images = load_images(tmp_path)
    with pytest.raises(DataError) as unknown:
        load_images(tmp_path, ImageSettings(validation_subjects=("nobody",)))
    said = f"{images} {unknown.value} {caplog.text} {''.join(capsys.readouterr())}"
    assert "SECRET" not in said
    assert "Doe" not in said
    with pytest.raises(DataError, match="no subject, file or folder with images has that name"):
        load_images(tmp_path, ImageSettings(validation_subjects=("SECRET1",)))


def test_what_is_no_image_to_learn_from_is_left_out_and_counted(tmp_path):
    write_series(tmp_path / "a", patient="A")
    write_series(tmp_path / "b", patient="B", first=10)
    for name, image_type in {
        "localizer": ["ORIGINAL", "PRIMARY", "LOCALIZER"],
        "phase": ["ORIGINAL", "PRIMARY", "P", "ND"],
        "mosaic": ["ORIGINAL", "PRIMARY", "M", "ND", "MOSAIC"],
    }.items():
        write_dicom(tmp_path / name, dicom(pixels(99, (30, 31)), ImageType=image_type))
    report = dicom(pixels(99))
    del report.Rows, report.Columns, report.PixelData
    write_dicom(tmp_path / "report.dcm", report)
    (tmp_path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (tmp_path / "DICOMDIR").write_bytes(bytes(128) + b"DICM")
    (tmp_path / "README.txt").write_text("read me")
    images = load_images(tmp_path)

    assert len(images.training) + len(images.validation) == 10
    for line in (
        "left out: 1 localizer images (first: localizer)",
        "left out: 1 phase, real or imaginary images (first: phase)",
        "left out: 1 mosaics (many slices in one image) (first: mosaic)",
        "left out: 1 DICOM objects without pixels (first: report.dcm)",
        "left out: 2 files that are not of this format (first: DICOMDIR)",
    ):
        assert line in images.summary


def test_a_localizer_that_does_not_say_so_is_named_by_its_size(tmp_path):
    write_series(tmp_path / "a", patient="A")
    write_series(tmp_path / "b", patient="B", first=10)
    write_dicom(tmp_path / "b" / "other", dicom(pixels(99, (30, 31)), patient="B"))
    with pytest.raises(
        DataError,
        match=r"2 sizes .*12 x 10 \(10 images: a/IM0001, .* and 7 more\); 30 x 31 \(1 image: b/other\)",
    ):
        load_images(tmp_path)
    images = load_images(tmp_path, ImageSettings(matrix=(12, 10)))
    assert len(images.training) + len(images.validation) == 10
    assert "left out: 1 images of 30 x 31, by matrix (first: b/other)" in images.summary


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            {"PhotometricInterpretation": "RGB", "SamplesPerPixel": 3, "PlanarConfiguration": 0},
            r"colour .*RGB",
        ),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, r"colour image \(PALETTE COLOR\)"),
        ({"PhotometricInterpretation": "MONOCHROME1"}, r"stored inverted \(MONOCHROME1"),
        ({"Modality": "SEG"}, r"a segmentation"),
        ({"RescaleSlope": 1, "RescaleIntercept": -1024}, r"has negative values \(down to -9"),
    ],
    ids=["rgb", "palette", "inverted", "segmentation", "negative"],
)
def test_what_is_no_magnitude_is_refused_by_name(tmp_path, attributes, message):
    write_series(tmp_path, 2, patient="A")
    write_dicom(tmp_path / "odd.dcm", dicom(pixels(50), series="1.99", patient="B", **attributes))
    with pytest.raises(DataError, match=rf"odd\.dcm.*{message}"):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("syntax", "message"),
    [
        (
            JPEGLSLossless,
            r"JPEG-LS Lossless.*needs another package.*(pylibjpeg|pyjpegls).*Install one of them",
        ),
        (MPEG2MPML, r"MPEG2 Main Profile.*pydicom cannot decode. Decompress it"),
    ],
    ids=["jpeg-ls", "mpeg2"],
)
def test_a_compression_that_cannot_be_undone_is_named(tmp_path, syntax, message):
    write_series(tmp_path, 2, patient="A")
    image = dicom(pixels(50), patient="B")
    image.file_meta.TransferSyntaxUID = syntax
    image.PixelData = pydicom.encaps.encapsulate([b"\xff\xd8no picture at all."])
    image["PixelData"].VR = "OB"
    write_dicom(tmp_path / "packed.dcm", image)
    with pytest.raises(DataError, match=rf"packed\.dcm is compressed as {message}"):
        load_images(tmp_path)


@pytest.mark.parametrize("syntax", [RLELossless, DeflatedExplicitVRLittleEndian], ids=["rle", "deflated"])
def test_a_compression_that_pydicom_undoes_changes_nothing(tmp_path, syntax):
    for i, patient in enumerate("AB"):
        image = dicom(pixels(i), patient=patient, series=f"1.{i}", RescaleSlope=0.001, RescaleIntercept=0)
        if syntax == RLELossless:
            image.compress(RLELossless)
        else:
            image.file_meta.TransferSyntaxUID = syntax
        write_dicom(tmp_path / f"{patient}.dcm", image)
    expected = np.stack([pixels(i) for i in range(2)]) * 0.001
    np.testing.assert_allclose(all_of(load_images(tmp_path, AS_IS)), by_sum(expected), atol=2e-3)


def test_half_a_file_is_named(tmp_path):
    write_series(tmp_path, 2, patient="A")
    whole = write_dicom(tmp_path / "half.dcm", dicom(pixels(50), patient="B")).read_bytes()
    (tmp_path / "half.dcm").write_bytes(whole[:-60])
    with pytest.raises(DataError, match=r"half\.dcm cannot be read as DICOM: .*half copied"):
        load_images(tmp_path)


def test_files_as_subjects_would_part_the_slices_of_a_series(tmp_path):
    write_series(tmp_path, 2)
    with pytest.raises(DataError, match="subject: file would divide the slices of a DICOM series"):
        load_images(tmp_path, ImageSettings(subject="file"))


def test_progress_reaches_its_end(tmp_path):
    write_series(tmp_path / "a", 3, patient="A")
    write_series(tmp_path / "b", 3, patient="B", first=10)
    write_dicom(tmp_path / "p", dicom(pixels(99), ImageType=["ORIGINAL", "PRIMARY", "P"]))
    seen = []
    load_images(tmp_path, on_file=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (14, 14)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
