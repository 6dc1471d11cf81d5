"""Shifts of spokes by gradient delays, on samples in closed form and on measured ones."""

import numpy as np
import pytest

from reconlib.trajectories.angles import golden_angle, stepped_angles, uniform_angles
from reconlib.trajectories.radial import SpokeShift, radial_points, spoke_geometry
from reconlib.trajectories.spoke_shift import estimate_shift

SHIFT = SpokeShift(xx=0.6, yy=-0.35, xy=0.12)
CASES = {
    "uniform": (uniform_angles(40), 1.0),
    "oversampled": (uniform_angles(40), 0.5),
    "golden": (stepped_angles(21, golden_angle()), 0.5),
    "tiny golden": (stepped_angles(34, golden_angle(7)), 0.5),
    "whole circle": (uniform_angles(45, full_circle=True), 1.0),
}


def spots(points, noise=0.0, n_spots=12, seed=11):
    """Samples (coil, spoke, sample) of Gaussian spots that six coils see differently."""
    rng = np.random.default_rng(seed)
    total = np.zeros((6, *points.shape[:2]), np.complex128)
    for _ in range(n_spots):
        place, width = rng.uniform(-0.3, 0.3, 2), rng.uniform(0.01, 0.05)
        amplitude = rng.normal(size=6) + 1j * rng.normal(size=6)
        transform = np.exp(-2 * (np.pi * width) ** 2 * (points**2).sum(-1) - 2j * np.pi * points @ place)
        total += amplitude[:, None, None] * transform * width**2
    scale = noise * np.abs(total).max()
    return total + scale * (rng.normal(size=total.shape) + 1j * rng.normal(size=total.shape))


def estimated(angles, spacing, shift, noise=0.0, n_samples=64):
    nominal = spoke_geometry(radial_points(angles, n_samples, spacing=spacing))
    samples = spots(radial_points(angles, n_samples, spacing=spacing, shift=shift), noise)
    assert nominal is not None
    return estimate_shift(samples, nominal)


@pytest.mark.parametrize("case", CASES)
def test_a_known_shift_is_found(case):
    found = estimated(*CASES[case], SHIFT)

    assert found is not None
    assert np.abs(found.shift.matrix - SHIFT.matrix).max() < 0.02
    assert found.is_sure
    assert found.size == pytest.approx(np.abs(np.linalg.eigvalsh(SHIFT.matrix)).max(), abs=0.02)


def test_a_shift_of_several_samples_is_found():
    shift = SpokeShift(xx=3.2, yy=2.5)

    found = estimated(*CASES["oversampled"], shift)

    assert found is not None
    assert np.abs(found.shift.matrix - shift.matrix).max() < 0.05


def test_noise_of_one_percent_of_the_largest_sample_hardly_matters():
    found = estimated(*CASES["golden"], SHIFT, noise=0.01)

    assert found is not None
    assert np.abs(found.shift.matrix - SHIFT.matrix).max() < 0.1


def test_spokes_with_phases_of_their_own_are_shifted_alike():
    angles, spacing = CASES["uniform"]
    nominal = spoke_geometry(radial_points(angles, 64, spacing=spacing))
    samples = spots(radial_points(angles, 64, spacing=spacing, shift=SHIFT))
    turned = samples * np.exp(1j * np.random.default_rng(2).uniform(-1, 1, len(angles)))[:, None]
    assert nominal is not None

    found = estimate_shift(turned, nominal)

    assert found is not None
    assert np.abs(found.shift.matrix - SHIFT.matrix).max() < 0.02


def test_a_shift_across_the_spokes_counts_where_points_state_it():
    # points that already hold half of the shift: the rest is found
    angles, spacing = CASES["uniform"]
    half = SpokeShift(xx=0.3, yy=-0.175, xy=0.06)
    nominal = spoke_geometry(radial_points(angles, 64, spacing=spacing, shift=half))
    assert nominal is not None

    found = estimate_shift(spots(radial_points(angles, 64, spacing=spacing, shift=SHIFT)), nominal)

    assert found is not None
    assert np.abs(found.shift.matrix - half.matrix).max() < 0.02


def test_noise_alone_says_nothing_for_sure():
    found = estimated(*CASES["golden"], SHIFT, noise=1e6)

    assert found is None or not found.is_sure


@pytest.mark.parametrize("seed", [0, 2, 4, 6, 7])
@pytest.mark.parametrize("n_spots", [1, 2])
def test_one_spot_or_two_say_nothing_for_sure(n_spots, seed):
    """Crossings found by such objects agree, and are wrong together by up to 0.4 samples."""
    angles, spacing = CASES["uniform" if seed % 2 == 0 else "golden"]
    nominal = spoke_geometry(radial_points(angles, 64, spacing=spacing))
    samples = spots(radial_points(angles, 64, spacing=spacing, shift=SHIFT), n_spots=n_spots, seed=seed)
    assert nominal is not None

    found = estimate_shift(samples, nominal)

    assert found is None or not found.is_sure


def test_three_spots_are_enough():
    angles, spacing = CASES["uniform"]
    nominal = spoke_geometry(radial_points(angles, 64, spacing=spacing))
    samples = spots(radial_points(angles, 64, spacing=spacing, shift=SHIFT), n_spots=3, seed=0)
    assert nominal is not None

    found = estimate_shift(samples, nominal)

    assert found is not None
    assert found.is_sure
    assert np.abs(found.shift.matrix - SHIFT.matrix).max() < 0.1


def test_spokes_that_never_cross_at_an_angle_say_nothing():
    assert estimated(np.radians([0.0, 10.0, 20.0, 180.0]), 1.0, SHIFT) is None


def test_samples_of_other_spokes_are_refused():
    geometry = spoke_geometry(radial_points(uniform_angles(5), 16))
    assert geometry is not None

    with pytest.raises(ValueError, match=r"shape \(2, 4, 16\) do not belong to 5 spokes"):
        estimate_shift(np.zeros((2, 4, 16), np.complex64), geometry)


def test_the_measured_phantom_has_the_shift_that_bart_saw(data_folder):
    """BART's estimate, told by the file's note: -0.614, -0.652, -0.001, of a centre half a sample earlier."""
    file = np.load(data_folder / "kspace" / "phantom_16coil_radial.npz")
    stated = spoke_geometry(file["coord"].astype(np.float64))
    assert stated is not None
    centred = spoke_geometry(radial_points(stated.angles, 384))
    assert centred is not None

    found = estimate_shift(file["ksp"], centred)

    assert found is not None
    assert found.is_sure
    shift = found.shift
    assert [shift.xx - 0.5, shift.yy - 0.5, shift.xy] == pytest.approx([-0.614, -0.652, -0.001], abs=0.05)
