"""Written scans, read back with the ismrmrd package and rebuilt with plain numpy."""

import os
from dataclasses import replace

import h5py
import ismrmrd
import numpy as np
import pytest
import torch
from ismrmrd import xsd
from scan_assembly import assembled

from gadget.errors import FileError, SettingsError
from gadget.scan.assemble import AssemblySettings
from gadget.scan_file import read_scan
from gadget.scan_writer import oversample_readout, read_truth, write_scan
from gadget.scan_writer_header import ScanFileSettings
from gadget.wire.messages import Acquisition
from reconlib.evaluation.sampling_patterns import mask_from_lines, random_lines
from reconlib.kspace import KSpace
from reconlib.simulation.scan import SimulatedScan, scan_from_kspace, simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings


def scan_of(n_slices=3, n_coils=4, n_ky=21, n_kx=13, seed=1, lines=None, noise_std=0.2) -> SimulatedScan:
    """Random k-space, all axes of different, partly odd length."""
    generator = torch.Generator().manual_seed(seed)
    full = torch.randn(n_slices, n_coils, n_ky, n_kx, generator=generator, dtype=torch.complex64).numpy()
    lines = random_lines(n_ky, acceleration=2.0, calibration_fraction=0.2, seed=3) if lines is None else lines
    return scan_from_kspace(
        full, lines, noise_std=noise_std, fov_mm=(210.0, 182.0), slice_thickness_mm=4.0, acceleration=2.0
    )


def write_few(path, scan, **settings):
    """Write with two noise readouts: the ismrmrd package takes some milliseconds to read each."""
    write_scan(path, scan, ScanFileSettings(n_noise_readouts=2, **settings))


def read_back(path, group="dataset"):
    """Header and readouts as the ismrmrd package sees them."""
    with ismrmrd.Dataset(str(path), group, mode="r") as dataset:
        header = xsd.CreateFromDocument(dataset.read_xml_header())
        readouts = [dataset.read_acquisition(i) for i in range(dataset.number_of_acquisitions())]
    return header, readouts


def rebuild(header, readouts, repetition=0):
    """K-space (slice, coil, ky, kx) and the measured lines, by nothing but the standard's definitions."""
    encoding = header.encoding[0]
    n_x, n_y = encoding.encodedSpace.matrixSize.x, encoding.encodedSpace.matrixSize.y
    kept = round(n_x * encoding.reconSpace.fieldOfView_mm.x / encoding.encodedSpace.fieldOfView_mm.x)
    limits = encoding.encodingLimits
    n_coils = header.acquisitionSystemInformation.receiverChannels
    samples = np.zeros((limits.slice.maximum + 1, n_coils, n_y, kept), dtype=np.complex128)
    mask = np.zeros((limits.slice.maximum + 1, n_y), dtype=bool)
    for readout in readouts:
        if readout.is_flag_set(ismrmrd.ACQ_IS_NOISE_MEASUREMENT) or readout.idx.repetition != repetition:
            continue
        assert readout.center_sample == readout.number_of_samples // 2
        row = readout.idx.kspace_encode_step_1 - limits.kspace_encoding_step_1.center + n_y // 2
        image = np.fft.fftshift(np.fft.ifft(np.fft.ifftshift(readout.data, axes=-1), norm="ortho"), axes=-1)
        first = n_x // 2 - kept // 2
        image = image[:, first : first + kept]
        samples[readout.idx.slice, :, row] = np.fft.fftshift(
            np.fft.fft(np.fft.ifftshift(image, axes=-1), norm="ortho"), axes=-1
        )
        assert not mask[readout.idx.slice, row]
        mask[readout.idx.slice, row] = True
    return samples, mask


@pytest.mark.parametrize("oversampling", [1, 2, 3])
@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("shape", [(21, 13), (16, 10), (15, 8)], ids=str)
def test_a_scan_comes_back_as_it_was(tmp_path, oversampling, interleave, shape):
    scan = scan_of(n_ky=shape[0], n_kx=shape[1])
    write_few(tmp_path / "scan.h5", scan, readout_oversampling=oversampling, interleave_slices=interleave)
    samples, mask = rebuild(*read_back(tmp_path / "scan.h5"))
    assert np.allclose(samples, scan.kspace.samples.numpy(), atol=2e-6)
    assert np.array_equal(mask, scan.kspace.mask[:, 0, :, 0].numpy())


def test_repetitions_come_back_apart(tmp_path):
    scans = [scan_of(seed=seed) for seed in (1, 2)]
    write_few(tmp_path / "scan.h5", scans)
    header, readouts = read_back(tmp_path / "scan.h5")
    assert header.encoding[0].encodingLimits.repetition.maximum == 1
    for repetition, scan in enumerate(scans):
        assert np.allclose(rebuild(header, readouts, repetition)[0], scan.kspace.samples.numpy(), atol=2e-6)
        flagged = [r for r in readouts if r.idx.repetition == repetition]
        assert [r.is_flag_set(ismrmrd.ACQ_LAST_IN_REPETITION) for r in flagged].count(True) == 1


@pytest.mark.parametrize("first", [0, 3, 10])
def test_lines_can_be_counted_from_the_first_measured_one(tmp_path, first):
    """Partial Fourier: lines before ``first`` and from 18 on were left out; the centre is line 10 of 21."""
    lines = np.zeros(21, dtype=bool)
    lines[first:18] = True
    scan = scan_of(lines=lines)
    write_few(tmp_path / "scan.h5", scan, number_lines_from_first=True)
    header, readouts = read_back(tmp_path / "scan.h5")
    limits = header.encoding[0].encodingLimits.kspace_encoding_step_1
    assert (limits.minimum, limits.maximum, limits.center) == (0, 17 - first, 10 - first)
    assert min(r.idx.kspace_encode_step_1 for r in readouts) == 0
    samples, mask = rebuild(header, readouts)
    assert np.allclose(samples, scan.kspace.samples.numpy(), atol=2e-6)
    assert np.array_equal(np.flatnonzero(mask[0]), np.arange(first, 18))


def test_the_header_says_what_was_measured(tmp_path):
    write_scan(tmp_path / "scan.h5", scan_of())
    header, _ = read_back(tmp_path / "scan.h5")
    encoding = header.encoding[0]
    assert encoding.trajectory.value == "cartesian"
    encoded, recon = encoding.encodedSpace, encoding.reconSpace
    assert (encoded.matrixSize.x, encoded.matrixSize.y, encoded.matrixSize.z) == (26, 21, 1)
    assert (encoded.fieldOfView_mm.x, encoded.fieldOfView_mm.y, encoded.fieldOfView_mm.z) == (
        364.0,
        210.0,
        4.0,
    )
    assert (recon.matrixSize.x, recon.matrixSize.y, recon.matrixSize.z) == (13, 21, 1)
    assert (recon.fieldOfView_mm.x, recon.fieldOfView_mm.y, recon.fieldOfView_mm.z) == (182.0, 210.0, 4.0)
    limits = encoding.encodingLimits
    assert (limits.kspace_encoding_step_0.maximum, limits.kspace_encoding_step_0.center) == (25, 13)
    step_1 = limits.kspace_encoding_step_1
    assert (step_1.minimum, step_1.maximum, step_1.center) == (0, 20, 10)
    assert (limits.slice.maximum, limits.repetition.maximum, limits.contrast.maximum) == (2, 0, 0)
    assert encoding.parallelImaging.accelerationFactor.kspace_encoding_step_1 == 2
    assert encoding.parallelImaging.calibrationMode.value == "embedded"
    system = header.acquisitionSystemInformation
    assert system.receiverChannels == 4
    assert system.relativeReceiverNoiseBandwidth == 1.0
    assert [label.coilNumber for label in system.coilLabel] == [0, 1, 2, 3]
    assert header.subjectInformation is None
    assert header.studyInformation is None


def test_recon_matrix_and_field_of_view_can_differ_from_the_encoded_ones(tmp_path):
    write_few(tmp_path / "scan.h5", scan_of(), recon_matrix=(15, 13), recon_fov_mm=(150.0, 182.0))
    encoding = read_back(tmp_path / "scan.h5")[0].encoding[0]
    assert (encoding.encodedSpace.matrixSize.y, encoding.encodedSpace.fieldOfView_mm.y) == (21, 210.0)
    assert (encoding.reconSpace.matrixSize.y, encoding.reconSpace.fieldOfView_mm.y) == (15, 150.0)


def test_readout_headers_are_those_of_a_scanner(tmp_path):
    scan = scan_of()
    write_few(tmp_path / "scan.h5", scan, measurement_uid=77, sample_time_us=4.0)
    _, readouts = read_back(tmp_path / "scan.h5")
    assert [r.scan_counter for r in readouts] == list(range(len(readouts)))
    times = [r.acquisition_time_stamp for r in readouts]
    assert times == sorted(set(times))
    for readout in readouts:
        assert readout.version == 1
        assert readout.measurement_uid == 77
        assert (readout.active_channels, readout.available_channels) == (4, 4)
        assert list(readout.channel_mask) == [0b1111] + [0] * 15
        assert readout.sample_time_us == 4.0
        assert list(readout.position) == [0.0, 0.0, scan.slice_positions_mm[readout.idx.slice]]
        frame = np.array([list(readout.read_dir), list(readout.phase_dir), list(readout.slice_dir)])
        assert np.array_equal(frame @ frame.T, np.eye(3))
        assert np.linalg.det(frame) == pytest.approx(1.0)
        assert readout.traj.size == 0
    assert scan.slice_positions_mm == (0.0, 4.0, 8.0)


@pytest.mark.parametrize("interleave", [False, True])
def test_every_slice_is_opened_and_closed_by_flags(tmp_path, interleave):
    write_few(tmp_path / "scan.h5", scan_of(), interleave_slices=interleave)
    _, readouts = read_back(tmp_path / "scan.h5")
    imaging = [r for r in readouts if not r.is_flag_set(ismrmrd.ACQ_IS_NOISE_MEASUREMENT)]
    for slice_ in range(3):
        own = [r for r in imaging if r.idx.slice == slice_]
        assert [r.is_flag_set(ismrmrd.ACQ_FIRST_IN_SLICE) for r in own] == [True] + [False] * (len(own) - 1)
        assert [r.is_flag_set(ismrmrd.ACQ_LAST_IN_SLICE) for r in own] == [False] * (len(own) - 1) + [True]
    order = [r.idx.slice for r in imaging]
    assert order[:3] == ([0, 1, 2] if interleave else [0, 0, 0])
    assert [r.is_flag_set(ismrmrd.ACQ_LAST_IN_MEASUREMENT) for r in readouts].count(True) == 1
    assert readouts[-1].is_flag_set(ismrmrd.ACQ_LAST_IN_MEASUREMENT)


def test_calibration_lines_are_flagged_as_calibration_and_imaging(tmp_path):
    scan = scan_of()
    write_scan(tmp_path / "scan.h5", scan)
    _, readouts = read_back(tmp_path / "scan.h5")
    flagged = {
        r.idx.kspace_encode_step_1
        for r in readouts
        if r.is_flag_set(ismrmrd.ACQ_IS_PARALLEL_CALIBRATION_AND_IMAGING)
    }
    assert flagged == set(np.flatnonzero(scan.calibration_lines).tolist())
    assert len(flagged) >= 4
    assert not any(r.is_flag_set(ismrmrd.ACQ_IS_PARALLEL_CALIBRATION) for r in readouts)


def noise_of(path):
    """Noise samples (coil, all) and their dwell time; noise readouts come first."""
    _, readouts = read_back(path)
    noise = [r for r in readouts if r.is_flag_set(ismrmrd.ACQ_IS_NOISE_MEASUREMENT)]
    assert all(r.scan_counter == i for i, r in enumerate(noise))
    return np.concatenate([r.data for r in noise], axis=1), noise[0].sample_time_us


def test_noise_readouts_are_white_with_the_stated_deviation(tmp_path):
    write_scan(tmp_path / "scan.h5", scan_of(noise_std=0.2), ScanFileSettings(n_noise_readouts=60))
    noise, dwell = noise_of(tmp_path / "scan.h5")
    n = 60 * 26
    assert noise.shape == (4, n)
    assert dwell == 5.0
    covariance = noise @ noise.conj().T / n
    assert np.abs(covariance / (2 * 0.2**2) - np.eye(4)).max() < 5 / np.sqrt(n)


def test_noise_readouts_have_the_covariance_of_the_scan(tmp_path):
    scan = simulate_head_scan(ScanSettings(matrix=(12, 10), n_coils=3, noise_correlation=0.6))
    write_scan(tmp_path / "scan.h5", scan, ScanFileSettings(n_noise_readouts=60))
    noise, _ = noise_of(tmp_path / "scan.h5")
    expected = scan.noise_covariance.numpy()
    scale = np.sqrt(np.outer(np.diag(expected).real, np.diag(expected).real))
    measured = noise @ noise.conj().T / noise.shape[1]
    assert np.abs((measured - expected) / scale).max() < 5 / np.sqrt(noise.shape[1])


@pytest.mark.parametrize(("bandwidth", "counted"), [(1.0, 1.0), (0.5, 0.5), (None, 0.793)])
def test_noise_of_another_dwell_time_is_what_prewhitening_undoes(tmp_path, bandwidth, counted):
    """Whitened data times sqrt(dwell / noise dwell * bandwidth) must have the noise 1."""
    settings = ScanFileSettings(
        n_noise_readouts=60,
        sample_time_us=4.0,
        noise_sample_time_us=10.0,
        relative_receiver_noise_bandwidth=bandwidth,
    )
    write_scan(tmp_path / "scan.h5", scan_of(noise_std=0.2), settings)
    header, _ = read_back(tmp_path / "scan.h5")
    assert header.acquisitionSystemInformation.relativeReceiverNoiseBandwidth == bandwidth
    noise, dwell = noise_of(tmp_path / "scan.h5")
    assert dwell == 10.0
    per_component = np.sqrt((np.abs(noise) ** 2).mean() / 2)
    whitened = 0.2 / per_component * np.sqrt(4.0 / 10.0 * counted)
    assert whitened == pytest.approx(1.0, rel=5 / np.sqrt(2 * noise.size))


def test_a_scan_can_come_without_noise_readouts(tmp_path):
    write_scan(tmp_path / "scan.h5", scan_of(), ScanFileSettings(n_noise_readouts=0))
    _, readouts = read_back(tmp_path / "scan.h5")
    assert not any(r.is_flag_set(ismrmrd.ACQ_IS_NOISE_MEASUREMENT) for r in readouts)


def test_seeds_decide_the_noise_readouts(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_scan(tmp_path / f"{name}.h5", scan_of(), ScanFileSettings(noise_seed=seed))
    a, b, c = (noise_of(tmp_path / f"{name}.h5")[0] for name in "abc")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def noisy_head() -> SimulatedScan:
    """Correlated noise that hides the head at the edges of k-space, unequal coils."""
    return simulate_head_scan(
        ScanSettings(
            matrix=(40, 27),
            n_slices=2,
            n_coils=3,
            noise=1.0,
            noise_correlation=0.6,
            pattern="full",
        )
    )


def beside_image(path, repetition=0):
    """What the columns outside of the field of view hold, (coil, all), twofold oversampling of 27 columns."""
    _, readouts = read_back(path)
    data = np.stack(
        [
            r.data
            for r in readouts
            if not r.is_flag_set(ismrmrd.ACQ_IS_NOISE_MEASUREMENT) and r.idx.repetition == repetition
        ],
        axis=1,
    )
    image = np.fft.fftshift(np.fft.ifft(np.fft.ifftshift(data, axes=-1), norm="ortho"), axes=-1)
    outside = np.ones(54, dtype=bool)
    outside[27 - 13 : 27 + 14] = False
    return image[..., outside].reshape(3, -1)


def test_raw_edges_have_the_noise_of_the_noise_readouts(tmp_path):
    """A receiver's noise is white in its whole bandwidth, not in the field of view alone."""
    write_scan(tmp_path / "scan.h5", noisy_head(), ScanFileSettings(n_noise_readouts=60))
    _, readouts = read_back(tmp_path / "scan.h5")
    imaging = [r for r in readouts if not r.is_flag_set(ismrmrd.ACQ_IS_NOISE_MEASUREMENT)]
    far = [r.data for r in imaging if abs(r.idx.kspace_encode_step_1 - 20) > 12]
    edges = np.concatenate([samples[:, [*range(10), *range(-10, 0)]] for samples in far], axis=1)
    noise, _ = noise_of(tmp_path / "scan.h5")
    for coil in range(3):
        ratio = np.sqrt((np.abs(edges[coil]) ** 2).mean() / (np.abs(noise[coil]) ** 2).mean())
        assert ratio == pytest.approx(1.0, abs=4 * np.sqrt(0.25 / edges.shape[1] + 0.25 / noise.shape[1]))


def test_columns_beside_the_image_have_the_covariance_of_the_scan(tmp_path):
    scan = noisy_head()
    write_few(tmp_path / "scan.h5", scan)
    beside = beside_image(tmp_path / "scan.h5")
    expected = scan.noise_covariance.numpy()
    scale = np.sqrt(np.outer(np.diag(expected).real, np.diag(expected).real))
    n = beside.shape[1]
    assert n == 2 * 40 * 27
    assert np.abs((beside @ beside.conj().T / n - expected) / scale).max() < 5 / np.sqrt(n)


def test_repetitions_and_seeds_have_their_own_noise_beside_the_image(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_few(tmp_path / f"{name}.h5", [noisy_head()] * 2, noise_seed=seed)
    a, b, c = (beside_image(tmp_path / f"{name}.h5") for name in "abc")
    assert np.array_equal(a, b)
    for other in (c, beside_image(tmp_path / "a.h5", repetition=1)):
        likeness = np.abs(np.vdot(a, other)) / np.linalg.norm(a) / np.linalg.norm(other)
        assert likeness < 5 / np.sqrt(a.size / 3)


def test_a_scan_without_noise_gets_none(tmp_path):
    scan = replace(noisy_head(), noise_covariance=torch.zeros(3, 3, dtype=torch.complex128))
    write_few(tmp_path / "scan.h5", scan)
    assert not noise_of(tmp_path / "scan.h5")[0].any()
    beside = beside_image(tmp_path / "scan.h5")
    assert np.abs(beside).max() < 1e-6 * float(scan.kspace.samples.abs().max())


@pytest.mark.parametrize("seed", [0, 1])
def test_without_noise_readouts_the_noise_level_is_found_in_the_lines(tmp_path, seed):
    scan = simulate_head_scan(
        ScanSettings(matrix=(96, 81), n_slices=2, noise=0.05, pattern="full", seed=seed, noise_seed=seed)
    )
    write_scan(tmp_path / "scan.h5", scan, ScanFileSettings(n_noise_readouts=0))
    header, *readouts = read_scan(tmp_path / "scan.h5")
    readouts = [one for one in readouts if isinstance(one, Acquisition)]
    slices = assembled(header.text, readouts, AssemblySettings())
    assert len(slices) == 2
    for found in slices:
        assert found.kspace.noise_std == pytest.approx(scan.kspace.noise_std, rel=0.1)


@pytest.mark.parametrize("n", [5, 6, 13])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_oversampling_puts_zeros_beside_the_image_and_keeps_the_energy(n, factor, generator):
    samples = torch.randn(2, n, generator=generator, dtype=torch.complex64).numpy()
    wide = oversample_readout(samples, factor)
    assert wide.shape == (2, factor * n)
    assert np.linalg.norm(wide) == pytest.approx(np.linalg.norm(samples), rel=1e-6)
    image = np.fft.fftshift(np.fft.ifft(np.fft.ifftshift(wide, axes=-1), norm="ortho"), axes=-1)
    first = (factor * n) // 2 - n // 2
    outside = np.ones(factor * n, dtype=bool)
    outside[first : first + n] = False
    assert np.abs(image[:, outside]).max(initial=0.0) < 1e-6
    # The same k-space positions are still there, every factor-th sample: the transform is a denser one.
    middle = (factor * n) // 2
    assert np.allclose(wide[:, middle % factor :: factor][:, :n] * np.sqrt(factor), samples, atol=1e-5)


def test_the_truth_is_stored_beside_the_scan(tmp_path):
    scan = simulate_head_scan(ScanSettings(matrix=(15, 12), n_coils=3, n_slices=2))
    write_scan(tmp_path / "scan.h5", scan)
    truth = read_truth(tmp_path / "scan.h5")
    assert truth.image.shape == (2, 15, 12)
    assert np.array_equal(truth.image, scan.truth[:, 0].numpy())
    assert np.allclose(truth.magnitude, scan.truth[:, 0].abs().numpy(), rtol=1e-6)
    assert np.array_equal(truth.coils, scan.coils.numpy())
    assert truth.noise_std == scan.kspace.noise_std
    with h5py.File(tmp_path / "scan.h5", "r") as file:
        assert set(file) == {"dataset", "truth"}
        assert set(file["dataset"]) == {"xml", "data"}


def test_the_truth_can_be_left_out(tmp_path):
    write_scan(tmp_path / "scan.h5", scan_of(), ScanFileSettings(store_truth=False, group="measurement"))
    assert read_truth(tmp_path / "scan.h5") is None
    assert len(read_back(tmp_path / "scan.h5", "measurement")[1]) > 32
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(FileError, match="Cannot read the truth of"):
        read_truth(tmp_path / "text.h5")


def test_an_existing_file_is_only_replaced_when_asked(tmp_path):
    path = tmp_path / "scan.h5"
    path.write_text("precious")
    with pytest.raises(FileError, match=r"scan\.h5 exists"):
        write_scan(path, scan_of())
    assert path.read_text() == "precious"
    write_scan(path, scan_of(), overwrite=True)
    assert len(read_back(path)[1]) > 0
    assert [file.name for file in tmp_path.iterdir()] == ["scan.h5"]


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "scan.h5"
    path.write_text("precious")

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(FileError, match="No space left on device"):
        write_scan(path, scan_of(), overwrite=True)
    assert path.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["scan.h5"]


def test_places_that_cannot_be_written_to_are_refused(tmp_path):
    with pytest.raises(FileError, match="is a folder"):
        write_scan(tmp_path, scan_of())
    with pytest.raises(FileError, match="there is no folder"):
        write_scan(tmp_path / "missing" / "scan.h5", scan_of())


def test_scans_that_a_file_cannot_hold_are_refused(tmp_path):
    scan = scan_of()
    speckled = scan.kspace.mask.clone()
    speckled[0, 0, 10, 4] = ~speckled[0, 0, 10, 4]
    with pytest.raises(SettingsError, match="sampled in part"):
        write_scan(tmp_path / "a.h5", with_mask(scan, speckled))
    empty = scan.kspace.mask.clone()
    empty[1] = False
    with pytest.raises(SettingsError, match="no measured line"):
        write_scan(tmp_path / "a.h5", with_mask(scan, empty))
    with pytest.raises(SettingsError, match="one shape"):
        write_scan(tmp_path / "a.h5", [scan, scan_of(n_coils=5)])
    with pytest.raises(SettingsError, match="at least one repetition"):
        write_scan(tmp_path / "a.h5", [])
    with pytest.raises(SettingsError, match=r"readout_oversampling is 0.*n_noise_readouts is -1"):
        ScanFileSettings(readout_oversampling=0, n_noise_readouts=-1)
    assert list(tmp_path.iterdir()) == []


def with_mask(scan: SimulatedScan, mask: torch.Tensor) -> SimulatedScan:
    kspace = KSpace(samples=scan.kspace.samples, mask=mask, noise_std=scan.kspace.noise_std)
    return replace(scan, kspace=kspace)


def test_slices_may_have_lines_of_their_own(tmp_path):
    scan = scan_of()
    lines = [random_lines(21, acceleration=2.0, seed=seed) for seed in range(3)]
    scan = with_mask(scan, torch.cat([mask_from_lines(line, 13) for line in lines]))
    write_few(tmp_path / "scan.h5", scan, interleave_slices=True)
    _, mask = rebuild(*read_back(tmp_path / "scan.h5"))
    assert np.array_equal(mask, np.array(lines))
