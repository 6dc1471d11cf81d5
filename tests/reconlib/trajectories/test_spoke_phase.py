"""Phases of spokes from the centre of k-space, where all of them cross."""

import numpy as np
import pytest

from reconlib.trajectories.angles import uniform_angles
from reconlib.trajectories.radial import radial_points, spoke_geometry
from reconlib.trajectories.spoke_phase import spoke_phases

ANGLES = uniform_angles(21)
POINTS = radial_points(ANGLES, 48, spacing=0.5)


@pytest.fixture
def geometry():
    found = spoke_geometry(POINTS)
    assert found is not None
    return found


def samples():
    """Gaussian spots in closed form, (coil, spoke, sample), that three coils see differently."""
    rng = np.random.default_rng(3)
    total = np.zeros((3, *POINTS.shape[:2]), np.complex128)
    for _ in range(6):
        place, width = rng.uniform(-0.3, 0.3, 2), rng.uniform(0.02, 0.05)
        seen = rng.normal(size=3) + 1j * rng.normal(size=3)
        spot = np.exp(-2 * (np.pi * width) ** 2 * (POINTS**2).sum(-1) - 2j * np.pi * POINTS @ place)
        total += seen[:, None, None] * spot * width**2
    return total


def test_phases_are_found_less_their_mean(geometry):
    phases = 0.4 * np.cos(ANGLES) + np.random.default_rng(1).uniform(-0.5, 0.5, len(ANGLES))
    turned = samples() * np.exp(1j * phases)[:, None]

    found = spoke_phases(turned, geometry)

    expected = phases - np.angle(np.exp(1j * phases).sum())
    assert found == pytest.approx(expected, abs=1e-6)


def test_spokes_in_phase_have_none(geometry):
    assert spoke_phases(samples(), geometry) == pytest.approx(0, abs=1e-9)


def test_magnitudes_that_change_from_spoke_to_spoke_play_no_part(geometry):
    fading = np.linspace(1.2, 0.8, len(ANGLES))

    assert spoke_phases(samples() * fading[:, None], geometry) == pytest.approx(0, abs=1e-9)


def test_without_signal_phases_are_zero(geometry):
    assert not spoke_phases(np.zeros((3, *POINTS.shape[:2]), np.complex64), geometry).any()


def test_samples_of_other_spokes_are_refused(geometry):
    with pytest.raises(ValueError, match=r"shape \(3, 4, 48\) do not belong to 21 spokes"):
        spoke_phases(np.zeros((3, 4, 48), np.complex64), geometry)
