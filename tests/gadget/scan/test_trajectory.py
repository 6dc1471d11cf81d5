"""Trajectories of readouts: columns, missing and faulty ones, delays."""

from dataclasses import replace

import numpy as np
import pytest

from gadget.errors import ScanError
from gadget.scan.header import Space
from gadget.scan.trajectory import corrected_for_delays, delays_of, shifted, slice_trajectory
from gadget.wire.messages import Acquisition
from tests.gadget.scan.trajectory_scans import (
    ENCODING,
    partitions,
    spokes,
    with_points,
    without_points,
)
from tests.synthetic_scan import readout

SPIRAL = replace(ENCODING, trajectory="spiral")


def with_columns(*more: np.ndarray | float) -> list[Acquisition]:
    """Readouts of spokes per pixel with further columns."""
    points = spokes() / 64
    columns = [np.broadcast_to(column, points.shape[:2])[..., None] for column in more]
    return with_points(np.concatenate([points, *columns], axis=-1))


def test_a_third_column_of_zeros_is_nothing():
    read = slice_trajectory(with_columns(0.0), ENCODING)

    assert read.weights is None
    assert np.allclose(read.points, spokes(), atol=1e-5)
    assert read.notes == ("trajectory in cycles per pixel",)


def test_a_third_column_that_is_nowhere_negative_is_a_density_weight():
    ramp = np.abs(np.arange(64) - 32.0)

    read = slice_trajectory(with_columns(ramp), ENCODING)

    assert read.weights is not None
    assert np.array_equal(read.weights, np.tile(ramp, (24, 1)))
    assert "third dimension of the trajectory taken as density weights" in read.notes


def test_in_a_stack_a_constant_third_column_is_kz():
    read = slice_trajectory(with_columns(0.25), partitions(ENCODING, 4))

    assert read.weights is None
    assert "third dimension of the trajectory taken as kz of a stack" in read.notes


def test_in_a_stack_a_third_column_that_varies_and_is_not_negative_is_a_weight():
    ramp = np.linspace(0, 1, 64, dtype=np.float32)

    read = slice_trajectory(with_columns(ramp), partitions(ENCODING, 4))

    assert read.weights is not None
    assert np.array_equal(read.weights, np.tile(ramp, (24, 1)))


def test_a_fourth_column_is_the_weight():
    read = slice_trajectory(with_columns(-0.25, 2.0), partitions(ENCODING, 4))

    assert read.weights is not None
    assert (read.weights == 2.0).all()


@pytest.mark.parametrize("encoding", [ENCODING, partitions(ENCODING, 4)], ids=["2-D", "3-D"])
def test_a_kooshball_is_refused_by_name(encoding):
    message = r"third dimension of the trajectory goes from -0\.5 to 0\.5, along readouts: .*kooshball"
    with pytest.raises(ScanError, match=message):
        slice_trajectory(with_columns(np.linspace(-0.5, 0.5, 64)), encoding)


def test_negative_weights_are_refused():
    with pytest.raises(ScanError, match=r"density weights of the trajectory go from -0\.25 to -0\.25"):
        slice_trajectory(with_columns(0.0, -0.25), ENCODING)


@pytest.mark.parametrize(("n_columns", "words"), [(1, "1 dimension"), (5, "5 dimension")])
def test_other_dimensions_are_refused(n_columns, words):
    with pytest.raises(ScanError, match=rf"{words}\(s\); needed are 2 \(kx, ky\), 3 "):
        slice_trajectory(with_points(np.ones((4, 64, n_columns))), ENCODING)


def test_readouts_of_unlike_dimensions_are_refused():
    mixed = with_points(spokes() / 64)[:12] + with_columns(0.0)[12:]

    with pytest.raises(ScanError, match="trajectories of 2 and 3 dimensions; they must have one kind"):
        slice_trajectory(mixed, ENCODING)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_refused_with_the_readout(value):
    points = spokes() / 64
    points[7, 3, 1] = points[9, 0, 0] = value

    with pytest.raises(ScanError, match=r"NaN or infinite values in 2 of 24 readouts, first in readout 107"):
        slice_trajectory(with_points(points), ENCODING)


def test_samples_that_were_halved_without_their_trajectory_are_recognised():
    with pytest.raises(ScanError, match=r"32 samples and 64 points.*RemoveROOversamplingGadget"):
        slice_trajectory(with_points(spokes() / 64, n_samples=32), ENCODING)


def test_another_number_of_points_than_samples_is_refused():
    with pytest.raises(ScanError, match="Readout 100 has 60 samples, but 64 points of its trajectory"):
        slice_trajectory(with_points(spokes() / 64, n_samples=60), ENCODING)


def test_readouts_of_unlike_lengths_are_refused():
    mixed = with_points(spokes() / 64)[:12] + with_points(spokes(n_samples=48) / 48)[12:]

    with pytest.raises(ScanError, match="has 48 samples, and others of its slice have 64"):
        slice_trajectory(mixed, ENCODING)


def test_too_few_readouts_are_refused_with_how_much_they_touch():
    # 2 spokes of 64 samples that share the centre: 127 of pi / 4 * 64^2 = 3217 cells
    with pytest.raises(ScanError, match=r"2 readout\(s\) touch 3\.9 % of the k-space of 64 x 64 pixels; at"):
        slice_trajectory(with_points(spokes(2) / 64), ENCODING)

    assert slice_trajectory(with_points(spokes(3) / 64), ENCODING).points.shape == (3, 64, 2)


def test_how_much_of_what_they_reach_is_touched_whatever_the_pixels():
    few = slice_trajectory(with_points(spokes(4) / 64), ENCODING)
    cells = {(round(x), round(y)) for x, y in spokes(4).reshape(-1, 2)}
    assert few.coverage == pytest.approx(len(cells) / (np.pi * 32**2), rel=0.02)
    # twice as wide pixels along x: the disc that spokes reach is an ellipse of cells, half of the band's
    wide = Space(matrix=(64, 32, 1), fov_mm=(320.0, 320.0, 5.0))
    encoding = replace(ENCODING, encoded=wide, recon=wide)
    for step, share in ((1.0, 1.0), (2.0, 0.5)):
        lines = np.arange(-16, 17, step)
        x, y = np.meshgrid(np.arange(-16, 16), lines)
        inside = np.stack([x, y], axis=-1) * (np.hypot(x, y) <= 16)[..., None]
        found = slice_trajectory(with_points(inside / np.array([64, 32])), encoding)
        assert found.coverage == pytest.approx(share, abs=0.06)


def test_no_readouts_have_no_trajectory():
    with pytest.raises(ScanError, match="A slice has no readouts"):
        slice_trajectory([], ENCODING)


def test_discarded_samples_are_left_out():
    read = slice_trajectory(with_points(spokes() / 64, discard_pre=5, discard_post=2), ENCODING)

    assert np.array_equal(read.kept, np.tile((np.arange(64) >= 5) & (np.arange(64) < 62), (24, 1)))


def test_a_spiral_without_a_trajectory_is_refused():
    with pytest.raises(ScanError, match=r"no trajectory, and encoding\[0\] is 'spiral': only plain radial"):
        slice_trajectory(without_points(list(range(24))), SPIRAL)


def test_a_trajectory_of_zeros_is_none():
    read = slice_trajectory(with_points(np.zeros((24, 64, 2))), ENCODING)

    assert read.is_built
    assert np.allclose(read.points, spokes())


def spot_kspace(points: np.ndarray) -> np.ndarray:
    """Samples (coil, readout, sample) of Gaussian spots that four coils see differently."""
    rng = np.random.default_rng(3)
    total = np.zeros((4, *points.shape[:2]), np.complex128)
    for _ in range(8):
        place, width = rng.uniform(-0.3, 0.3, 2), rng.uniform(0.02, 0.06)
        amplitude = rng.normal(size=4) + 1j * rng.normal(size=4)
        transform = np.exp(-2 * (np.pi * width) ** 2 * (points**2).sum(-1) - 2j * np.pi * points @ place)
        total += amplitude[:, None, None] * transform * width**2
    return total


def test_delays_are_found_and_corrected():
    # half a sample along x, a quarter the other way along y
    angle = np.pi * np.arange(24) / 24
    true = spokes() + np.stack([0.5 * np.cos(angle), -0.25 * np.sin(angle)], axis=-1)[:, None]
    read = slice_trajectory(with_points(spokes() / 64), ENCODING)

    corrected = corrected_for_delays(read, spot_kspace(true))

    assert np.abs(corrected.points - np.clip(true, -32, 32)).max() < 0.02
    assert "gradient delays corrected: spokes shifted by 0.5" in corrected.notes[-1]


def test_delays_are_found_where_points_were_moved_to_the_edge():
    # all spokes start half a cycle beyond the edge, as centred between samples
    stated = spokes() * 32.4 / 32
    angle = np.pi * np.arange(24) / 24
    true = stated + np.stack([0.5 * np.cos(angle), 0.3 * np.sin(angle)], axis=-1)[:, None]
    read = slice_trajectory(with_points(stated / 64), ENCODING)
    assert np.abs(read.points - stated).max() > 0.3

    corrected = corrected_for_delays(read, spot_kspace(true))

    inside = np.abs(true).max(axis=-1) < 32
    assert np.abs(corrected.points - true)[inside].max() < 0.03


def test_the_delays_of_one_frame_shift_the_spokes_of_another():
    angle = np.pi * np.arange(24) / 24
    true = spokes() + np.stack([0.5 * np.cos(angle), -0.25 * np.sin(angle)], axis=-1)[:, None]
    read = slice_trajectory(with_points(spokes() / 64), ENCODING)

    shift, note = delays_of(read, spot_kspace(true))

    assert shift is not None
    assert note is not None
    assert [shift.xx, shift.yy, shift.xy] == pytest.approx([0.5, -0.25, 0.0], abs=0.02)
    other = shifted(slice_trajectory(with_points(spokes(12) / 64), ENCODING), shift)
    assert np.abs(other.points - np.clip(true[::2], -32, 32)).max() < 0.02
    with pytest.raises(ValueError, match="Only full radial spokes have a shift"):
        shifted(slice_trajectory(with_points(spokes(40)[:, 32:] / 64), ENCODING), shift)


def test_spokes_that_lie_right_are_left_alone():
    read = slice_trajectory(with_points(spokes() / 64), ENCODING)

    corrected = corrected_for_delays(read, spot_kspace(spokes()))

    assert np.array_equal(corrected.points, read.points)
    assert "no gradient delays to correct" in corrected.notes[-1]


def test_noise_moves_no_spokes():
    read = slice_trajectory(with_points(spokes() / 64), ENCODING)
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(2, 4, 24, 64))

    corrected = corrected_for_delays(read, noise[0] + 1j * noise[1])

    assert np.array_equal(corrected.points, read.points)
    assert "gradient delays not corrected" in corrected.notes[-1]


def test_what_is_no_set_of_spokes_has_no_delays_to_correct():
    # rows of a Cartesian grid
    rows = np.stack(np.meshgrid(np.arange(64) - 32.0, np.arange(64) - 32.0), axis=-1)
    read = slice_trajectory(with_points(rows / 64), replace(ENCODING, trajectory="other"))

    assert corrected_for_delays(read, np.ones((2, 64, 64))) is read


def test_a_cartesian_grid_of_points_is_that_grid():
    rows = np.stack(np.meshgrid(np.arange(64) - 32.0, np.arange(64) - 32.0), axis=-1)
    read = slice_trajectory(with_points(rows / 64), replace(ENCODING, trajectory="other"))

    assert np.array_equal(read.points, rows)
    assert read.kept.all()


def test_a_readout_of_the_wire_is_enough():
    # as another program would send it: the header's own numbers, nothing of ours
    made = readout(np.ones((1, 64)), 0, trajectory_dimensions=2)
    readouts = [Acquisition(made.header, (row / 64).astype(np.float32), made.data) for row in spokes()]

    assert slice_trajectory(readouts, ENCODING).points.shape == (24, 64, 2)
