"""Radial and spiral readouts become the k-space that was measured, whatever their order, units and coils."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic_scan import OBJECT, image_of
from trajectory_protocol import (
    CORRECTED,
    FOV_MM,
    LARGER,
    MATRIX,
    RADIAL,
    SPIRAL,
    UNWHITENED,
    WIDE,
    assembled,
    changed,
    many_spots,
    readouts,
    recorded,
    sorter_of,
    without_margin,
)

from gadget.scan.assemble import AssemblySettings, NoiseSource
from gadget.scan.coil_compression import CompressionChoice, CompressionUse
from gadget.scan.trajectory_choice import TrajectoryChoice
from gadget.scan.trajectory_units import TrajectoryUnits
from gadget.wire.headers import AcquisitionFlag as Flag
from reconlib.kspace import NonuniformKSpace
from reconlib.reconstruction import zero_filled
from reconlib.trajectories.radial import SpokeShift

SCALE = {"radial": np.sqrt(2 / LARGER), "spiral": np.sqrt(1 / LARGER)}
"""From the samples of a unitary transform of the encoded grid to those of one of the reconstruction's."""


@pytest.mark.parametrize("trajectory", [RADIAL, SPIRAL], ids=["radial", "spiral"])
def test_samples_points_and_context_are_those_of_the_scan(trajectory):
    scan = recorded(trajectory, slice_positions_mm=(7.5,))

    (one,) = assembled(scan)

    kspace, context = one.kspace, one.context
    assert isinstance(kspace, NonuniformKSpace)
    scale = SCALE[scan.kind]
    assert kspace.shape == WIDE
    np.testing.assert_allclose(
        kspace.samples[0].numpy(), scale * scan.samples[0].reshape(3, -1), rtol=1e-6, atol=1e-6
    )
    expected = scan.points.reshape(-1, 2)[:, ::-1] / MATRIX
    np.testing.assert_allclose(kspace.trajectory[0].numpy(), expected, atol=1e-6)
    assert kspace.noise_std == pytest.approx(scale)
    assert context.recon_matrix[:2] == MATRIX[::-1]
    assert context.grid_matrix == WIDE[::-1]
    assert context.grid_fov_mm == pytest.approx((200.0, 240.0))
    assert context.position == (0.0, 0.0, 7.5)
    assert (context.n_coils, context.n_lines, context.is_complete) == (3, len(scan.points), True)
    assert context.n_lines_announced == len(scan.points)
    assert one.series is None


@pytest.mark.parametrize("trajectory", [RADIAL, SPIRAL], ids=["radial", "spiral"])
def test_the_weighted_adjoint_is_the_image_in_the_units_of_a_cartesian_scan(trajectory):
    (one,) = assembled(recorded(trajectory))

    image = without_margin(zero_filled(one.kspace)[0, 0].numpy())

    expected = np.sqrt((np.abs(image_of(OBJECT, MATRIX[::-1], FOV_MM[::-1])) ** 2).sum(axis=0))
    # Spots are wider than pixels, but k-space ends at a disc.
    assert np.abs(image - expected).max() < 0.06 * expected.max()


@pytest.mark.parametrize("units", list(TrajectoryUnits)[1:], ids=lambda units: units.value)
def test_in_any_units_it_is_the_same_kspace(units):
    scan = recorded(RADIAL)
    (expected,) = assembled(scan)

    (one,) = assembled(scan, readouts(scan, units=units))

    assert torch.allclose(one.kspace.trajectory, expected.kspace.trajectory, atol=1e-6)
    assert torch.allclose(one.kspace.weights, expected.kspace.weights, rtol=1e-3)
    assert torch.equal(one.kspace.samples, expected.kspace.samples)
    assert any(f"trajectory in {units.words}" in note for note in one.context.notes)


def test_units_that_are_set_are_not_guessed():
    scan = recorded(RADIAL)
    units = TrajectoryChoice(units=TrajectoryUnits.PER_PIXEL, delay_correction=False)
    choice = replace(UNWHITENED, trajectory=units)
    halved = [replace(one, trajectory=one.trajectory / 3) for one in readouts(scan)]

    (one,) = assembled(scan, halved, choice)

    expected = scan.points.reshape(-1, 2)[:, ::-1] / MATRIX / 3
    np.testing.assert_allclose(one.kspace.trajectory[0].numpy(), expected, atol=1e-6)


def test_units_are_found_once_per_scan():
    scan = recorded(RADIAL)
    lines = readouts(scan)
    # The second slice alone would be refused: it lies in the middle of k-space only.
    second = [
        replace(changed(one, slice=1), trajectory=(0.18 * one.trajectory).astype(np.float32)) for one in lines
    ]

    first, other = assembled(scan, [*lines, *second])

    assert torch.allclose(other.kspace.trajectory, 0.18 * first.kspace.trajectory, atol=1e-6)


def test_the_order_of_readouts_changes_nothing():
    scan = recorded(RADIAL)
    lines = [changed(one, without=(Flag.LAST_IN_SLICE, Flag.LAST_IN_MEASUREMENT)) for one in readouts(scan)]
    shuffled = [lines[place] for place in np.random.default_rng(3).permutation(len(lines))]

    (expected,) = assembled(scan, lines)
    for order in (lines[::-1], shuffled):
        (one,) = assembled(scan, order)
        assert torch.equal(one.kspace.samples, expected.kspace.samples)
        assert torch.equal(one.kspace.trajectory, expected.kspace.trajectory)
        assert one.context == expected.context


def test_discarded_samples_are_left_out():
    scan = recorded(SPIRAL)
    lines = [changed(one, discard_pre=2, discard_post=5) for one in readouts(scan)]

    (one,) = assembled(scan, lines)

    kept = scan.points[:, 2:-5]
    np.testing.assert_allclose(
        one.kspace.trajectory[0].numpy(), kept.reshape(-1, 2)[:, ::-1] / MATRIX, atol=1e-6
    )
    assert one.kspace.samples.shape[2] == one.kspace.weights.shape[1] == kept.shape[0] * kept.shape[1]
    assert f"{7 * 12} of {scan.points[..., 0].size} samples left out" in one.context.notes


def test_the_scans_own_density_weights_are_taken():
    scan = recorded(SPIRAL)
    given = np.random.default_rng(2).uniform(0.5, 1, scan.points.shape[:2])

    (one,) = assembled(replace(scan, weights=given))

    ratio = one.kspace.weights[0].numpy() / given.reshape(-1)
    assert np.ptp(ratio) < 1e-4 * ratio.mean()


def test_discarded_samples_have_no_part_in_the_scale_of_the_scans_own_weights():
    scan = recorded(SPIRAL)
    given = np.ones(scan.points.shape[:2])
    lines = readouts(replace(scan, weights=given))
    given[:, :3] = 1000
    spoilt = [changed(one, discard_pre=3) for one in readouts(replace(scan, weights=given))]

    (expected,) = assembled(scan, [changed(one, discard_pre=3) for one in lines])
    (one,) = assembled(scan, spoilt)

    assert torch.allclose(one.kspace.weights, expected.kspace.weights, rtol=1e-3)


def test_points_on_a_grid_of_the_field_of_view_leave_no_margin():
    y, x = np.meshgrid(np.arange(40) - 20.0, (np.arange(72) - 36) / 2, indexing="ij")
    (one,) = assembled(recorded(np.stack([x, y], axis=-1)))
    # Twice oversampled along x only
    assert one.kspace.shape == (40, 40)
    assert one.context.grid_fov_mm == pytest.approx((200.0, 200.0))
    assert "reconstructed on 40 x 40 pixels, with a margin round the field of view" in one.context.notes


# Noise and coils

COVARIANCE = torch.tensor(
    [[2.0, 0.6 + 0.5j, 0], [0.6 - 0.5j, 1.0, 0.2j], [0, -0.2j, 0.5]], dtype=torch.complex128
)


def test_coils_are_whitened_with_the_noise_readouts():
    scan = recorded(RADIAL, noise_covariance=1e-4 * COVARIANCE)
    lines = readouts(scan, n_noise_readouts=256)

    (one,) = assembled(scan, lines, AssemblySettings(trajectory=TrajectoryChoice(delay_correction=False)))

    assert one.context.is_prewhitened
    assert one.kspace.noise_std == pytest.approx(SCALE["radial"])
    # Whatever the whitening matrix is, W^H W is the inverse of half the covariance.
    inverse = np.linalg.inv(0.5e-4 * COVARIANCE.numpy())
    raw = scan.samples[0].reshape(3, -1)[:, :200].astype(np.complex128)
    white = one.kspace.samples[0].numpy()[:, :200] / SCALE["radial"]
    expected = raw.conj().T @ inverse @ raw
    assert np.abs(white.conj().T @ white - expected).max() < 0.1 * np.abs(expected).max()


def test_coils_are_compressed_alike_in_all_slices():
    scan = recorded(RADIAL, noise_covariance=1e-4 * COVARIANCE)
    compression = CompressionChoice(use=CompressionUse.ALWAYS, n_virtual=2)
    lines = readouts(scan)
    again = [changed(one, contrast=1) for one in lines[32:]]

    first, second = assembled(scan, [*lines, *again], AssemblySettings(coil_compression=compression))

    assert first.context.n_coils == second.context.n_coils == 2
    assert torch.equal(first.kspace.samples, second.kspace.samples)
    assert any("compressed to 2" in note for note in first.context.notes)


def test_a_coil_without_signal_is_left_out():
    scan = recorded(RADIAL)
    scan.samples[:, 1] = 0

    (one,) = assembled(scan)

    assert one.context.n_coils == one.kspace.samples.shape[1] == 2


@pytest.mark.parametrize("trajectory", [RADIAL, SPIRAL], ids=["radial", "spiral"])
def test_noise_is_estimated_where_there_are_no_noise_readouts(trajectory):
    scan = recorded(trajectory)
    generator = np.random.default_rng(5)
    std = 0.02 * np.abs(scan.samples).max()
    noise = generator.normal(size=(*scan.samples.shape, 2)) @ np.array([std, 1j * std])

    (one,) = assembled(replace(scan, samples=(scan.samples + noise).astype(np.complex64)), None, DATA)

    assert one.kspace.noise_std == pytest.approx(SCALE[scan.kind] * std, rel=0.15)
    assert any("estimated from the outermost samples; not prewhitened" in n for n in one.context.notes)


DATA = AssemblySettings(noise=NoiseSource.DATA)


def test_calibration_readouts_are_no_data():
    scan = recorded(SPIRAL)
    sorter = sorter_of(scan)
    calibration = [changed(one, Flag.IS_PARALLEL_CALIBRATION) for one in readouts(scan)[:3]]

    found = [one for readout in [*calibration, *readouts(scan)] for one in sorter.add(readout)]

    assert [one.context.n_lines for one in found] == [12]
    assert "not used: 3 calibration-only readouts of a non-Cartesian encoding (none are needed)" in (
        sorter.report()
    )


# Gradient delays

SHIFT = SpokeShift(xx=0.4, yy=-0.3, xy=0.1)


def test_gradient_delays_are_corrected_once_per_scan():
    trajectory = replace(RADIAL, shift=SHIFT)
    true = trajectory.points(MATRIX, FOV_MM, shifted=True)
    scan = recorded(trajectory, many_spots(), really=true)
    lines = readouts(scan)
    empty = [replace(changed(one, slice=1), data=0 * one.data) for one in lines]

    first, second = assembled(scan, [*lines, *empty], CORRECTED)
    (as_it_is,) = assembled(scan, lines)

    inside = np.abs(true).max(axis=-1).reshape(-1) < 15
    expected = (true.reshape(-1, 2)[:, ::-1] / MATRIX)[inside]
    stated = (scan.points.reshape(-1, 2)[:, ::-1] / MATRIX)[inside]
    for one in (first, second):
        found = one.kspace.trajectory[0].numpy()[inside]
        assert np.abs(found - expected).max() < 0.15 * np.abs(stated - expected).max()
        assert any("gradient delays corrected: spokes shifted by" in note for note in one.context.notes)
    np.testing.assert_allclose(as_it_is.kspace.trajectory[0].numpy()[inside], stated, atol=1e-6)
    assert not any("delays" in note for note in as_it_is.context.notes)


def test_delays_are_found_anew_for_another_orientation():
    trajectory = replace(RADIAL, shift=SHIFT)
    straight = recorded(trajectory, many_spots())
    shifted = recorded(trajectory, many_spots(), really=trajectory.points(MATRIX, FOV_MM, shifted=True))
    turned = [changed(one, slice=1, read_dir=(0, 1, 0), phase_dir=(-1, 0, 0)) for one in readouts(shifted)]

    first, second = assembled(straight, [*readouts(straight), *turned], CORRECTED)

    assert any("no gradient delays to correct" in note for note in first.context.notes)
    assert any("gradient delays corrected" in note for note in second.context.notes)


def test_phases_of_spokes_are_taken_out_where_delays_are_corrected():
    scan = recorded(RADIAL, many_spots())
    phases = 0.3 * np.cos(np.arange(len(scan.points)))
    phases -= np.angle(np.exp(1j * phases).sum())
    lines = [
        replace(one, data=(one.data * np.exp(1j * phase)).astype(np.complex64))
        for one, phase in zip(readouts(scan, n_noise_readouts=0), phases, strict=True)
    ]
    straight = readouts(scan, n_noise_readouts=0)

    (expected,) = assembled(scan, straight, CORRECTED)
    (found,) = assembled(scan, lines, CORRECTED)
    (as_it_is,) = assembled(scan, lines, UNWHITENED)

    tolerance = 1e-3 * float(expected.kspace.samples.abs().max())
    torch.testing.assert_close(found.kspace.samples, expected.kspace.samples, rtol=0, atol=tolerance)
    words = "phases of spokes corrected where they cross: 0.21 rad (root mean square), at most 0.3"
    assert any(words in note for note in found.context.notes)
    assert not any("phases" in note for note in (*expected.context.notes, *as_it_is.context.notes))
