"""Images in .npy and .npz, among them archives of 8-bit square roots."""

import zipfile

import numpy as np
import pytest
import torch
from image_files import all_of, by_sum, known_images

from reconlib.training.images import DataError, ImageSettings, load_images

AS_IS = ImageSettings(scaling="as-is", empty_below=0.0)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2"])
def test_arrays_of_any_float_and_byte_order_are_read(tmp_path, dtype):
    volumes = [known_images(5, seed=i).astype(dtype) for i in (1, 2)]
    for i, volume in enumerate(volumes):
        np.save(tmp_path / f"patient{i}.npy", volume)
    np.testing.assert_allclose(
        all_of(load_images(tmp_path, AS_IS)), by_sum(np.concatenate(volumes)), atol=5e-4
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int64])
def test_integers_are_scaled(tmp_path, dtype):
    volumes = [np.round(known_images(5, seed=i) * 120).astype(dtype) for i in (1, 2)]
    for i, volume in enumerate(volumes):
        np.save(tmp_path / f"patient{i}.npy", volume)
    expected = np.concatenate([v / v.max((1, 2), keepdims=True) for v in volumes])
    np.testing.assert_allclose(
        all_of(load_images(tmp_path, ImageSettings(scaling="maximum"))), by_sum(expected), atol=5e-4
    )


def test_one_image_per_file(tmp_path):
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", known_images(1, seed=i)[0])
    images = load_images(tmp_path)
    assert (images.n_training_subjects, images.n_validation_subjects) == (3, 1)


def test_subjects_of_an_archive_are_not_divided(tmp_path):
    subjects = np.array(["a", "b", "a", "c", "b", "a"])
    stack = known_images(6, seed=1)
    np.savez(tmp_path / "images.npz", images=stack, subject=subjects)
    for name in "abc":
        images = load_images(
            tmp_path / "images.npz", AS_IS.model_copy(update={"validation_subjects": (name,)})
        )
        expected = stack[subjects == name]
        assert (images.n_training_subjects, images.n_validation_subjects) == (2, 1)
        np.testing.assert_allclose(by_sum(images.validation.float().numpy()), by_sum(expected), atol=3e-4)


def test_sources_name_subjects(tmp_path):
    source = [
        "ds1001/sub-01_T1w.nii.gz:7",
        "ds1001/sub-01_T2w.nii.gz:3",
        "ds1002/sub-01.nii:0",
        "other/patient3/x.nii:1",
    ]
    np.savez(tmp_path / "images.npz", known_images(4), source=source)
    images = load_images(tmp_path / "images.npz")
    assert images.n_training_subjects + images.n_validation_subjects == 3


def test_the_eight_bit_root_is_undone_with_a_dither_of_half_a_step(tmp_path):
    rng = np.random.default_rng(1)
    stored = rng.integers(0, 256, (6, 40, 30)).astype(np.uint8)
    stored[0] = 0
    marks = np.array([0, 0, 0, 0, 1, 1], bool)
    np.savez(tmp_path / "roots.npz", image_sqrt_u8=stored, validation=marks)
    images = load_images(tmp_path / "roots.npz", AS_IS)

    assert images.training.shape == (3, 40, 30)  # the empty one is left out
    assert "left out: 1 empty images" in images.summary
    root = 255 * np.sqrt(images.training.numpy().astype(np.float64))
    difference = root - stored[1:4]
    assert np.abs(difference).max() < 0.5 + 0.1  # 0.1: float16 at 255
    inside = difference[(stored[1:4] > 20) & (stored[1:4] < 255)]
    assert inside.std() == pytest.approx(np.sqrt(1 / 12), rel=0.03)  # uniform
    assert inside.mean() == pytest.approx(0, abs=0.03)


def test_reading_is_repeatable_and_the_dither_follows_the_seed(tmp_path):
    stored = np.random.default_rng(1).integers(1, 256, (6, 12, 10)).astype(np.uint8)
    np.savez(tmp_path / "roots.npz", image_sqrt_u8=stored, validation=[0, 0, 0, 1, 1, 0])
    one, two = (load_images(tmp_path / "roots.npz") for _ in range(2))
    assert torch.equal(one.training, two.training)
    assert torch.equal(one.validation, two.validation)
    other = load_images(tmp_path / "roots.npz", ImageSettings(seed=1))
    assert not torch.equal(one.validation, other.validation)


def test_the_archives_own_marks_are_followed_unless_told_otherwise(tmp_path):
    stack, subjects = known_images(6), ["a", "a", "b", "b", "c", "c"]
    np.savez(tmp_path / "images.npz", images=stack, subject=subjects, validation=[0, 0, 1, 1, 1, 1])
    images = load_images(tmp_path / "images.npz", AS_IS)
    np.testing.assert_allclose(images.validation.float().numpy(), stack[2:], atol=3e-4)
    drawn = load_images(tmp_path / "images.npz", ImageSettings(own_validation=False))
    assert len(drawn.validation) == 2


def test_marks_that_divide_a_subject_are_refused(tmp_path):
    np.savez(tmp_path / "images.npz", images=known_images(4), subject=[1, 1, 2, 2], validation=[0, 1, 0, 1])
    with pytest.raises(DataError, match=r"'validation' divides the subject '1'"):
        load_images(tmp_path / "images.npz")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (known_images(4).astype(np.complex64), r"x\.npy: the images are complex; .* Store numpy\.abs"),
        (known_images(4) > 0.2, r"x\.npy: the images are boolean \(a mask\?\)"),
        (np.array([["a"] * 9] * 9), r"x\.npy: the images are of the type <U1"),
        (known_images(4) - 0.1, r"x\.npy, image 0 has negative values \(down to -0\.09.* negatives: zero"),
        (np.where(known_images(4) > 0.49, np.nan, 0.3), r"x\.npy, image 0 has \d+ NaN and 0 infinite"),
        (
            known_images(4).astype(np.float64) * 1e39,
            r"x\.npy, image 0 has 0 NaN and \d+ infinite \(or beyond 3e38\)",
        ),
        (known_images(4)[None], r"x\.npy: the array has shape \(1, 4, 12, 10\)"),
        (np.zeros(100), r"x\.npy: the array has shape \(100,\)"),
        (np.ones((100, 3)), r"x\.npy has images of 100 x 3 pixels \(y, x\), too small"),
        (np.array([{"no": "pickles"}] * 9), r"x\.npy cannot be read as \.npy or \.npz"),
        (known_images(4) * 2000, r"x\.npy, image 0 has values up to .* scaling: as-is needs images scaled"),
    ],
    ids=["complex", "mask", "text", "negative", "nan", "huge", "4-d", "1-d", "table", "objects", "unscaled"],
)
def test_what_is_no_stack_of_magnitudes_is_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        load_images(tmp_path, AS_IS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"a": known_images(4), "b": known_images(4)},
            r"x\.npz has a, b; training needs the images as 'images'",
        ),
        ({"image_sqrt_u8": known_images(4)}, r"x\.npz: image_sqrt_u8 is float32; it must be uint8"),
        (
            {"images": known_images(4), "validation": [0, 1]},
            r"validation has shape \(2,\); 4 images need one entry",
        ),
        (
            {"images": known_images(4), "validation": [0, 1, 2, 0]},
            r"validation is int64 with the values 0, 1, 2",
        ),
        (
            {"images": known_images(4), "validation": [1] * 4},
            r"All images are of one subject|marks every image",
        ),
        (
            {"images": known_images(4)},
            r"All images are of one subject.*\(arrays: an array 'subject' or 'validation'",
        ),
    ],
    ids=["which", "root", "short", "values", "all validate", "one subject"],
)
def test_archives_that_do_not_say_enough_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load_images(tmp_path)


def test_a_member_that_is_no_array_of_numpy_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("images", "text")
    with pytest.raises(DataError, match=r"x\.npz: images is no array of numpy"):
        load_images(tmp_path)


def test_a_damaged_header_is_named(tmp_path):
    np.save(tmp_path / "x.npy", known_images(4))
    data = (tmp_path / "x.npy").read_bytes().replace(b"}", b"k")  # numpy's own parser stumbles over this
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(DataError, match=r"x\.npy cannot be read as \.npy or \.npz"):
        load_images(tmp_path)


def test_a_damaged_archive_is_named(tmp_path):
    np.savez(tmp_path / "x.npz", images=known_images(4))
    data = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"x\.npz cannot be read as \.npy or \.npz: .*half copied"):
        load_images(tmp_path)


@pytest.mark.slow
def test_all_of_the_measured_archive_loads(data_folder):
    path = data_folder / "prior" / "brain_magnitude_256.npz"
    images = load_images(path)
    assert images.training.shape == (1671, 256, 256)
    assert images.validation.shape == (180, 256, 256)
    with np.load(path) as archive:
        first = (archive["image_sqrt_u8"][0] / 255) ** 2
    # half a step of the root is at most a step in the image, and the percentile moves with it
    assert np.abs(images.training[0].float().numpy() - first).max() < 2 / 255


def test_the_measured_archive_loads(data_folder):
    path = data_folder / "prior" / "brain_magnitude_256.npz"
    images = load_images(path, ImageSettings(central_count=1))  # of each subject and source
    with np.load(path) as archive:
        sources = [name.rpartition(":")[0] for name in archive["source"]]
        n_validation = len({name for name, mark in zip(sources, archive["validation"], strict=True) if mark})
    assert images.training.shape == (len(set(sources)) - n_validation, 256, 256)
    assert images.validation.shape == (n_validation, 256, 256)
    # 7 patients of openms, 14 subjects of ds011, 72 of ds002748: README of the data
    assert images.n_training_subjects + images.n_validation_subjects == 7 + 14 + 72
    assert 1.0 <= float(images.training.max()) < 1.1
