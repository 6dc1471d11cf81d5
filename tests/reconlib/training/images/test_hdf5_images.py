"""fastMRI files and ISMRMRD image files, the latter written by the ismrmrd package."""

import h5py
import ismrmrd
import numpy as np
import pytest
from image_files import all_of, by_sum, known_images, write_fastmri, write_ismrmrd

from reconlib.training.images import DataError, ImageSettings, load_images

AS_IS = ImageSettings(scaling="as-is", empty_below=0.0)


def test_a_fastmri_file_gives_its_central_slices(tmp_path):
    volumes = [known_images(7, seed=i) for i in (1, 2)]
    for i, volume in enumerate(volumes):
        write_fastmri(tmp_path / f"file{i}.h5", volume, x=10, y=12, fov_x=8, fov_y=6)
    images = load_images(tmp_path, AS_IS.model_copy(update={"central_count": 3}))
    np.testing.assert_allclose(all_of(images), by_sum(np.concatenate([v[2:5] for v in volumes])), atol=3e-4)
    assert images.pixel_spacing_mm == pytest.approx((0.5, 0.8))  # 6 mm in 12 pixels, 8 mm in 10
    assert "2 files (fastMRI .h5)" in images.summary

    half = load_images(tmp_path, AS_IS.model_copy(update={"central_fraction": 0.3}))
    assert len(half.training) == len(half.validation) == 2  # 0.3 x 7, rounded


def test_fastmri_files_of_one_patient_stay_together(tmp_path):
    for i, patient in enumerate(["x", "y", "x"]):
        write_fastmri(tmp_path / f"file{i}.h5", known_images(4, seed=i), patient=patient)
    for seed in range(3):
        images = load_images(tmp_path, ImageSettings(seed=seed, validation_fraction=0.5))
        assert (images.n_training_subjects, images.n_validation_subjects) == (1, 1)
        assert {len(images.training), len(images.validation)} == {4, 8}


def test_the_spacing_is_unknown_where_images_are_cropped_further_than_the_header_says(tmp_path):
    for i in range(2):
        write_fastmri(tmp_path / f"file{i}.h5", known_images(4, seed=i), x=20, y=24, fov_x=8, fov_y=6)
    images = load_images(tmp_path)
    assert images.pixel_spacing_mm is None
    assert "pixel spacing: not stated" in images.summary


@pytest.mark.parametrize("fov", [0, -3, "nan", "inf"])
def test_a_field_of_view_of_no_length_leaves_the_spacing_unknown(tmp_path, fov):
    for i in range(2):
        write_fastmri(tmp_path / f"file{i}.h5", known_images(4, seed=i), x=10, y=12, fov_x=8, fov_y=fov)
    assert load_images(tmp_path).pixel_spacing_mm is None


def test_kspace_without_images_is_refused(tmp_path):
    with h5py.File(tmp_path / "test_set.h5", "w") as file:
        file["kspace"] = np.zeros((2, 3, 8, 8), np.complex64)
    with pytest.raises(DataError, match=r"test_set\.h5 has k-space without 'reconstruction_rss'"):
        load_images(tmp_path)


def test_complex_ismrmrd_images_become_magnitudes_in_the_order_of_their_slices(tmp_path):
    volumes = [known_images(4, 11, 13, seed=i) for i in (1, 2)]
    phase = np.exp(1j * np.linspace(0, 6, 13))
    for i, volume in enumerate(volumes):
        write_ismrmrd(
            tmp_path / f"scan{i}.h5",
            list((volume[[2, 0, 3, 1]] * phase).astype(np.complex64)),
            slices=[2, 0, 3, 1],
            image_type=ismrmrd.IMTYPE_COMPLEX,
            field_of_view=(26.0, 33.0, 5.0),
            read_dir=(0, 1, 0),
            phase_dir=(0, 0, -1),
        )
    images = load_images(tmp_path, AS_IS.model_copy(update={"validation_subjects": ("scan1",)}))
    np.testing.assert_allclose(images.training.float().numpy(), volumes[0], atol=3e-4)
    assert images.pixel_spacing_mm == pytest.approx((2.0, 3.0))
    assert images.orientation == "sagittal (y to inferior, x to posterior)"


def test_integer_ismrmrd_images_of_several_contrasts_are_separate_volumes(tmp_path):
    for i in (1, 2):
        dim, bright = (known_images(3, seed=10 * i + k) for k in (0, 1))
        path = tmp_path / f"scan{i}.h5"
        write_ismrmrd(path, list((dim * 100).astype(np.uint16)), contrast=0, image_type=1)
        write_ismrmrd(path, list((bright * 30000).astype(np.uint16)), contrast=1, image_type=1)
    images = load_images(tmp_path)  # the dim ones would count as empty beside the bright ones
    assert len(images.training) == len(images.validation) == 6


def test_three_dimensional_ismrmrd_images_are_slices(tmp_path):
    volumes = [known_images(5, seed=i) for i in (1, 2)]
    for i, volume in enumerate(volumes):
        write_ismrmrd(tmp_path / f"scan{i}.mrd", [volume])
    np.testing.assert_allclose(
        all_of(load_images(tmp_path, AS_IS)), by_sum(np.concatenate(volumes)), atol=3e-4
    )


def test_ismrmrd_patients_stay_together_and_are_hashed(tmp_path):
    for i, patient in enumerate(["SECRET1", "SECRET2", "SECRET1"]):
        write_ismrmrd(tmp_path / f"scan{i}.h5", list(known_images(4, seed=i)), patient=patient)
    images = load_images(tmp_path, ImageSettings(validation_fraction=0.5))
    assert (images.n_training_subjects, images.n_validation_subjects) == (1, 1)
    assert {len(images.training), len(images.validation)} == {4, 8}
    assert "SECRET" not in repr(images)


def test_of_several_ismrmrd_groups_one_is_named(tmp_path):
    for i in (1, 2):
        path = tmp_path / f"scan{i}.h5"
        write_ismrmrd(path, list(known_images(3, seed=i)), group="image_1")
        write_ismrmrd(path, list(known_images(2, seed=10 + i)), group="image_2")
    with pytest.raises(
        DataError, match=r"scan1\.h5 has several image groups: dataset/image_1, dataset/image_2"
    ):
        load_images(tmp_path)
    assert len(load_images(tmp_path, ImageSettings(series="image_2")).training) == 2
    with pytest.raises(DataError, match=r"scan1\.h5 has no image group 'image_7'"):
        load_images(tmp_path, ImageSettings(series="image_7"))


def test_ismrmrd_phase_groups_are_left_out(tmp_path):
    for i in (1, 2):
        path = tmp_path / f"scan{i}.h5"
        write_ismrmrd(
            path, list(known_images(3, seed=i)), group="image_1", image_type=ismrmrd.IMTYPE_MAGNITUDE
        )
        write_ismrmrd(path, list(known_images(3, seed=i)), group="image_2", image_type=ismrmrd.IMTYPE_PHASE)
    images = load_images(tmp_path)
    assert len(images.training) == 3
    assert "left out: 2 image groups with a phase (first: scan1.h5 (dataset/image_2))" in images.summary
    with pytest.raises(DataError, match=r"scan1\.h5 \(dataset/image_2\): its images are a phase"):
        load_images(tmp_path, ImageSettings(series="image_2"))


def test_uncombined_coils_are_refused(tmp_path):
    write_ismrmrd(tmp_path / "scan.h5", [known_images(4, seed=1)[:, None]])
    with pytest.raises(DataError, match=r"scan\.h5 \(dataset/image_1\) has 4 channels"):
        load_images(tmp_path)


def test_raw_data_is_refused(tmp_path):
    with ismrmrd.Dataset(str(tmp_path / "raw.h5")) as file:
        file.write_xml_header(b"<ismrmrdHeader/>")
        file.append_acquisition(ismrmrd.Acquisition.from_array(np.ones((2, 8), np.complex64)))
    with pytest.raises(DataError, match=r"raw\.h5 has raw data without images \(reconstruct it first\)"):
        load_images(tmp_path)


def test_other_hdf5_files_are_refused_with_what_they_hold(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["temperature"] = 3
    with pytest.raises(DataError, match=r"other\.h5 has neither .* but temperature"):
        load_images(tmp_path)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_a_half_copied_hdf5_file_is_named(tmp_path, share):
    path = write_fastmri(tmp_path / "file.h5", known_images(4, 40, 40))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError, match=r"file\.h5 cannot be read as HDF5: .*half copied"):
        load_images(tmp_path)
