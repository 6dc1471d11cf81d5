"""Simulated radial and spiral scans: samples, truth and noise belong together; no inverse crime."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from reconlib.operators.fourier import fft2c
from reconlib.simulation.nonuniform_scan import (
    simulate_head_nonuniform,
    simulate_phantom_scan,
    transform_at,
)
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.simulation.scan_settings import ScanSettings
from reconlib.trajectories.radial import SpokeShift

SMALL = ScanSettings(matrix=(36, 32), fov_mm=(225.0, 200.0), n_coils=3, noise=1e-9)
RADIAL = NonuniformSettings(n_readouts=5, oversampling=1)
KINDS = pytest.mark.parametrize("simulate", [simulate_phantom_scan, simulate_head_nonuniform])


@KINDS
def test_a_scan_has_the_asked_axes(simulate):
    scan = simulate(SMALL, NonuniformSettings(n_readouts=5))

    assert scan.samples.shape == (1, 3, 5, 64)
    assert scan.points.shape == (5, 64, 2)
    assert scan.truth.shape == (1, 1, 36, 32)
    assert scan.coils.shape == (1, 3, 36, 32)
    assert scan.matrix == (36, 32)
    assert scan.samples.dtype == scan.truth.dtype == scan.coils.dtype == torch.complex64


@KINDS
def test_where_spokes_meet_the_grid_samples_are_those_of_coils_times_truth(simulate):
    scan = simulate(SMALL, RADIAL)
    grid = fft2c((scan.coils * scan.truth).to(torch.complex128))

    # the first spoke is the line ky = 0, with one sample per column
    expected = grid[:, :, 18, :]
    assert (scan.samples[:, :, 0] - expected).abs().max() < 1e-5 * expected.abs().max()


@KINDS
def test_off_the_grid_the_grid_would_give_something_else(simulate):
    scan = simulate(SMALL, RADIAL)

    crime = transform_at((scan.coils * scan.truth).to(torch.complex128), scan.points)

    outer = np.abs(scan.points).max(axis=(-1)) > 8
    difference = (scan.samples - crime)[0, :, outer].abs()
    assert float(difference.norm() / scan.samples[0, :, outer].norm()) > 0.02


@KINDS
def test_a_delay_is_in_the_samples_and_not_in_the_points(simulate):
    delayed = simulate(SMALL, replace(RADIAL, shift=SpokeShift(xx=1.0)))
    scan = simulate(SMALL, RADIAL)

    assert np.array_equal(delayed.points, scan.points)
    assert torch.allclose(delayed.samples[:, :, 0, :-1], scan.samples[:, :, 0, 1:], atol=1e-4)


@pytest.mark.parametrize("oversampling", [1, 2])
def test_noise_is_a_share_of_the_truth_for_samples_one_cycle_apart(oversampling):
    settings = replace(SMALL, noise=0.05, noise_correlation=0.3)
    trajectory = NonuniformSettings(n_readouts=40, oversampling=oversampling)
    one, other = (simulate_phantom_scan(replace(settings, noise_seed=seed), trajectory) for seed in (0, 1))

    std = float(torch.view_as_real(one.samples - other.samples).std()) / np.sqrt(2)

    expected = 0.05 * float(one.truth.abs().max()) * np.sqrt(oversampling)
    assert one.noise_std == pytest.approx(expected)
    assert std == pytest.approx(expected, rel=0.03)


def test_spokes_are_round_in_mm_and_reach_the_nearer_edge():
    points = NonuniformSettings(n_readouts=8).points((40, 32), (300.0, 200.0))

    per_mm = np.abs(points / np.array([200.0, 300.0]))
    # 40 pixels over 300 mm are coarser than 32 over 200 mm
    # 26.67 samples on either side, of which 26 are whole: 13 cycles per 200 mm
    assert np.hypot(per_mm[..., 0], per_mm[..., 1]).max() == pytest.approx(0.065)
    assert points[4, 0] == pytest.approx([0.0, -19.5], abs=1e-6)


@pytest.mark.parametrize("order", ["uniform", "golden"])
def test_a_full_spiral_reaches_the_edge_with_turns_one_cycle_apart(order):
    settings = NonuniformSettings(shape="spiral", n_readouts=8, n_full=8, order=order)

    points = settings.points((64, 64), (200.0, 200.0))

    assert np.hypot(points[..., 0], points[..., 1]).max() == pytest.approx(32.0)
    # along the x axis, all interleaves together
    radii = np.sort([radius for one in points for radius in crossings(one)])
    if order == "uniform":
        assert np.diff(radii[radii > 4]) == pytest.approx(1.0, abs=0.08)
    assert settings.full_readouts((64, 64)) == 8


def crossings(points):
    """Radii at which a path crosses the positive x axis."""
    upwards = (points[:-1, 1] < 0) & (points[1:, 1] >= 0) & (points[1:, 0] > 0)
    return points[1:, 0][upwards]


def test_golden_interleaves_have_the_whole_circle_to_themselves():
    angles = NonuniformSettings(shape="spiral", order="golden", n_readouts=3).angles

    assert np.degrees(angles) == pytest.approx([0.0, 222.4922, 84.9845], abs=1e-4)


def test_a_full_radial_scan_has_half_pi_times_the_matrix_spokes():
    assert NonuniformSettings().full_readouts((128, 100)) == 202


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_readouts": 0}, "n_readouts is 0, needs at least 1"),
        ({"oversampling": 0.5}, "oversampling is 0.5, needs at least 1"),
        ({"golden_number": 0}, "golden_number is 0"),
        ({"density": 0, "n_full": 0}, "n_full is 0, needs at least 1; density is 0"),
        ({"shape": "spiral", "shift": SpokeShift(xx=1)}, "shift is that of spokes"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        NonuniformSettings(**changes)


def test_the_transform_of_an_image_is_its_exact_sum():
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 1, 5, 6, generator=generator, dtype=torch.complex128)
    points = np.random.default_rng(2).uniform(-2.5, 2.5, (3, 4, 2))

    samples = transform_at(images, points).numpy()

    expected = np.zeros((2, 1, 3, 4), np.complex128)
    for y in range(5):
        for x in range(6):
            turns = points[..., 0] * (x - 3) / 6 + points[..., 1] * (y - 2) / 5
            expected += images[:, :, y, x].numpy()[..., None, None] * np.exp(-2j * np.pi * turns)
    assert np.abs(samples - expected / np.sqrt(30)).max() < 1e-8
