"""Which files are read, who is a subject, which images stay and in which scale."""

import os

import numpy as np
import pytest
import torch
from image_files import all_of, by_sum, dicom, known_images, write_dicom, write_fastmri, write_nifti
from pydantic import ValidationError

from reconlib.training.images import DataError, ImageSettings, load_images
from reconlib.training.images.subjects import subject_of_identifier, subject_of_path

AS_IS = ImageSettings(scaling="as-is", empty_below=0.0)


def save(path, *, n=3, y=12, x=10, seed=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, known_images(n, y, x, seed=abs(hash(path.as_posix())) % 2**31 if seed is None else seed))


# --- files


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match=r"gone does not exist\. Give a file or a folder"):
        load_images(tmp_path / "gone")
    with pytest.raises(DataError, match=r"has no files\. Training needs"):
        load_images(tmp_path)
    (tmp_path / ".DS_Store").write_text("hidden")
    (tmp_path / ".hidden").mkdir()
    save(tmp_path / ".hidden" / "a.npy")
    with pytest.raises(DataError, match=r"has no files\. Training needs"):
        load_images(tmp_path)


def test_a_folder_of_other_things_is_described(tmp_path):
    for name in ("a.png", "b.png", "c.mat", "README"):
        (tmp_path / name).write_text("x")
    with pytest.raises(
        DataError, match=r"no image .*, but 2 x \.png, 1 x no suffix, 1 x \.mat \(first: README\)"
    ):
        load_images(tmp_path)


def test_mixed_formats_are_refused_and_one_can_be_chosen(tmp_path):
    for i in (1, 2):
        write_fastmri(tmp_path / f"f{i}.h5", known_images(3, seed=i))
        write_nifti(tmp_path / f"n{i}.nii", known_images(10, 12, 5, seed=i))
    with pytest.raises(
        DataError,
        match=r"mixes formats: fastMRI \.h5 \(f1\.h5, f2\.h5\); NIfTI \(n1\.nii, n2\.nii\)\. "
        r"Choose one by format: fastmri or nifti",
    ):
        load_images(tmp_path)
    images = load_images(tmp_path, ImageSettings(format="nifti"))
    assert len(images.training) == 5
    assert "left out: 2 files that are not of this format (first: f1.h5)" in images.summary
    assert len(load_images(tmp_path, ImageSettings(files="f*")).training) == 3
    assert len(load_images(tmp_path, ImageSettings(exclude=("*.nii",))).training) == 3
    with pytest.raises(DataError, match="4 files, none of which files and exclude let through"):
        load_images(tmp_path, ImageSettings(files="*.dcm"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.h5", b"", r"a\.h5 cannot be read as fastMRI \.h5: it is empty \(0 bytes\)"),
        ("a.dcm", b"x" * 500, r"a\.dcm cannot be read as DICOM: .*no 'DICM' at byte 128"),
        ("a.npy", b"x" * 500, r"a\.npy cannot be read as \.npy or \.npz: it is named like one"),
        ("a.nii.gz", b"x" * 500, r"a\.nii\.gz cannot be read as NIfTI"),
        ("a.nii", b"", r"a\.nii cannot be read as NIfTI"),
        ("a.npz", b"PK\3\4" + b"x" * 500, r"a\.npz cannot be read as \.npy or \.npz"),
    ],
)
def test_a_file_with_the_wrong_content_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_images(tmp_path)


def test_links_are_followed_once(tmp_path):
    """Else a subject that is linked twice could train and validate."""
    elsewhere = tmp_path / "store"
    folder = tmp_path / "data"
    save(elsewhere / "one.npy")
    save(folder / "two.npy")
    (folder / "one.npy").symlink_to(elsewhere / "one.npy")
    (folder / "one_again.npy").symlink_to(elsewhere / "one.npy")
    (folder / "loop").symlink_to(folder)
    (folder / "store").symlink_to(elsewhere)
    os.mkfifo(folder / "pipe.npy")  # opening it would wait for ever
    images = load_images(folder)
    assert (len(images.training), len(images.validation)) == (3, 3)
    assert "left out: 2 second names of one file (first: one_again.npy)" in images.summary


def test_a_link_to_nowhere_is_named(tmp_path):
    save(tmp_path / "a.npy")
    (tmp_path / "b.npy").symlink_to(tmp_path / "not fetched")
    with pytest.raises(DataError, match=r"b\.npy is a link that leads nowhere; fetch its content"):
        load_images(tmp_path)


def test_dicom_needs_no_suffix_and_names_of_formats_no_case(tmp_path):
    pixels = np.random.default_rng(0).integers(1, 999, (2, 12, 10)).astype(np.uint16)
    write_dicom(tmp_path / "1" / "IM1", dicom(pixels[0], patient="A"))
    write_dicom(tmp_path / "2" / "IM1", dicom(pixels[1], patient="B"))
    assert len(load_images(tmp_path).training) == 1
    folder = tmp_path / "upper"
    write_nifti(folder / "a.nii.gz", known_images(10, 12, 3)).rename(folder / "A.NII.GZ")
    with pytest.raises(DataError, match="of one subject"):
        load_images(folder)


# --- subjects


@pytest.mark.parametrize(
    ("path", "subject"),
    [
        ("sub-01/anat/sub-01_T1w.nii.gz", "sub-01"),
        ("sub-01/ses-2/anat/sub-01_ses-2_T2w.nii.gz", "sub-01"),
        ("T1/sub-01.nii.gz", "sub-01"),
        ("sub-control07_T1w.nii", "sub-control07"),
        ("ds000011/sub-01/x.nii", "ds000011/sub-01"),
        ("openms/raw/patient01/study1_FLAIR.nii.gz", "patient01"),
        ("Patient 12/scan.nii", "patient 12"),
        ("case_7.nii", "case_7"),
        ("subjects/a.nii", "subjects/a.nii"),
        ("patches64/b.nii", "patches64/b.nii"),
        ("knees/file1000001.h5", "knees/file1000001.h5"),
    ],
)
def test_a_path_names_its_subject(path, subject):
    assert subject_of_path(path) == subject


def test_an_identifier_names_a_subject_without_showing_itself():
    assert "1234" not in subject_of_identifier("DOE1234")
    assert "DOE" not in subject_of_identifier("DOE1234")
    assert subject_of_identifier("DOE1234 ") == subject_of_identifier("DOE1234")
    assert subject_of_identifier("DOE1235") != subject_of_identifier("DOE1234")


def test_two_contrasts_of_a_subject_stay_together(tmp_path):
    for i in range(6):
        for contrast in ("T1", "T2"):
            save(tmp_path / contrast / f"sub-{i:02}_{contrast}.npy")
    for seed in range(4):
        images = load_images(tmp_path, ImageSettings(seed=seed, validation_fraction=0.3))
        assert (images.n_training_subjects, images.n_validation_subjects) == (4, 2)
        assert len(images.validation) == 2 * 2 * 3


def test_the_draw_follows_its_seed(tmp_path):
    for i in range(20):
        save(tmp_path / f"{i}.npy", n=1, seed=i)
    drawn = [load_images(tmp_path, ImageSettings(seed=seed, validation_fraction=0.25)) for seed in (0, 0, 1)]
    assert [len(images.validation) for images in drawn] == [5, 5, 5]
    assert torch.equal(drawn[0].validation, drawn[1].validation)
    assert not torch.equal(drawn[0].validation, drawn[2].validation)


@pytest.mark.parametrize(
    ("settings", "n_subjects"),
    [
        ({"subject": "auto"}, 6),  # nothing in the paths says who
        ({"subject": "folder"}, 3),
        ({"subject_pattern": r"IXI(\d+)"}, 2),
        ({"subject_pattern": r"T\d"}, 3),
        ({"subject": "file"}, 6),
    ],
)
def test_subjects_can_be_told_apart_in_other_ways(tmp_path, settings, n_subjects):
    for contrast in ("T1", "T2", "T3"):
        for i in (1, 2):
            save(tmp_path / contrast / f"IXI{i}-{contrast}.npy")
    images = load_images(tmp_path, ImageSettings(**settings))
    assert images.n_training_subjects + images.n_validation_subjects == n_subjects
    assert ("6 files count as a subject each" in images.summary) == (settings == {"subject": "auto"})


def test_subjects_that_cannot_be_told_are_named(tmp_path):
    save(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"a\.npy: subject_pattern '\(\\\\d\+\)' finds no subject"):
        load_images(tmp_path, ImageSettings(subject_pattern=r"(\d+)"))
    with pytest.raises(DataError, match=r"a\.npy lies in no folder below"):
        load_images(tmp_path, ImageSettings(subject="folder"))


@pytest.mark.parametrize("name", ["sub-02", "site/sub-02_T1w.npy", "sub-02_T1w.npy", "sub-02_T1w"])
def test_validation_subjects_are_named_by_subject_or_file(tmp_path, name):
    for i in (1, 2, 3):
        save(tmp_path / "site" / f"sub-{i:02}_T1w.npy")
    images = load_images(tmp_path, AS_IS.model_copy(update={"validation_subjects": (name,)}))
    expected = np.load(tmp_path / "site" / "sub-02_T1w.npy")
    np.testing.assert_allclose(images.validation.float().numpy(), expected, atol=3e-4)


def test_validation_subjects_are_named_by_folder(tmp_path):
    for i in (1, 2, 3, 4):
        save(tmp_path / ("held out" if i > 2 else "train") / f"{i}.npy")
    images = load_images(tmp_path, ImageSettings(validation_subjects=("held out/",)))
    assert (images.n_training_subjects, images.n_validation_subjects) == (2, 2)
    with pytest.raises(DataError, match="validation_subjects names all subjects"):
        load_images(tmp_path, ImageSettings(validation_subjects=("held out", "train")))
    with pytest.raises(DataError, match=r"names 'test', but no subject, .* 4 subjects; .* 'held out/3\.npy'"):
        load_images(tmp_path, ImageSettings(validation_subjects=("test",)))


def test_a_copy_under_another_name_does_not_validate_what_it_trained(tmp_path):
    save(tmp_path / "a.npy", seed=1)
    save(tmp_path / "b.npy", seed=2)
    save(tmp_path / "copy_of_a.npy", seed=1)
    images = load_images(tmp_path)
    assert images.n_training_subjects + images.n_validation_subjects == 2
    assert (
        "left out: 3 copies of an image of another subject (first: copy_of_a.npy, image 0)" in images.summary
    )


# --- images


def test_mixed_sizes_are_listed_with_their_files(tmp_path):
    for i in range(5):
        save(tmp_path / f"a{i}.npy")
    save(tmp_path / "b.npy", y=16, x=9, n=1)
    with pytest.raises(
        DataError,
        match=r"2 sizes \(y, x\): 12 x 10 \(15 images: a0\.npy, a1\.npy, a2\.npy and 2 more\); "
        r"16 x 9 \(1 image: b\.npy\)\. .* by matrix, e\.g\. \[12, 10\]",
    ):
        load_images(tmp_path)
    assert len(load_images(tmp_path, ImageSettings(matrix=(12, 10))).training) == 12
    with pytest.raises(DataError, match=r"no image to learn from: left out: 15 images of 12 x 10, by matrix"):
        load_images(tmp_path, ImageSettings(matrix=(64, 64)))


def test_each_image_is_scaled_by_its_percentile_or_its_maximum(tmp_path):
    volumes = [known_images(3, seed=i) * np.array([1, 20, 9], np.float32)[:, None, None] for i in (1, 2)]
    for i, volume in enumerate(volumes):
        np.save(tmp_path / f"{i}.npy", volume)
    stack = np.concatenate(volumes)
    settings = ImageSettings(percentile=90.0, empty_below=0.0)
    expected = stack / np.quantile(stack, 0.9, axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(all_of(load_images(tmp_path, settings)), by_sum(expected), rtol=1e-3)
    maximum = all_of(load_images(tmp_path, ImageSettings(scaling="maximum", empty_below=0.0)))
    np.testing.assert_allclose(maximum, by_sum(stack / stack.max((1, 2), keepdims=True)), rtol=1e-3)
    np.testing.assert_array_equal(maximum.max((1, 2)), 1)


def test_a_volume_can_share_its_scale(tmp_path):
    volumes = [known_images(3, seed=i) * np.array([1, 20, 9], np.float32)[:, None, None] for i in (1, 2)]
    for i, volume in enumerate(volumes):
        np.save(tmp_path / f"{i}.npy", volume)
    settings = ImageSettings(scaling="maximum", scale_per="volume", empty_below=0.0)
    expected = np.concatenate([volume / volume.max() for volume in volumes])
    np.testing.assert_allclose(all_of(load_images(tmp_path, settings)), by_sum(expected), rtol=1e-3)


def test_images_without_signal_are_left_out_and_counted(tmp_path):
    for i in (1, 2):
        volume = known_images(6, seed=i)
        volume[0] = 0  # nothing
        volume[1] = 0.7  # nothing to see
        volume[2] *= 0.05  # noise of the air
        volume[3] *= 0.2  # the top of the head
        np.save(tmp_path / f"{i}.npy", volume)
    images = load_images(tmp_path)
    assert len(images.training) == len(images.validation) == 3
    assert "left out: 6 empty images (no signal, or nearly none) (first: 1.npy, image 0)" in images.summary
    assert len(load_images(tmp_path, ImageSettings(empty_below=0.0)).training) == 4


def test_only_empty_images_are_an_error(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 12, 10)))
    with pytest.raises(DataError, match="no image to learn from: left out: 3 empty images"):
        load_images(tmp_path)


def test_an_image_with_a_pixel_of_absurd_brightness_is_left_out(tmp_path):
    for i in (1, 2):
        volume = known_images(3, 60, 60, seed=i)
        volume[1, 5, 5] = 1e6
        np.save(tmp_path / f"{i}.npy", volume)
    images = load_images(tmp_path)
    assert len(images.training) == 2
    assert "left out: 2 images with a pixel over 100 times their percentile" in images.summary


def test_ringing_below_zero_is_zero_where_chosen(tmp_path):
    for i in (1, 2):
        np.save(tmp_path / f"{i}.npy", known_images(3, seed=i) - 0.1)
    images = load_images(tmp_path, AS_IS.model_copy(update={"negatives": "zero"}))
    expected = np.concatenate([np.maximum(known_images(3, seed=i) - 0.1, 0) for i in (1, 2)])
    np.testing.assert_allclose(all_of(images), by_sum(expected), atol=3e-4)


def test_progress_counts_files(tmp_path):
    for i in range(3):
        save(tmp_path / f"{i}.npy")
    seen = []
    load_images(tmp_path, on_file=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_words_for_the_card_name_no_file(tmp_path):
    for i in (1, 2):
        save(tmp_path / f"janedoe{i}.npy", seed=i)
    assert load_images(tmp_path).source == (
        "6 images of 2 subjects (.npy or .npz), 99.95th percentile of each image = 1"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subject_pattern": "(IXI"}, "is not a regular expression"),
        ({"scaling": "as-is", "scale_per": "volume"}, "scale_per: volume has no meaning with scaling: as-is"),
        ({"validation_fraction": 1.0}, "less than 1"),
        ({"central_fraction": 0.0}, "greater than 0"),
        ({"formt": "nifti"}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        ImageSettings(**settings)
