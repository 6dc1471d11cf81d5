"""NIfTI files written by nibabel: slices, directions, scale factors, and what is refused."""

import nibabel
import numpy as np
import pytest
import torch
from image_files import all_of, by_sum, known_images, write_nifti

from reconlib.training.images import DataError, ImageSettings, load_images

AS_IS = ImageSettings(scaling="as-is", empty_below=0.0)


def two_subjects(folder, array, **more):
    """Write an array for sub-01 and, turned round, for sub-02."""
    write_nifti(folder / "sub-01.nii", array, **more)
    write_nifti(folder / "sub-02.nii.gz", array[::-1, ::-1, ::-1].copy(), **more)
    return folder


def first_image(folder, settings):
    """Return the first image of sub-01."""
    chosen = settings.model_copy(update={"validation_subjects": ("sub-02",)})
    return load_images(folder, chosen).training[0].float().numpy()


def marked_head(affine):
    """Make a volume that is bright at its right, front and top end, along the patient's axes of ``affine``.

    It is 9 pixels from left to right, 11 from back to front, 13 from bottom to top.
    """
    to_right = np.linspace(0, 0.4, 9)[:, None, None]
    to_front = np.linspace(0, 0.2, 11)[None, :, None]
    to_top = np.linspace(0, 0.1, 13)[None, None, :]
    ras = nibabel.Nifti1Image((0.1 + to_right + to_front + to_top).astype(np.float32), np.eye(4))
    target = nibabel.orientations.axcodes2ornt(nibabel.aff2axcodes(affine))
    return ras.as_reoriented(nibabel.orientations.ornt_transform(np.c_[range(3), [1, 1, 1]], target))


@pytest.mark.parametrize("codes", ["RAS", "LPS", "PIL", "SRA"])
@pytest.mark.parametrize(
    ("plane", "shape"), [("axial", (11, 9)), ("coronal", (13, 9)), ("sagittal", (13, 11))]
)
def test_a_plane_looks_as_radiologists_see_it_whatever_the_order_of_the_axes(tmp_path, codes, plane, shape):
    affine = nibabel.orientations.inv_ornt_aff(nibabel.orientations.axcodes2ornt(tuple(codes)), (9, 11, 13))
    head = marked_head(affine)
    nibabel.save(head, tmp_path / "sub-01.nii")
    other = nibabel.Nifti1Image(np.sqrt(head.get_fdata(dtype=np.float32)), head.affine)
    nibabel.save(other, tmp_path / "sub-02.nii")
    image = first_image(tmp_path, AS_IS.model_copy(update={"slice_axis": plane}))

    assert image.shape == shape
    # x from the right to the left (sagittal: front to back), y from the front (coronal, sagittal: top)
    assert image[0].mean() > image[-1].mean()
    assert image[:, 0].mean() > image[:, -1].mean()


def test_orientation_and_pixel_spacing_are_stated(tmp_path):
    two_subjects(tmp_path, known_images(12, 12, 10), affine=np.diag([0.9, 1.1, 3.0, 1.0]))
    stored = load_images(tmp_path)
    assert stored.orientation == "axial (y to anterior, x to right)"  # NIfTI's axes lead there
    assert stored.pixel_spacing_mm == pytest.approx((0.9, 1.1))
    coronal = load_images(tmp_path, ImageSettings(slice_axis="coronal"))
    assert coronal.orientation == "coronal (y to inferior, x to left)"
    assert coronal.pixel_spacing_mm == pytest.approx((0.9, 3.0))


@pytest.mark.parametrize(
    ("axis", "order"), [("first", (0, 2, 1)), ("second", (1, 2, 0)), ("third", (2, 1, 0))]
)
def test_slices_along_a_stored_axis_are_as_stored(tmp_path, axis, order):
    array = known_images(9, 11, 13)
    two_subjects(tmp_path, array)
    image = first_image(tmp_path, AS_IS.model_copy(update={"slice_axis": axis}))
    np.testing.assert_allclose(image, array.transpose(order)[0], atol=3e-4)


def test_scale_factors_and_byte_order_are_those_of_nibabel(tmp_path):
    for i in (1, 2):
        image = nibabel.Nifti1Image(
            np.random.default_rng(i).integers(0, 1000, (10, 12, 4)).astype(">i2"), np.eye(4)
        )
        image.header.set_slope_inter(0.002, 0.25)
        nibabel.save(image, tmp_path / f"sub-0{i}.nii")
    expected = np.concatenate(
        [nibabel.load(tmp_path / f"sub-0{i}.nii").get_fdata().transpose(2, 1, 0) for i in (1, 2)]
    )
    assert expected.min() >= 0.25
    np.testing.assert_allclose(all_of(load_images(tmp_path, AS_IS)), by_sum(expected), atol=1e-3)


def test_big_endian_float64_is_read(tmp_path):
    array = known_images(10, 12, 4, seed=3).astype(">f8")
    for i, values in enumerate((array, array[::-1]), 1):
        image = nibabel.Nifti1Image(values, np.eye(4), header=nibabel.Nifti1Header(endianness=">"))
        nibabel.save(image, tmp_path / f"sub-0{i}.nii")
    np.testing.assert_allclose(first_image(tmp_path, AS_IS), array[:, :, 0].T, atol=3e-4)


def test_four_dimensions_give_the_slices_of_all_volumes_or_of_the_first(tmp_path):
    array = known_images(10, 12, 3 * 5, seed=5).reshape(10, 12, 3, 5)
    two_subjects(tmp_path, array)
    every = load_images(tmp_path, AS_IS)
    assert len(every.training) == len(every.validation) == 3 * 5
    first = load_images(tmp_path, ImageSettings(volumes="first"))
    assert len(first.training) == len(first.validation) == 3
    assert "left out: 8 volumes after the first" in first.summary


@pytest.mark.parametrize("dtype", ["<c8", [("R", "u1"), ("G", "u1"), ("B", "u1")]], ids=["complex", "colour"])
def test_numbers_that_are_no_magnitudes_are_refused(tmp_path, dtype):
    two_subjects(tmp_path, np.zeros((10, 12, 4), dtype))
    with pytest.raises(DataError, match=r"sub-01\.nii holds (complex64|colours); training needs magnitude"):
        load_images(tmp_path)


def test_a_mask_is_refused(tmp_path):
    mask = np.zeros((10, 12, 4), np.uint8)
    mask[3:7, 3:7] = 1
    two_subjects(tmp_path, mask)
    with pytest.raises(DataError, match=r"sub-01\.nii has only the two values 0 and 1: it is a mask"):
        load_images(tmp_path)


def test_nan_background_is_refused_or_zero_as_chosen(tmp_path):
    array = known_images(10, 12, 4)
    array[:2] = np.nan
    two_subjects(tmp_path, array)
    with pytest.raises(
        DataError, match=r"sub-01\.nii, image 0 has 24 NaN and 0 infinite.* of 120.*nan: zero"
    ):
        load_images(tmp_path)
    image = first_image(tmp_path, AS_IS.model_copy(update={"nan": "zero"}))
    np.testing.assert_allclose(image, np.nan_to_num(array[:, :, 0].T), atol=3e-4)


def test_a_plane_needs_a_file_that_says_how_it_lies(tmp_path):
    for i in (1, 2):
        image = nibabel.Nifti1Image(known_images(10, 12, 9, seed=i), None)
        nibabel.save(image, tmp_path / f"sub-0{i}.nii")
    assert load_images(tmp_path).orientation is None
    with pytest.raises(
        DataError, match=r"sub-01\.nii does not say how it lies .* Use first, second or third"
    ):
        load_images(tmp_path, ImageSettings(slice_axis="axial"))


@pytest.mark.parametrize("name", ["sub-03.nii", "sub-03.nii.gz"])
def test_a_half_copied_file_is_named(tmp_path, name):
    two_subjects(tmp_path, known_images(10, 12, 9))
    whole = write_nifti(tmp_path / name, known_images(10, 12, 9, seed=7)).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=rf"{name} cannot be read as NIfTI: .*half copied"):
        load_images(tmp_path)


def test_lengths_in_micrometres_become_millimetres(tmp_path):
    for i in (1, 2):
        image = nibabel.Nifti1Image(known_images(10, 12, 4, seed=i), np.diag([500, 700, 3000, 1]))
        image.header.set_xyzt_units("micron")
        nibabel.save(image, tmp_path / f"sub-0{i}.nii")
    assert load_images(tmp_path).pixel_spacing_mm == pytest.approx((0.5, 0.7))


def test_images_come_as_float16(tmp_path):
    images = load_images(two_subjects(tmp_path, known_images(10, 12, 9)))
    assert images.training.dtype == images.validation.dtype == torch.float16
    assert images.training.shape[1:] == (12, 10)
