"""Units of trajectories: recognised by range, matrix and field of view, or refused."""

from dataclasses import replace

import numpy as np
import pytest

from gadget.errors import ScanError
from gadget.scan.header import Space
from gadget.scan.trajectory import slice_trajectory
from gadget.scan.trajectory_grid import trajectory_grid
from gadget.scan.trajectory_units import TrajectoryUnits
from tests.gadget.scan.trajectory_scans import ENCODING, OVERSAMPLED, spokes, with_points

# 64 pixels over 0.32 m: a cycle per field of view is 1 / 64 per pixel, 3.125 per m, 19.635 rad/m
PER_CYCLE = {
    TrajectoryUnits.PER_PIXEL: 1 / 64,
    TrajectoryUnits.PER_FOV: 1.0,
    TrajectoryUnits.PER_METRE: 1 / 0.32,
    TrajectoryUnits.RAD_PER_METRE: 2 * np.pi / 0.32,
}


@pytest.mark.parametrize("units", PER_CYCLE, ids=lambda units: units.value)
def test_each_unit_system_is_recognised_and_gives_the_same_points(units):
    read = slice_trajectory(with_points(spokes() * PER_CYCLE[units]), ENCODING)

    assert read.units is units
    assert np.allclose(read.points, spokes(), atol=1e-5)
    assert read.kept.all()
    assert read.notes == (f"trajectory in {units.words}",)


@pytest.mark.parametrize("units", PER_CYCLE, ids=lambda units: units.value)
def test_the_configuration_overrides_what_would_be_recognised(units):
    # a quarter of the way to the edge: 1/m would be taken for cycles per field of view, rad/m for 1/m
    points = 0.25 * spokes(60)
    read = slice_trajectory(with_points(points * PER_CYCLE[units]), ENCODING, units=units)

    assert read.units is units
    assert np.allclose(read.points, points, atol=1e-5)


def test_cycles_per_encoded_field_of_view_are_told_from_those_of_the_image():
    points = spokes(n_samples=128, spacing=0.5)

    encoded = slice_trajectory(with_points(points * np.array([2.0, 1.0])), OVERSAMPLED)
    image = slice_trajectory(with_points(points), OVERSAMPLED)

    assert encoded.units is TrajectoryUnits.PER_ENCODED_FOV
    assert image.units is TrajectoryUnits.PER_FOV
    assert np.allclose(encoded.points, points, atol=1e-5)
    assert np.allclose(image.points, points, atol=1e-5)


def test_units_that_could_be_two_are_taken_with_a_warning_where_one_reaches_the_edge():
    # 64 pixels over 1.25 m: 1/m is 1.25 cycles per field of view
    wide = with_fov(ENCODING, 1250.0)

    read = slice_trajectory(with_points(spokes() / 1.25), wide)

    assert read.units is TrajectoryUnits.PER_METRE
    assert np.allclose(read.points, spokes(), atol=1e-5)
    assert "it could be cycles per field of view, too. If so, set trajectory.units" in read.notes[-1]


def test_units_that_could_be_two_are_refused_where_both_reach_far():
    # 64 pixels over 1.05 m
    with pytest.raises(ScanError, match=r"fits several units.*cycles per field of view: 0\.952.*1/m: 1"):
        slice_trajectory(with_points(spokes() / 1.05), with_fov(ENCODING, 1050.0))


def with_fov(encoding, fov_mm):
    space = Space(matrix=(64, 64, 1), fov_mm=(fov_mm, fov_mm, 5.0))
    return replace(encoding, encoded=space, recon=space)


def test_a_scan_of_low_resolution_is_taken_with_a_warning():
    read = slice_trajectory(with_points(0.25 * spokes(60) / 64), ENCODING)

    assert read.units is TrajectoryUnits.PER_PIXEL
    assert np.allclose(read.points, 0.25 * spokes(60), atol=1e-5)
    assert "taken as cycles per pixel, in which it reaches only 25 % of the way" in read.notes[-1]


def test_low_resolution_that_could_be_an_overshoot_in_other_units_is_refused():
    # 0.36 of the way in 1/m would be 1.125 of the way in cycles per field of view
    with pytest.raises(ScanError, match=r"fits no units.*cycles per field of view: 1\.1[23].*1/m: 0\.36"):
        slice_trajectory(with_points(0.36 * spokes(60) / 0.32), ENCODING)


def test_what_fits_nothing_is_refused_with_its_range_and_what_to_do():
    with pytest.raises(ScanError) as caught:
        slice_trajectory(with_points(1.2 * spokes() / 64), ENCODING)

    words = str(caught.value)
    assert "kx from -0.6 to 0.594867, ky from -0.6 to 0.58125) fits no units" in words
    assert "cycles per pixel: 1.2, " in words
    assert "64 x 64 pixels over 320 x 320 mm" in words
    assert "set trajectory.units to one of cycles_per_pixel, cycles_per_fov, cycles_per_m, rad_per_m" in words


def test_an_overshoot_in_given_units_is_refused_with_minimum_and_maximum():
    with pytest.raises(ScanError) as caught:
        slice_trajectory(with_points(1.2 * spokes()), ENCODING, units=TrajectoryUnits.PER_FOV)

    assert "kx from -38.4 to 38.0715, ky from -38.4 to 37.2" in str(caught.value)
    assert "goes beyond the edge of k-space, which is at 32 and 32" in str(caught.value)


def test_points_within_half_a_cycle_of_the_edge_are_moved_to_it():
    read = slice_trajectory(with_points((spokes() - [0.4, 0.0]) / 64), ENCODING)

    assert read.points.min() == -32.0
    assert read.points[0, 0, 0] == -32.0
    assert read.points[0, 1, 0] == pytest.approx(-31.4, abs=1e-5)
    assert read.kept.all()


def test_samples_further_out_are_cut_off_with_a_warning():
    read = slice_trajectory(with_points(1.04 * spokes() / 64), ENCODING)

    beyond = np.abs(1.04 * spokes()).max(axis=-1) > 32.5
    assert 0 < beyond.sum() < 30
    assert np.array_equal(read.kept, ~beyond)
    assert f"{beyond.sum()} of 1536 samples lie up to 1.28 cycles per field of view beyond" in read.notes[-1]
    assert np.abs(read.points).max() <= 32.0


def test_the_grid_is_the_reconstructed_field_of_view_in_encoded_pixels():
    # encoded pixels of 5 mm; the image is interpolated to 2.5 mm over half of the field of view along y
    encoding = replace(OVERSAMPLED, recon=Space(matrix=(128, 64, 1), fov_mm=(320.0, 160.0, 5.0)))

    grid = trajectory_grid(encoding)

    assert grid.matrix == (64, 32)
    assert grid.fov_mm == (320.0, 160.0)
    assert grid.notes == ()


def test_an_encoded_matrix_that_counts_spokes_does_not_stretch_the_pixels():
    encoding = replace(ENCODING, encoded=Space(matrix=(128, 24, 1), fov_mm=(640.0, 640.0, 5.0)))

    grid = trajectory_grid(encoding)

    assert grid.matrix == (64, 64)
    assert "24 lines over 640 mm, pixels that are not square: taken as a number of readouts" in grid.notes[0]


def test_a_field_of_view_that_was_not_doubled_is_warned_about():
    encoding = replace(ENCODING, encoded=Space(matrix=(128, 128, 1), fov_mm=(320.0, 320.0, 5.0)))

    grid = trajectory_grid(encoding)

    assert grid.matrix == (128, 128)
    assert "encodedSpace.fieldOfView_mm.x has to be twice as large" in grid.notes[0]
