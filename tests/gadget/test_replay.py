"""Recorded scans in, image files out: whole files or none, and inputs left as they were."""

import hashlib

import h5py
import ismrmrd
import numpy as np
import pytest
from scripted_sampling import ScriptedSampling, ramp
from simulated_scans import MATRIX, StandIn, make_scan, reconstructor, settings

from gadget.errors import FileError, ScanError
from gadget.pipeline import reconstruct_stream
from gadget.reconstructor import ImageKind
from gadget.replay import replay
from gadget.scan_file import read_scan
from reconlib.joint.outcome import Outcome


def run(scan, out, joint=None, **others):
    chosen = others.pop("chosen", None) or settings()
    return replay(scan, out, chosen, reconstructor=reconstructor(joint or StandIn()), **others)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fail(_result):
    raise RuntimeError("broken")


def test_the_images_are_those_of_the_pipeline(tmp_path):
    scan, out = make_scan(tmp_path / "scan.h5", n_slices=3), tmp_path / "out.h5"

    summary = run(scan, out)

    expected = list(reconstruct_stream(read_scan(scan), settings(), reconstructor=reconstructor(StandIn())))
    assert summary.n_images == 3
    with ismrmrd.Dataset(str(out), mode="r") as dataset:
        assert set(dataset.list()) == {"xml", "image_1"}
        assert dataset.number_of_images("image_1") == 3
        for index, image in enumerate(expected):
            read = dataset.read_image("image_1", index)
            np.testing.assert_array_equal(read.data, image.data)
            assert (read.slice, read.image_index) == (index, index + 1)
            assert read.meta["EBM_Image"] == "RECONSTRUCTED"
            assert list(read.field_of_view)[:2] == [200.0, 260.0]


def test_the_header_of_the_scan_is_kept(tmp_path):
    scan, out = make_scan(tmp_path / "scan.h5"), tmp_path / "out.h5"

    run(scan, out)

    with h5py.File(scan, "r") as before, h5py.File(out, "r") as after:
        assert after["dataset/xml"][0] == before["dataset/xml"][0]


def test_the_scan_is_not_changed_by_a_byte(tmp_path):
    scan = make_scan(tmp_path / "scan.h5")
    before = hashlib.sha256(scan.read_bytes()).hexdigest()

    run(scan, tmp_path / "out.h5")

    assert hashlib.sha256(scan.read_bytes()).hexdigest() == before


def test_another_group_is_read_and_the_group_dataset_written(tmp_path):
    scan, out = make_scan(tmp_path / "scan.h5", group="mine"), tmp_path / "out.h5"

    run(scan, out, group="mine")

    with h5py.File(out, "r") as file:
        assert set(file) == {"dataset"}


def test_coil_maps_are_kept_for_each_image(tmp_path):
    scan, coils = make_scan(tmp_path / "scan.h5", n_slices=2), tmp_path / "coils.h5"

    run(scan, tmp_path / "out.h5", coils=coils)

    with ismrmrd.Dataset(str(coils), mode="r") as dataset:
        assert dataset.number_of_arrays("coils") == 2
        np.testing.assert_array_equal(dataset.read_array("coils", 1), np.full((3, *MATRIX), 2j, np.complex64))
    with h5py.File(coils, "r") as file:
        assert list(file["dataset/coils_counters"]["slice"]) == [0, 1]
        assert "xml" in file["dataset"]


def test_a_fallback_has_no_coil_maps(tmp_path):
    scan, coils = make_scan(tmp_path / "scan.h5", n_slices=2), tmp_path / "coils.h5"

    summary = run(scan, tmp_path / "out.h5", StandIn(outcomes=[Outcome.NOT_FINITE]), coils=coils)

    assert summary.counts[ImageKind.FALLBACK] == 1
    with h5py.File(coils, "r") as file:
        assert list(file["dataset/coils_counters"]["image_index"]) == [2]


def test_pictures_are_written_for_each_image(tmp_path):
    scan, png = make_scan(tmp_path / "scan.h5", n_slices=2), tmp_path / "deep" / "png"

    run(scan, tmp_path / "out.h5", png=png)

    assert names(png) == ["image_1_0001_slice_0.png", "image_1_0002_slice_1.png"]
    assert (png / "image_1_0001_slice_0.png").read_bytes().startswith(b"\x89PNG")


def test_uncertainty_has_a_picture_of_its_own_for_each_slice(tmp_path):
    scan, png = make_scan(tmp_path / "scan.h5", n_slices=2), tmp_path / "png"
    uncertain = settings(posterior__enabled=True)
    made = reconstructor(StandIn(outcomes=[Outcome.NOT_FINITE]), sampling=ScriptedSampling())

    replay(scan, tmp_path / "out.h5", uncertain, reconstructor=made, png=png)

    assert names(png) == [
        "image_1_0001_slice_0.png",
        "image_1_0002_slice_1.png",
        "posterior_0002_slice_1.png",
    ]
    with pytest.raises(FileError, match=r"image_1_0001_slice_0\.png exists"):
        replay(scan, tmp_path / "other.h5", uncertain, reconstructor=made, png=png)


def test_the_file_gets_three_series_of_the_same_slices(tmp_path):
    scan, out = make_scan(tmp_path / "scan.h5", n_slices=3), tmp_path / "out.h5"
    made = reconstructor(StandIn(misbehave=ramp), sampling=ScriptedSampling())

    summary = replay(scan, out, settings(posterior__enabled=True), reconstructor=made)

    assert (summary.n_images, summary.n_sampled, summary.labelled) == (3, 3, [])
    with ismrmrd.Dataset(str(out), mode="r") as dataset:
        assert set(dataset.list()) == {"xml", "image_1", "image_2", "image_3"}
        for index in range(3):
            image, mean, std = (dataset.read_image(f"image_{series}", index) for series in (1, 2, 3))
            assert {(one.slice, one.image_index) for one in (image, mean, std)} == {(index, index + 1)}
            np.testing.assert_allclose(mean.data, image.data, rtol=1e-6)
            np.testing.assert_allclose(std.data, image.data / 10, rtol=1e-6)


def test_a_folder_of_pictures_that_cannot_be_made_is_named(tmp_path):
    scan = make_scan(tmp_path / "scan.h5")

    with pytest.raises(FileError, match=r"Cannot make the folder .*scan\.h5 for pictures"):
        run(scan, tmp_path / "out.h5", png=scan)

    assert names(tmp_path) == ["scan.h5"]


def test_readouts_and_slices_are_reported(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=2, n_noise_readouts=5)
    readouts, slices = [], []

    run(scan, tmp_path / "out.h5", on_readout=lambda: readouts.append(1), on_slice=slices.append)

    assert len(readouts) == 5 + 2 * MATRIX[0]
    assert len(slices) == 2


def test_a_failing_reconstruction_still_gives_a_file(tmp_path):
    scan, out = make_scan(tmp_path / "scan.h5", n_slices=2), tmp_path / "out.h5"

    summary = run(scan, out, StandIn(misbehave=fail))

    assert len(summary.labelled) == 2
    with ismrmrd.Dataset(str(out), mode="r") as dataset:
        assert dataset.read_image("image_1", 1).meta["EBM_Image"] == "FALLBACK"


def test_a_scan_of_noise_alone_is_refused_and_leaves_nothing(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_noise_readouts=4)
    with h5py.File(scan, "a") as file:
        file["dataset/data"].resize(4, axis=0)

    with pytest.raises(ScanError, match="gave no image: it has no imaging readouts"):
        run(scan, tmp_path / "out.h5", coils=tmp_path / "coils.h5")

    assert names(tmp_path) == ["scan.h5"]


def test_a_fault_in_the_middle_of_a_scan_leaves_nothing(tmp_path):
    scan = make_scan(tmp_path / "scan.h5", n_slices=3)
    with h5py.File(scan, "a") as file:
        row = file["dataset/data"][-1]
        row["data"][3] = np.nan
        file["dataset/data"][-1] = row

    with pytest.raises(ScanError, match="NaN or infinite"):
        run(scan, tmp_path / "out.h5", coils=tmp_path / "coils.h5")

    assert names(tmp_path) == ["scan.h5"]


def test_an_existing_file_is_kept_without_overwrite(tmp_path):
    scan, out = make_scan(tmp_path / "scan.h5"), tmp_path / "out.h5"
    out.write_text("precious")

    with pytest.raises(FileError, match=r"out\.h5 exists"):
        run(scan, out)

    assert out.read_text() == "precious"
    run(scan, out, overwrite=True)
    assert h5py.is_hdf5(out)


@pytest.mark.parametrize("target", ["scan.h5", "./scan.h5", "link.h5"])
def test_the_scan_is_never_overwritten(tmp_path, target):
    scan = make_scan(tmp_path / "scan.h5")
    (tmp_path / "link.h5").symlink_to(scan)

    with pytest.raises(FileError, match="is the scan as well; choose another name"):
        run(scan, tmp_path / target, overwrite=True)


def test_images_and_coils_need_files_of_their_own(tmp_path):
    scan, out = make_scan(tmp_path / "scan.h5"), tmp_path / "out.h5"

    with pytest.raises(FileError, match="is another output as well"):
        run(scan, out, coils=out)


def test_a_slice_without_any_signal_gives_an_image_of_zeros(tmp_path):
    """With the real reconstruction: one all-zero slice beside one that is not, alone and in one batch."""
    scan = make_scan(tmp_path / "scan.h5", n_slices=2)
    with h5py.File(scan, "a") as file:
        for number, row in enumerate(file["dataset/data"]):
            if row["head"]["idx"]["slice"] == 1:
                row["data"][:] = 0
                file["dataset/data"][number] = row

    for batch_slices in (1, 2):
        out = tmp_path / f"out{batch_slices}.h5"
        summary = replay(scan, out, settings(solver__iterations=2, batch_slices=batch_slices))

        assert summary.labelled == ["slice 1: image of zeros: the k-space is all zero"]
        with ismrmrd.Dataset(str(out), mode="r") as dataset:
            first, second = (dataset.read_image("image_1", index) for index in (0, 1))
        assert first.data.any()
        assert not second.data.any()
        assert second.meta["EBM_Image"] == "ALL_ZERO"
