"""Volumes that are under-sampled in two directions: planes, put together again as partitions."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from simulated_scans import TOTAL_VARIATION, StandIn, reconstructor, settings
from stand_ins import ZeroFilled
from synthetic_slab import OBJECT, slab, slab_image

from gadget.reconstructor import ImageKind, Reconstructor
from gadget.scan.volume import AssembledVolume
from gadget.settings import Settings
from gadget.streaming_scan import ScanDevice
from gadget.volume_reconstruction import peak_bytes, reconstruct_volume
from reconlib.joint.outcome import Outcome
from reconlib.reconstruction import reconstruct

PLACES = (np.arange(13) - 6) * 7.0


def scattered(*, keep: float = 0.5, shape: tuple[int, int, int] = (13, 18, 26), along: int = 2) -> np.ndarray:
    """Lines of (kz, ky), or of (kz, kx) with ``along`` 1, at random round a measured centre."""
    rest = tuple(n for axis, n in enumerate(shape) if axis != along)
    lines = np.random.default_rng(8).random(rest) < keep
    centre = tuple(slice(n // 2 - 3, n // 2 + 3) for n in rest)
    lines[centre] = True
    return np.broadcast_to(np.expand_dims(lines, along), shape).copy()


def device(solver: Reconstructor, chosen: Settings) -> ScanDevice:
    return ScanDevice(reconstructor=solver, settings=chosen, prior=solver.load(chosen))


def partitions_of(volume: AssembledVolume, joint=None, chosen=None):
    chosen = TOTAL_VARIATION if chosen is None else chosen
    found = list(reconstruct_volume(volume, device(reconstructor(joint or StandIn()), chosen)))
    return [partition.context for partition, _ in found], [result for _, result in found]


def magnitudes(places: np.ndarray = PLACES, matrix: tuple[int, int, int] = (26, 18, 13)) -> np.ndarray:
    coils = slab_image(OBJECT, matrix, (208.0, 180.0, 91.0), places)
    return np.sqrt((np.abs(coils) ** 2).sum(axis=0))


@pytest.mark.parametrize("along", [2, 1], ids=["planes across x", "planes across y"])
@pytest.mark.parametrize("batch", [1, 7])
def test_planes_of_a_complete_object_put_together_are_the_object(along, batch):
    """Nearly all lines measured: what is missing is far out and empty."""
    mask = np.ones((13, 18, 26), bool)
    mask[(0, 0, slice(None)) if along == 2 else (0, slice(None), 0)] = False
    volume = slab(mask=mask)
    joint = ZeroFilled()

    contexts, results = partitions_of(volume, joint, settings(batch_slices=batch))

    n_planes, plane = (26, (13, 18)) if along == 2 else (18, (13, 26))
    assert [tuple(one.samples.shape[2:]) for one in joint.batches] == [plane] * -(-n_planes // batch)
    assert [one.slice for one in contexts] == list(range(13))
    assert [result.image.shape for result in results] == [(18, 26)] * 13
    np.testing.assert_allclose(np.stack([one.image for one in results]), magnitudes(), atol=6e-3)
    assert contexts[0].position == pytest.approx((10.0, -20.0 + 0.6 * 42, 30.0 - 0.8 * 42))
    name = "kx, which is complete, and reconstructed in planes (z, y)"
    if along == 1:
        name = "ky, which is complete, and reconstructed in planes (z, x)"
    assert contexts[0].notes[-1] == f"3-D: 13 of 13 partitions, transformed along {name}"


def test_partitions_are_interpolated_and_slice_oversampling_is_cropped():
    volume = slab(mask=scattered(keep=2.0), recon_matrix=(26, 18, 16), recon_fov_mm=(208.0, 180.0, 56.0))
    volume.mask[0, 0] = volume.mask[12, 0] = False
    volume.samples[:, 0, 0] = volume.samples[:, 12, 0] = 0

    contexts, results = partitions_of(volume, ZeroFilled())

    places = (np.arange(16) - 8) * 3.5
    np.testing.assert_allclose(np.stack([one.image for one in results]), magnitudes(places), atol=2e-2)
    assert [one.recon_fov_mm[2] for one in contexts] == pytest.approx([3.5] * 16)


def test_all_planes_share_one_brightness_and_noise_level():
    """The peak is that of the volume's zero-filled root sum of squares, not that of each plane."""
    mask = scattered()
    volume = slab(mask=mask, noise_std=0.02)
    samples = volume.samples * mask
    shifted = np.fft.ifftshift(samples, axes=(1, 2, 3))
    images = np.fft.fftshift(np.fft.ifftn(shifted, axes=(1, 2, 3), norm="ortho"), axes=(1, 2, 3))
    joint = StandIn()

    partitions_of(volume, joint)

    assert len(joint.calls) == 26
    (peak,) = {call["peak"] for call in joint.calls}
    assert peak == pytest.approx(float(np.sqrt((np.abs(images) ** 2).sum(axis=0)).max()), rel=1e-5)
    assert {one.noise_std for one in joint.batches} == {0.02}


def test_a_real_reconstruction_of_half_the_lines_gives_the_object_with_one_brightness_along_x():
    mask = scattered(keep=0.55, shape=(13, 18, 14))
    volume = slab((14, 18, 13), (208.0, 180.0, 91.0), mask=mask, noise_std=0.004)
    rng = np.random.default_rng(1)
    noise = rng.normal(size=volume.samples.shape) + 1j * rng.normal(size=volume.samples.shape)
    volume.samples[...] += 0.004 * noise * volume.mask
    zero_filled = partitions_of(replace(volume, samples=volume.samples.copy()), ZeroFilled())[1]
    _, results = partitions_of(volume, reconstruct, settings(solver__iterations=80, batch_slices=14))

    found, truth = np.stack([one.image for one in results]), magnitudes(matrix=(14, 18, 13))
    aliased = np.stack([one.image for one in zero_filled])
    assert np.linalg.norm(found - truth) < 0.12 * np.linalg.norm(truth)
    assert np.linalg.norm(found - truth) < 0.4 * np.linalg.norm(aliased - truth)
    bright = truth.sum(axis=(0, 1)) > 0.2 * truth.sum(axis=(0, 1)).max()
    brightness = (found * truth).sum(axis=(0, 1))[bright] / (truth**2).sum(axis=(0, 1))[bright]
    np.testing.assert_allclose(brightness, 1, atol=0.06)
    assert {(one.scale, one.noise_level, one.prior_weight) for one in results} == {
        (results[0].scale, results[0].noise_level, results[0].prior_weight)
    }
    assert {one.kind for one in results} == {ImageKind.RECONSTRUCTED}
    assert (results[0].iterations, results[0].coils) == (80, None)


def test_where_planes_fail_all_partitions_are_labelled_and_hold_their_zero_filled_images():
    failing = {3, 4, 17}
    calls = iter(range(26))

    def fail(_result):
        if next(calls) in failing:
            raise MemoryError

    volume = slab(mask=scattered())
    plain = partitions_of(replace(volume, samples=volume.samples.copy()), ZeroFilled())[1]

    _, results = partitions_of(volume, StandIn(misbehave=fail))

    assert {(one.kind, one.outcome) for one in results} == {
        (ImageKind.FALLBACK, "out of memory, in 3 of 26 planes")
    }
    for one, reference in zip(results, plain, strict=True):
        for column in failing:
            np.testing.assert_allclose(one.image[:, column], reference.image[:, column], rtol=1e-4)
        assert one.image[0, 5] == 6  # the stand-in's sixth image


def test_a_plane_that_its_time_limit_stopped_labels_the_partitions():
    outcomes = [Outcome.OUT_OF_ITERATIONS] * 9 + [Outcome.OUT_OF_TIME] + [Outcome.CONVERGED] * 16

    _, results = partitions_of(slab(mask=scattered()), StandIn(outcomes=outcomes))

    assert {one.kind for one in results} == {ImageKind.OUT_OF_TIME}
    assert results[0].outcome.endswith("in 1 of 26 planes")


def test_planes_of_zeros_beside_others_are_no_reason_to_label():
    outcomes = [Outcome.ALL_ZERO] * 20 + [Outcome.OUT_OF_ITERATIONS] * 6

    _, results = partitions_of(slab(mask=scattered()), StandIn(outcomes=outcomes))

    assert {one.kind for one in results} == {ImageKind.RECONSTRUCTED}


def test_no_more_memory_is_held_than_is_stated():
    """Beside the input: the images, and one batch. The solver is a stand-in, so its copies are not there."""
    shape = (20, 24, 64)
    solver = device(reconstructor(StandIn()), settings(batch_slices=4))
    volume = slab((64, 24, 20), (208.0, 180.0, 91.0), mask=scattered(shape=shape))
    stated = peak_bytes(n_coils=3, matrix=shape, n_sent=20, batch=4)
    held = volume.samples.nbytes + volume.mask.nbytes

    tracemalloc.start()
    for _ in reconstruct_volume(volume, solver):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert stated == 20 * 24 * 64 * 25 + 20 * 24 * 64 * 4 + 4 * 25 * 8 * 3 * 20 * 24
    assert peak < stated - held
    assert peak < 0.6 * held  # no second copy of the volume
