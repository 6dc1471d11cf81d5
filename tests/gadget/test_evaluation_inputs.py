"""Fully sampled scans from files: images equal numpy's, and what is not fully sampled is refused."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from simulated_scans import MATRIX, make_scan, simulated
from simulated_scans import settings as settings_with
from synthetic_scan import Protocol, inverse_transform

from gadget.errors import FileError, GadgetError, ScanError
from gadget.evaluation_inputs import (
    read_full_scans,
    with_added_noise,
    with_coil_maps,
    with_coil_of_one,
    with_corrected_reference,
    with_names_of_their_own,
)
from gadget.scan_writer import oversample_readout, write_scan
from gadget.scan_writer_header import ScanFileSettings
from reconlib.simulation.scan import simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

SETTINGS = settings_with()
NOISE = 0.07


@pytest.fixture
def kspace():
    """Noise with one bright point: complex64 (2, 3, 40, 36) of known standard deviation per component."""
    rng = np.random.default_rng(3)
    samples = NOISE * (rng.normal(size=(2, 3, 40, 36)) + 1j * rng.normal(size=(2, 3, 40, 36)))
    samples += 0.8  # a bright point in the centre of the image
    return samples.astype(np.complex64)


def root_sum_of_squares(kspace: np.ndarray) -> np.ndarray:
    return np.sqrt((np.abs(inverse_transform(kspace)) ** 2).sum(axis=-3))


def rss_of(scan) -> np.ndarray:
    return np.sqrt((scan.coil_images().abs().numpy()[0] ** 2).sum(axis=0))


def saved(tmp_path, array, name="scan.npy"):
    np.save(tmp_path / name, array)
    return tmp_path / name


def save_fastmri(path, kspace: np.ndarray, **others):
    """Write (slice, coil, ky, kx) the way fastMRI does: (slice, coil, kx, ky)."""
    with h5py.File(path, "w") as file:
        file["kspace"] = kspace.swapaxes(-1, -2)
        for name, value in others.items():
            file[name] = value
    return path


def test_an_array_is_read_slice_by_slice(tmp_path, kspace):
    scans = read_full_scans(saved(tmp_path, kspace), SETTINGS)

    assert [scan.name for scan in scans] == ["scan slice 0", "scan slice 1"]
    for scan, samples in zip(scans, kspace, strict=True):
        assert np.array_equal(scan.samples[0].numpy(), samples)
        assert np.allclose(rss_of(scan), root_sum_of_squares(samples), atol=1e-5)
        # 576 corner pixels of 3 coils, twice: the standard deviation of the estimate is 1.2 %
        assert scan.noise_std == pytest.approx(NOISE, rel=0.06)
        assert "corners" in scan.noise_source


def test_one_slice_may_lack_its_axis(tmp_path, kspace):
    (scan,) = read_full_scans(saved(tmp_path, kspace[0]), SETTINGS)
    assert scan.name == "scan"
    assert scan.samples.shape == (1, 3, 40, 36)


def test_the_slices_in_the_middle_keep_their_numbers(tmp_path, kspace):
    five = np.concatenate([kspace, kspace, kspace[:1]])
    scans = read_full_scans(saved(tmp_path, five), SETTINGS, n_slices=3)
    assert [scan.name for scan in scans] == ["scan slice 1", "scan slice 2", "scan slice 3"]
    assert np.array_equal(scans[0].samples[0].numpy(), five[1])


@pytest.mark.parametrize("size_from", ["reconstruction_rss", "ismrmrd_header"])
def test_fastmri_readout_oversampling_is_removed(tmp_path, kspace, size_from):
    wide = oversample_readout(kspace, 2)
    extra = {
        "reconstruction_rss": {"reconstruction_rss": np.zeros((2, 36, 36), np.float32)},
        "ismrmrd_header": {"ismrmrd_header": Protocol(recon=(36, 40, 1)).xml()},
    }[size_from]
    scans = read_full_scans(save_fastmri(tmp_path / "knee.h5", wide, **extra), SETTINGS)

    assert [scan.name for scan in scans] == ["knee slice 0", "knee slice 1"]
    for scan, samples in zip(scans, kspace, strict=True):
        assert scan.matrix == (40, 36)
        assert np.allclose(scan.samples[0].numpy(), samples, atol=1e-4)
        assert np.allclose(rss_of(scan), root_sum_of_squares(samples), atol=1e-4)


def test_lines_that_only_fill_up_are_cut_off(tmp_path, kspace):
    padded = np.zeros((2, 3, 50, 36), np.complex64)
    padded[..., 5:45, :] = kspace  # centre 20 -> 25
    wide = oversample_readout(padded, 2)
    fastmri = save_fastmri(tmp_path / "knee.h5", wide, reconstruction_rss=np.zeros((2, 36, 36), np.float32))
    for scans in (read_full_scans(saved(tmp_path, padded), SETTINGS), read_full_scans(fastmri, SETTINGS)):
        assert [scan.matrix for scan in scans] == [(40, 36)] * 2
        assert np.allclose(scans[1].samples[0].numpy(), kspace[1], atol=1e-4)


def test_a_block_that_lies_a_line_off_is_cut_about_the_centre(tmp_path, kspace):
    padded = np.zeros((3, 50, 36), np.complex64)
    padded[:, 6:47] = np.concatenate([kspace[0], kspace[0, :, :1]], axis=1)  # 19 lines below 25, 21 above
    (scan,) = read_full_scans(saved(tmp_path, padded), SETTINGS)
    assert scan.matrix == (39, 36)
    assert np.array_equal(scan.samples[0].numpy(), padded[:, 6:45])
    assert np.array_equal(scan.samples[0, :, 39 // 2], padded[:, 25])


def test_a_scan_file_is_assembled_and_its_truth_is_the_reference_on_request(tmp_path):
    path = make_scan(tmp_path / "scan.h5", n_slices=2, noise=0.02)
    plain = read_full_scans(path, SETTINGS)
    true = read_full_scans(path, SETTINGS, use_truth=True)
    known = simulated(2, 0.02)

    for index, (one, other) in enumerate(zip(plain, true, strict=True)):
        assert one.reference is None
        assert other.reference is not None
        assert one.matrix == MATRIX
        assert np.allclose(other.reference[0, 0], known.truth[index, 0].abs())
        expected = root_sum_of_squares(known.kspace.samples[index].numpy())
        scale = (expected * rss_of(one)).sum() / (rss_of(one) ** 2).sum()  # prewhitening changes the unit
        assert np.allclose(scale * rss_of(one), expected, atol=0.02 * expected.max())
        assert one.noise_std == pytest.approx(1.0)
        assert one.noise_source == "from the noise readouts"


def test_the_truth_is_not_quietly_left_out(tmp_path, kspace):
    without = make_scan(tmp_path / "scan.h5", store_truth=False)
    for path in (without, saved(tmp_path, kspace), save_fastmri(tmp_path / "knee.h5", kspace)):
        with pytest.raises(ScanError, match="has no truth in it; only scans by `simulate` have"):
            read_full_scans(path, SETTINGS, use_truth=True)


def test_what_is_not_fully_sampled_is_refused(tmp_path, kspace):
    gaps, partial, points, nothing = (kspace.copy() for _ in range(4))
    gaps[..., 1::2, :] = 0
    partial[..., :14, :] = 0  # partial Fourier: a cut about the centre would leave 12 of 26 lines
    points[..., 3, 4] = 0
    nothing[:] = 0
    for array, share in ((gaps, "50.0"), (partial, "65.0"), (points, "99.9"), (nothing, "0.0")):
        with pytest.raises(ScanError, match=rf"slice 0: only {share} % .* give a fully sampled scan"):
            read_full_scans(saved(tmp_path, array), SETTINGS)
    with pytest.raises(ScanError, match=r"only 50\.0 %"):
        read_full_scans(save_fastmri(tmp_path / "knee.h5", gaps), SETTINGS)
    under = simulate_head_scan(
        ScanSettings(matrix=(40, 36), n_coils=2, acceleration=3.0, calibration_fraction=0.2)
    )
    write_scan(tmp_path / "under.h5", [under], ScanFileSettings())
    with pytest.raises(ScanError, match="give a fully sampled scan"):
        read_full_scans(tmp_path / "under.h5", SETTINGS)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((4, 4), np.complex64), r"complex64 of shape \(4, 4\); k-space is complex with the axes"),
        (np.zeros((2, 8, 8), np.float32), "float32 of shape"),
        (np.zeros((0, 8, 8), np.complex64), r"shape \(0, 8, 8\)"),
    ],
)
def test_arrays_that_are_no_kspace_are_refused(tmp_path, array, said):
    with pytest.raises(FileError, match=said):
        read_full_scans(saved(tmp_path, array), SETTINGS)


def test_files_that_are_no_arrays_are_refused(tmp_path, kspace):
    (tmp_path / "a.npy").write_bytes(b"hello")
    with pytest.raises(FileError, match=r"is no \.npy array"):
        read_full_scans(tmp_path / "a.npy", SETTINGS)
    with (tmp_path / "b.npy").open("wb") as file:
        np.savez(file, kspace=kspace)
    with pytest.raises(FileError, match="archive of arrays"):
        read_full_scans(tmp_path / "b.npy", SETTINGS)
    single = tmp_path / "single.h5"
    with h5py.File(single, "w") as file:
        file["kspace"] = kspace[0]
    with pytest.raises(FileError, match=r"shape \(3, 40, 36\); multi-coil fastMRI data are complex"):
        read_full_scans(single, SETTINGS)
    broken = save_fastmri(tmp_path / "broken.h5", kspace, ismrmrd_header="<nonsense/>")
    with pytest.raises(ScanError, match="its ismrmrd_header cannot be used"):
        read_full_scans(broken, SETTINGS)
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(GadgetError, match=r"text\.h5"):
        read_full_scans(tmp_path / "text.h5", SETTINGS)


def test_numbers_that_are_none_and_corners_without_noise_are_refused(tmp_path, kspace):
    bad = kspace.copy()
    bad[1, 0, 2, 3] = np.nan
    with pytest.raises(ScanError, match="slice 1: the k-space holds infinities or NaNs"):
        read_full_scans(saved(tmp_path, bad), SETTINGS)
    with pytest.raises(ScanError, match=r"slice 0: k-space of 20 x 16 has no four corners"):
        read_full_scans(saved(tmp_path, kspace[..., :20, :16]), SETTINGS)


def test_coil_maps_are_taken_as_they_are_or_refused(tmp_path, kspace):
    scan = read_full_scans(saved(tmp_path, kspace[0]), SETTINGS)[0]
    maps = (kspace[1] + 1).astype(np.complex128)

    with_maps = with_coil_maps(scan, saved(tmp_path, maps, "maps.npy"))

    assert with_maps.coils.dtype == torch.complex64
    assert np.allclose(with_maps.coils[0].numpy(), maps)
    with pytest.raises(FileError, match=r"the maps of scan need \(coil, y, x\) = \(3, 40, 36\)"):
        with_coil_maps(scan, saved(tmp_path, maps[:2], "few.npy"))
    with pytest.raises(FileError, match=r"coil maps are complex \(coil, y, x\), for scan"):
        with_coil_maps(scan, saved(tmp_path, np.abs(maps), "real.npy"))
    maps[0, 0, 0] = np.inf
    for wrong in (maps, 0 * np.ones_like(maps)):
        with pytest.raises(FileError, match="infinities or NaNs, or only zeros"):
            with_coil_maps(scan, saved(tmp_path, wrong, "wrong.npy"))


def test_a_single_coil_gets_the_map_1_and_several_do_not(tmp_path, kspace):
    single = read_full_scans(saved(tmp_path, kspace[0, :1]), SETTINGS)[0]
    several = read_full_scans(saved(tmp_path, kspace[0]), SETTINGS)[0]
    assert torch.equal(with_coil_of_one(single).coils, torch.ones(1, 1, 40, 36, dtype=torch.complex64))
    with pytest.raises(ScanError, match=r"coils: 'fixed' is for scans of a single coil.* scan has 3 coils"):
        with_coil_of_one(several)


def test_scans_of_one_name_are_numbered(tmp_path, kspace):
    scan = read_full_scans(saved(tmp_path, kspace[0]), SETTINGS)[0]
    other = read_full_scans(saved(tmp_path, kspace[0], "other.npy"), SETTINGS)[0]
    named = with_names_of_their_own([scan, other, scan, scan])
    assert [one.name for one in named] == ["scan", "other", "scan (2)", "scan (3)"]


def test_noise_is_added_up_to_a_share_of_the_maximum_and_the_reference_keeps_its_own(tmp_path, kspace):
    scan = read_full_scans(saved(tmp_path, kspace[:1]), SETTINGS)[0]
    assert (scan.reference_noise_std, scan.reference) == (scan.noise_std, None)
    before = rss_of(scan)
    louder = with_added_noise(scan, 0.002)
    total = 0.002 * before.max()  # 1.5 times its own
    assert louder.noise_std == pytest.approx(total, rel=1e-6)
    assert np.allclose(louder.reference.numpy()[0, 0], before, rtol=1e-5)
    assert louder.reference_noise_std == scan.noise_std
    added = torch.view_as_real(louder.samples - scan.samples)
    assert float(added.std()) == pytest.approx(np.sqrt(total**2 - scan.noise_std**2), rel=0.03)
    assert torch.equal(with_added_noise(scan, 0.002).samples, louder.samples)
    assert louder.noise_source.startswith("added up to 0.002 of the maximum (before: ")
    with pytest.raises(ScanError, match=r"has noise of 0\.0\d+ of its maximum already, so none can be added"):
        with_added_noise(louder, 0.001)


def test_added_noise_is_a_share_of_the_samples_image_whatever_units_the_truth_has(tmp_path):
    path = make_scan(tmp_path / "recorded.h5", n_slices=1)
    by_samples, by_truth = (read_full_scans(path, SETTINGS, use_truth=use)[0] for use in (False, True))
    louder = with_added_noise(by_truth, 0.1)
    assert louder.noise_std == pytest.approx(0.1 * rss_of(by_samples).max(), rel=1e-6)
    assert torch.equal(louder.samples, with_added_noise(by_samples, 0.1).samples)
    assert torch.equal(louder.reference, by_truth.reference)


def test_a_truth_has_no_noise_of_its_own(tmp_path):
    path = tmp_path / "scan.h5"
    write_scan(path, simulate_head_scan(ScanSettings(matrix=MATRIX, n_coils=2, pattern="full")))
    assert read_full_scans(path, SETTINGS)[0].reference_noise_std > 0
    assert read_full_scans(path, SETTINGS, use_truth=True)[0].reference_noise_std == 0


def test_the_corrected_reference_lacks_the_floor_of_the_noise_that_the_scan_states(tmp_path, kspace):
    scans = [
        *read_full_scans(saved(tmp_path, kspace), SETTINGS),
        *read_full_scans(save_fastmri(tmp_path / "knee.h5", kspace), SETTINGS),
        *read_full_scans(make_scan(tmp_path / "recorded.h5", n_slices=2), SETTINGS),
    ]
    assert len(scans) == 6
    for scan, std in zip(scans, [NOISE] * 4 + [1.0] * 2, strict=True):  # recorded: prewhitened
        corrected = with_corrected_reference(scan)
        floor = 2 * 3 * scan.noise_std**2
        expected = np.sqrt(np.maximum(rss_of(scan) ** 2 - floor, 0))
        assert corrected.reference.dtype == torch.float32
        assert np.allclose(corrected.reference[0, 0].numpy(), expected, atol=1e-3 * expected.max())
        assert floor == pytest.approx(6 * std**2, rel=0.12)
        assert torch.equal(corrected.samples, scan.samples)
        assert (corrected.noise_std, corrected.reference_noise_std) == (scan.noise_std, scan.noise_std)


def test_the_corrected_reference_is_that_of_before_noise_is_added(tmp_path, kspace):
    plain = read_full_scans(saved(tmp_path, kspace[0]), SETTINGS)[0]
    scan = with_corrected_reference(plain)
    louder = with_added_noise(scan, 0.02)
    assert torch.equal(louder.samples, with_added_noise(plain, 0.02).samples)
    assert torch.equal(louder.reference, scan.reference)
    assert louder.reference_noise_std == scan.noise_std < louder.noise_std


def test_a_floor_by_an_estimated_level_is_said_to_be_one(tmp_path):
    cautions = {}
    for n_noise_readouts in (0, 16):
        path = tmp_path / f"{n_noise_readouts}.h5"
        make_scan(path, n_noise_readouts=n_noise_readouts)
        scan = with_corrected_reference(read_full_scans(path, SETTINGS, n_slices=1)[0])
        cautions[n_noise_readouts] = scan.caution
        # noise that is added later leaves the reference, and what is said of it
        assert with_added_noise(scan, 0.2).caution == scan.caution
    assert "there are no noise readouts" in cautions[0]
    assert cautions[16] == ""


def test_a_floor_by_corners_that_hold_signal_is_said_to_be_wrong(tmp_path, kspace):
    plain = with_corrected_reference(read_full_scans(saved(tmp_path, kspace[0]), SETTINGS)[0])
    assert plain.caution == ""
    rng = np.random.default_rng(8)
    texture = np.fft.fft2(rng.normal(size=(3, 40, 36)))
    low = np.fft.fftshift(texture, axes=(-2, -1)) * 0.2
    low[..., :4] = low[..., -4:] = 0  # smooth along x, and everywhere in the image
    full = read_full_scans(saved(tmp_path, (kspace[0] + low).astype(np.complex64), "full.npy"), SETTINGS)[0]
    caution = with_corrected_reference(full).caution
    assert "too high: in the corners of the image the level is" in caution


def test_an_archive_of_images_is_refused_with_the_studies_that_take_it(tmp_path):
    np.savez(tmp_path / "images.npz", images=np.ones((3, 16, 16)))
    with pytest.raises(FileError, match="Magnitude images are for `evaluate --study simulated`"):
        read_full_scans(tmp_path / "images.npz", SETTINGS)


def test_a_noise_level_above_all_samples_leaves_no_corrected_reference(tmp_path, kspace):
    scan = read_full_scans(saved(tmp_path, kspace[0]), SETTINGS)[0]
    with pytest.raises(
        ScanError, match="scan: no pixel lies above the floor of its noise level 1000, from the"
    ):
        with_corrected_reference(replace(scan, noise_std=1000.0))
