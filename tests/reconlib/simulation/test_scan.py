"""Simulated scans: samples, truth, coils and noise belong together."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from reconlib.evaluation.sampling_patterns import random_lines
from reconlib.simulation.scan import (
    centre_run,
    corner_noise_std,
    draw_noise,
    scan_from_image,
    scan_from_kspace,
    simulate_head_scan,
)
from reconlib.simulation.scan_settings import ScanSettings

SMALL = ScanSettings(matrix=(31, 24), fov_mm=(228.0, 190.0), n_slices=2, n_coils=5)


def numpy_kspace(image):
    """Centred unitary transform, by numpy."""
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image, axes=axes), norm="ortho"), axes=axes)


def numpy_image(kspace):
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace, axes=axes), norm="ortho"), axes=axes)


@pytest.mark.parametrize("matrix", [(31, 24), (16, 37), (12, 12)], ids=str)
@pytest.mark.parametrize("pattern", ["random", "uniform", "full"])
def test_a_head_scan_has_the_asked_axes(matrix, pattern):
    scan = simulate_head_scan(replace(SMALL, matrix=matrix, pattern=pattern))
    assert scan.kspace.samples.shape == (2, 5, *matrix)
    assert scan.kspace.mask.shape == (2, 1, *matrix)
    assert scan.truth.shape == (2, 1, *matrix)
    assert scan.coils.shape == (2, 5, *matrix)
    assert scan.kspace.samples.dtype == scan.truth.dtype == scan.coils.dtype == torch.complex64
    assert bool((scan.kspace.samples[~scan.kspace.mask.expand_as(scan.kspace.samples)] == 0).all())
    assert scan.calibration_lines.shape == (matrix[0],)
    assert len(scan.slice_positions_mm) == 2


def test_without_noise_the_samples_are_those_of_coils_times_truth():
    scan = simulate_head_scan(replace(SMALL, pattern="full", noise=1e-9))
    expected = numpy_kspace((scan.coils * scan.truth).numpy().astype(np.complex128))
    error = np.abs(scan.kspace.samples.numpy() - expected).max()
    assert error < 1e-5 * np.abs(expected).max()


def test_coils_have_a_root_sum_of_squares_of_one():
    total = simulate_head_scan(SMALL).coils.abs().square().sum(1)
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5)


def test_what_was_added_to_the_signal_is_the_stated_noise():
    settings = replace(SMALL, matrix=(64, 50), pattern="full", noise=0.01)
    scan = simulate_head_scan(settings)
    assert scan.kspace.noise_std == pytest.approx(0.01 * float(scan.truth.abs().max()), rel=1e-5)
    noise = scan.kspace.samples.numpy() - numpy_kspace((scan.coils * scan.truth).numpy())
    n = noise.size
    for part in (noise.real, noise.imag):
        assert float(part.std()) == pytest.approx(scan.kspace.noise_std, rel=5 / math.sqrt(2 * n))
    assert abs(np.corrcoef(noise.real.ravel(), noise.imag.ravel())[0, 1]) < 5 / math.sqrt(n)


def test_correlated_noise_has_the_stated_covariance(generator):
    scan = simulate_head_scan(
        replace(SMALL, matrix=(80, 64), pattern="full", noise=0.01, noise_correlation=0.5)
    )
    covariance = scan.noise_covariance.numpy()
    assert np.allclose(covariance, covariance.conj().T)
    # noise_std is the mean over the coils, which now differ and are correlated.
    assert np.trace(covariance).real == pytest.approx(2 * 5 * scan.kspace.noise_std**2)
    assert np.diag(covariance).real.max() > 1.3 * np.diag(covariance).real.min()
    off = np.abs(covariance - np.diag(np.diag(covariance)))
    assert off.max() > 0.05 * np.diag(covariance).real.mean()
    noise = scan.kspace.samples.numpy() - numpy_kspace((scan.coils * scan.truth).numpy())
    flat = noise.swapaxes(0, 1).reshape(5, -1).astype(np.complex128)
    drawn = draw_noise(scan.noise_covariance, (4, 3000), generator).numpy().reshape(5, -1)
    for samples in (flat, drawn):
        measured = samples @ samples.conj().T / samples.shape[1]
        scale = np.sqrt(np.outer(np.diag(covariance).real, np.diag(covariance).real))
        assert np.abs((measured - covariance) / scale).max() < 5 / math.sqrt(samples.shape[1])


def test_seeds_are_apart():
    scan = simulate_head_scan(SMALL)
    again = simulate_head_scan(SMALL)
    assert torch.equal(scan.kspace.samples, again.kspace.samples)
    other_noise = simulate_head_scan(replace(SMALL, noise_seed=1))
    assert torch.equal(scan.truth, other_noise.truth)
    assert torch.equal(scan.kspace.mask, other_noise.kspace.mask)
    assert not torch.equal(scan.kspace.samples, other_noise.kspace.samples)
    other_lines = simulate_head_scan(replace(SMALL, mask_seed=43))
    assert torch.equal(scan.truth, other_lines.truth)
    assert not torch.equal(scan.kspace.mask, other_lines.kspace.mask)
    assert not torch.equal(scan.truth, simulate_head_scan(replace(SMALL, seed=1)).truth)


def test_a_spin_echo_has_only_smooth_phase():
    settings = replace(SMALL, matrix=(64, 54), noise=1e-6, rough_phase_rad=0.0, fat_phase_rad=0.0)
    smooth = simulate_head_scan(settings).truth
    rough = simulate_head_scan(replace(settings, rough_phase_rad=0.8, fat_phase_rad=0.8)).truth
    bright = smooth.abs() > 0.2 * smooth.abs().max()
    neighbours = bright[..., 1:] & bright[..., :-1]
    assert float(torch.angle(smooth[..., 1:] * smooth[..., :-1].conj())[neighbours].abs().max()) < 0.3
    assert float(torch.angle(rough * smooth.conj())[bright].abs().max()) > 0.4


def test_a_given_image_is_what_the_coils_see(generator):
    image = torch.rand(3, 17, 22, generator=generator).numpy() + 0.1
    scan = scan_from_image(image, replace(SMALL, smooth_phase_rad=0.0, rough_phase_rad=0.0, n_coils=4))
    assert scan.kspace.samples.shape == (3, 4, 17, 22)
    # The truth is the image times the sensitivity of the array, smooth and 1 at the middle of slice 0.
    ratio = scan.truth[:, 0].abs().numpy() / image
    assert ratio[0, 8, 11] == pytest.approx(1.0, abs=1e-4)
    assert np.abs(np.diff(np.log(ratio), axis=-1)).max() < 0.25
    single = scan_from_image(image[0], SMALL)
    assert single.truth.shape == (1, 1, 17, 22)


def test_given_kspace_is_under_sampled_and_nothing_else(generator):
    full = torch.randn(3, 26, 15, generator=generator, dtype=torch.complex64).numpy()
    lines = random_lines(26, acceleration=2.0, seed=1)
    scan = scan_from_kspace(full, lines, noise_std=0.3)
    assert np.array_equal(scan.kspace.samples[0].numpy(), full * lines[None, :, None])
    assert scan.kspace.noise_std == 0.3
    assert np.allclose(scan.noise_covariance.numpy(), 2 * 0.3**2 * np.eye(3))
    assert np.allclose((scan.coils * scan.truth)[0].numpy(), numpy_image(full), atol=1e-6)
    rss = np.sqrt((np.abs(numpy_image(full)) ** 2).sum(0))
    assert np.allclose(scan.truth[0, 0].numpy(), rss, atol=1e-5)
    assert scan.acceleration == pytest.approx(26 / lines.sum())


def test_air_without_signal_still_has_coils_of_unit_size():
    full = np.zeros((2, 8, 6), dtype=np.complex64)
    full[:, 4, 3] = 1.0
    image = numpy_image(full)
    image[:, :3] = 0
    scan = scan_from_kspace(numpy_kspace(image), noise_std=0.1)
    assert bool(torch.isfinite(torch.view_as_real(scan.coils)).all())
    assert torch.allclose(scan.coils.abs().square().sum(1), torch.ones(1, 8, 6), atol=1e-5)


def test_corner_noise_is_the_noise_of_the_corners(generator):
    image = torch.zeros(4, 60, 50, dtype=torch.complex128)
    image[:, 20:40, 15:35] = 7.0
    noise = 0.02 * torch.randn(2, 4, 60, 50, generator=generator, dtype=torch.float64)
    noisy = (image + torch.complex(noise[0], noise[1])).numpy()
    n = 2 * 4 * 4 * 144
    assert corner_noise_std(numpy_kspace(noisy)) == pytest.approx(0.02, rel=5 / math.sqrt(2 * n))
    with pytest.raises(ValueError, match="20 x 60 has no four corners"):
        corner_noise_std(np.ones((2, 20, 60)))
    with pytest.raises(ValueError, match="say nothing about noise"):
        corner_noise_std(np.zeros((2, 30, 30)))


def test_noise_of_the_measured_brains_is_what_was_published_for_them(data_folder):
    """Noise over the maximum of the zero-filled image, and the PSNR of that image."""
    for name, ratio, zero_filled_db in (
        ("brain_t1_8coil_full", 0.0053, 30.9),
        ("brain_t1_7coil_full", 0.0102, 25.9),
    ):
        full = np.load(data_folder / "kspace" / f"{name}.npy")
        scan = scan_from_kspace(full, random_lines(full.shape[1]))
        zero_filled = np.sqrt((np.abs(numpy_image(scan.kspace.samples[0].numpy())) ** 2).sum(0))
        assert scan.kspace.noise_std / zero_filled.max() == pytest.approx(ratio, abs=0.00006)
        reference = scan.truth[0, 0].abs().numpy()
        zero_filled = zero_filled * (zero_filled * reference).sum() / (zero_filled**2).sum()
        error = np.mean((zero_filled - reference) ** 2)
        assert 10 * np.log10(reference.max() ** 2 / error) == pytest.approx(zero_filled_db, abs=0.06)


@pytest.mark.parametrize(
    ("lines", "run"),
    [
        ([1, 0, 1, 1, 1, 0, 1], [0, 0, 1, 1, 1, 0, 0]),
        ([1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0]),
        ([0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]),
        ([1], [1]),
    ],
)
def test_centre_run_is_the_measured_stretch_round_the_centre(lines, run):
    assert centre_run(np.array(lines, dtype=bool)).tolist() == [bool(line) for line in run]


def test_all_faulty_settings_are_named_at_once():
    with pytest.raises(ValueError, match=r"n_slices is 0.*n_coils is -1.*noise is 0.*noise_correlation is 1"):
        ScanSettings(n_slices=0, n_coils=-1, noise=0.0, noise_correlation=1.0)
    with pytest.raises(ValueError, match=r"acceleration is 2\.5, needs a whole number"):
        ScanSettings(pattern="uniform", acceleration=2.5)


def test_unusable_arrays_are_refused():
    good = np.ones((2, 30, 30), dtype=np.complex64)
    with pytest.raises(ValueError, match=r"k-space has the shape \(30, 30\)"):
        scan_from_kspace(good[0])
    with pytest.raises(ValueError, match="k-space has NaN or infinite"):
        scan_from_kspace(np.where(np.arange(30) == 3, np.nan, good))
    with pytest.raises(ValueError, match=r"lines has the shape \(29,\)"):
        scan_from_kspace(good, np.ones(29, dtype=bool))
    with pytest.raises(ValueError, match="0 set"):
        scan_from_kspace(good, np.zeros(30, dtype=bool))
    with pytest.raises(ValueError, match="2 slice positions do not fit 1 slices"):
        scan_from_kspace(good, noise_std=1.0, slice_positions_mm=(0.0, 1.0))
    with pytest.raises(ValueError, match=r"image has the shape \(2, 2, 30, 30\)"):
        scan_from_image(np.ones((2, 2, 30, 30)), SMALL)
    with pytest.raises(ValueError, match="image has NaN"):
        scan_from_image(np.full((30, 30), np.inf), SMALL)
    with pytest.raises(ValueError, match="zero everywhere"):
        scan_from_image(np.zeros((30, 30)), SMALL)
