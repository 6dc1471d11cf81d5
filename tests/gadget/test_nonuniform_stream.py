"""Radial and spiral scans through the stream: images, frames, fallbacks and uncertainty."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from simulated_gadgetron import accumulated
from simulated_scans import StandIn, reconstructor, settings
from synthetic_scan import OBJECT as FAINT
from synthetic_scan import Spot, image_of
from trajectory_protocol import (
    FOV_MM,
    MATRIX,
    RADIAL,
    SPIRAL,
    WIDE,
    changed,
    many_spots,
    measured_phantom,
    readouts,
    recorded,
)

from gadget.errors import ScanError
from gadget.pipeline import reconstruct_stream
from gadget.reconstructor import Reconstructor
from gadget.scan.recon_data import readouts_of
from gadget.scan.trajectory_units import TrajectoryUnits
from gadget.scan_file import read_scan
from gadget.trajectory_scan_writer import (
    NonCartesianReadouts,
    TrajectoryFileSettings,
    trajectory_header_xml,
    write_trajectory_scan,
)
from gadget.wire.messages import Close, Image, Message, ReconBit, ReconData, ReconDataArray, ScanHeader
from reconlib.joint.outcome import Outcome
from reconlib.kspace import NonuniformKSpace
from reconlib.reconstruction import zero_filled
from reconlib.simulation.nonuniform_settings import NonuniformSettings


def brighter(spots: tuple[Spot, ...]) -> tuple[Spot, ...]:
    """Return spots a hundred times brighter: the noise is taken to be 1."""
    return tuple(replace(one, amplitudes=tuple(100 * a for a in one.amplitudes)) for one in spots)


OBJECT = brighter(FAINT)


class WeightedAdjoint(StandIn):
    """A stand-in whose image is the root sum of squares of the weighted adjoint."""

    def __call__(self, kspace, **others):
        n, n_coils = kspace.samples.shape[:2]
        grid = kspace.shape if isinstance(kspace, NonuniformKSpace) else kspace.samples.shape[2:]
        as_grid = SimpleNamespace(samples=kspace.samples.new_zeros(n, n_coils, *grid))
        result = super().__call__(as_grid, **others)
        self.batches[-1] = kspace
        result.image = zero_filled(kspace).to(result.image.dtype)
        return result


def messages_of(scan: NonCartesianReadouts, lines=None, **recording) -> list[Message]:
    written = TrajectoryFileSettings(n_noise_readouts=0, **recording)
    lines = readouts(scan, n_noise_readouts=0, **recording) if lines is None else lines
    return [ScanHeader(trajectory_header_xml(scan, written)), *lines, Close()]


def images_of(messages, joint=None, **changes) -> list[Image]:
    """Return the images of a stream, by the real reconstruction where ``joint`` is None."""
    chosen = settings(noise__source="prewhitened", trajectory__delay_correction=False, **changes)
    made = Reconstructor("cpu") if joint is None else reconstructor(joint)
    stream = reconstruct_stream(messages, chosen, reconstructor=made)
    return [one for one in stream if isinstance(one, Image)]


def pixels(image: Image) -> np.ndarray:
    return np.asarray(image.data)[0, 0]


def magnitude(spots: tuple[Spot, ...], matrix=MATRIX, fov_mm=FOV_MM) -> np.ndarray:
    return np.sqrt((np.abs(image_of(spots, matrix[::-1], fov_mm[::-1])) ** 2).sum(axis=0))


def assert_alike(found: np.ndarray, expected: np.ndarray, part: float) -> None:
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < part * expected.max()


def moved(spots: tuple[Spot, ...], matrix: np.ndarray, widening: float = 1.0) -> tuple[Spot, ...]:
    """Return spots at other places: those of the object under a linear map."""
    places = [matrix @ (spot.x, spot.y) for spot in spots]
    scale = widening**2
    return tuple(
        Spot(
            x=x,
            y=y,
            width=widening * spot.width,
            amplitudes=tuple(one / scale for one in spot.amplitudes),
        )
        for (x, y), spot in zip(places, spots, strict=True)
    )


SQUARE, SQUARE_MM = (40, 40), (200.0, 200.0)


def rotation(degrees: float) -> np.ndarray:
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([[c, -s], [s, c]])


@pytest.mark.parametrize("trajectory", [RADIAL, SPIRAL], ids=["radial", "spiral"])
@pytest.mark.parametrize(
    ("change", "widening"),
    [(rotation(40), 1), (-np.eye(2), 1), (np.diag([-1, 1]), 1), (np.eye(2) * 0.8, 1 / 0.8)],
    ids=["rotated", "reversed", "mirrored", "scaled"],
)
def test_scaled_rotated_and_reversed_trajectories_give_such_images(trajectory, change, widening):
    points = trajectory.points(SQUARE, SQUARE_MM)
    # What was measured at k is said to have been measured at k moved by the map.
    scan = recorded(trajectory, OBJECT, matrix=SQUARE, fov_mm=SQUARE_MM)
    told = replace(scan, points=points @ change.T)

    (image,) = images_of(messages_of(told), WeightedAdjoint())

    expected = magnitude(moved(OBJECT, np.linalg.inv(change).T, widening), SQUARE, SQUARE_MM)
    assert_alike(pixels(image), expected, 0.1)
    assert image.header["matrix_size"].tolist() == [40, 40, 1]


@pytest.mark.parametrize("trajectory", [RADIAL, SPIRAL], ids=["radial", "spiral"])
def test_the_joint_estimate_is_the_image(trajectory):
    (image,) = images_of(messages_of(recorded(trajectory, OBJECT)), solver__iterations=20)
    assert_alike(pixels(image), magnitude(OBJECT), 0.08)


def test_in_all_units_the_image_is_the_same():
    scan = recorded(RADIAL, brighter(many_spots()))
    found = [
        pixels(images_of(messages_of(scan, units=units), solver__iterations=8)[0])
        for units in list(TrajectoryUnits)[1:]
    ]
    for other in found[1:]:
        assert_alike(other, found[0], 5e-4)


def test_readouts_in_reverse_order_give_the_same_image():
    scan = recorded(RADIAL, OBJECT)
    lines = readouts(scan, n_noise_readouts=0)
    (image,) = images_of(messages_of(scan), solver__iterations=5)
    (backwards,) = images_of(messages_of(scan, lines[::-1]), solver__iterations=5)
    assert np.array_equal(pixels(image), pixels(backwards))


def test_a_cartesian_scan_written_as_a_trajectory_gives_the_cartesian_image():
    from synthetic_scan import Protocol, kspace_of, lines_of

    n_x, n_y = MATRIX[::-1]
    wide, fov_mm = (2 * n_x, n_y), (2 * FOV_MM[1], FOV_MM[0])
    kspace = kspace_of(OBJECT, wide, fov_mm)
    protocol = Protocol(
        encoded=(*wide, 1),
        encoded_fov=(*fov_mm, 5.0),
        recon=(n_x, n_y, 1),
        recon_fov=(*FOV_MM[::-1], 5.0),
        limits={"kspace_encoding_step_1": (0, n_y - 1, n_y // 2)},
    )
    (expected,) = images_of([ScanHeader(protocol.xml()), *lines_of(kspace), Close()], solver__iterations=40)
    along_x = (np.arange(2 * n_x) - n_x) / 2
    along_y = np.arange(n_y) - n_y // 2
    points = np.stack(np.meshgrid(along_x, along_y), axis=-1)
    scan = NonCartesianReadouts(
        samples=kspace[None].astype(np.complex64),
        points=points,
        matrix=MATRIX,
        fov_mm=FOV_MM,
        kind="other",
        oversampling=2.0,
    )

    (image,) = images_of(messages_of(scan), solver__iterations=40)

    assert_alike(pixels(image), pixels(expected), 0.02)


# Frames

GOLDEN = NonuniformSettings(n_readouts=60, order="golden")


def test_frames_leave_while_readouts_come_and_start_from_the_one_before():
    scan = recorded(GOLDEN, OBJECT)
    joint = WeightedAdjoint()
    n_taken = 0

    def source():
        nonlocal n_taken
        for message in messages_of(scan):
            n_taken += 1
            yield message

    chosen = settings(
        noise__source="prewhitened", trajectory__window=20, trajectory__window_step=10, batch_slices=4
    )
    found = [
        (n_taken - 1, int(one.header["repetition"]), int(one.header["image_index"]))
        for one in reconstruct_stream(source(), chosen, reconstructor=reconstructor(joint))
        if isinstance(one, Image)
    ]

    assert found == [(20, 0, 1), (30, 1, 2), (40, 2, 3), (50, 3, 4), (60, 4, 5)]
    starts = [call["initial_coils"] for call in joint.calls]
    assert starts[0] is None
    assert all(np.array_equal(start.numpy(), np.full((1, 3, *WIDE), 2j)) for start in starts[1:])
    images = [call["initial_image"] for call in joint.calls]
    assert images[0] is None
    for start, before in zip(images[1:], joint.batches, strict=False):
        np.testing.assert_allclose(start.numpy(), zero_filled(before).numpy())


def test_a_frame_of_other_coils_starts_without_maps():
    scan = recorded(GOLDEN, OBJECT)
    lines = readouts(scan, n_noise_readouts=0)
    broken = lines[25].data.copy()
    broken[1] = np.nan
    lines[25] = replace(lines[25], data=broken)
    joint = WeightedAdjoint()
    images = images_of(messages_of(scan, lines), joint, trajectory__window=15)
    assert len(images) == 4
    assert [call["initial_coils"] is None for call in joint.calls] == [True, True, True, False]


def test_after_a_frame_that_failed_the_next_starts_from_the_last_good_one():
    def fail_once(_result):
        if len(joint.calls) == 2:
            raise RuntimeError

    joint = WeightedAdjoint(misbehave=fail_once)
    images = images_of(messages_of(recorded(GOLDEN, OBJECT)), joint, trajectory__window=20)
    assert len(images) == 3
    assert [call["initial_coils"] is None for call in joint.calls] == [True, False, False]


def test_a_moving_object_is_followed():
    def at(frame: int) -> tuple[Spot, ...]:
        return brighter((Spot(x=-30.0 + 12 * frame, y=10.0, width=9.0), Spot(x=10.0, y=-35.0, width=9.0)))

    angles_of_frames = np.array_split(GOLDEN.points(MATRIX, FOV_MM), 4)
    parts = [recorded(points, at(frame)) for frame, points in enumerate(angles_of_frames)]
    still = recorded(GOLDEN, OBJECT)
    samples = np.concatenate([part.samples for part in parts], axis=2) / np.sqrt(2)
    moving = replace(still, samples=samples.astype(np.complex64))

    images = images_of(messages_of(moving), trajectory__window=15, solver__iterations=25)

    for frame, image in enumerate(images):
        assert_alike(pixels(image), magnitude(at(frame)), 0.2)
    assert len(images) == 4


# What else the stream does with them


def test_slices_are_reconstructed_in_batches():
    scan = recorded(SPIRAL, OBJECT, slice_positions_mm=(0.0, 6.0, 12.0))
    scan = replace(scan, samples=np.repeat(scan.samples, 3, axis=0))
    joint = WeightedAdjoint()

    images = images_of(messages_of(scan), joint, batch_slices=3)

    (batch,) = joint.batches
    assert batch.samples.shape[0] == 3
    assert batch.trajectory.shape[0] == batch.weights.shape[0] == 1
    assert len(images) == 3
    assert np.array_equal(pixels(images[0]), pixels(images[2]))


def test_slices_of_other_trajectories_keep_theirs_in_a_batch():
    scan = recorded(SPIRAL, OBJECT)
    lines = readouts(scan, n_noise_readouts=0)
    turned = [
        replace(changed(one, slice=1), trajectory=np.ascontiguousarray(-one.trajectory)) for one in lines
    ]
    joint = WeightedAdjoint()

    first, second = images_of(messages_of(scan, [*lines, *turned]), joint, batch_slices=2)

    (batch,) = joint.batches
    assert batch.trajectory.shape[0] == batch.weights.shape[0] == 2
    # Turned by half a circle about the pixel n // 2
    assert_alike(pixels(second)[1:, 1:], pixels(first)[:0:-1, :0:-1], 0.01)


def test_a_reconstruction_that_fails_falls_back_to_the_weighted_adjoint():
    def fail(_result):
        raise RuntimeError("Doe^Jane")

    (image,) = images_of(messages_of(recorded(RADIAL, OBJECT)), WeightedAdjoint(misbehave=fail))

    assert_alike(pixels(image), magnitude(OBJECT), 0.06)
    assert "FALLBACK" in image.meta
    assert "Doe" not in image.meta


def test_a_single_coil_may_have_a_fixed_map():
    spots = tuple(replace(spot, amplitudes=(abs(spot.amplitudes[0]),)) for spot in OBJECT)
    (image,) = images_of(
        messages_of(recorded(RADIAL, spots)), solver__iterations=20, coils="fixed", image_phase="real"
    )
    assert_alike(pixels(image), magnitude(spots), 0.08)


def test_uncertainty_follows():
    images = images_of(
        messages_of(recorded(RADIAL, OBJECT)),
        solver__iterations=10,
        posterior__enabled=True,
        posterior__draws=20,
        posterior__warmup=5,
    )
    assert [int(one.header["image_series_index"]) for one in images] == [1, 2, 3]
    assert all(np.isfinite(pixels(one)).all() for one in images)


def test_a_frame_that_is_all_zero_does_not_start_the_next():
    scan = recorded(GOLDEN, OBJECT)
    scan.samples[:, :, :20] = 0
    joint = WeightedAdjoint(outcomes=[Outcome.ALL_ZERO, Outcome.OUT_OF_ITERATIONS])
    joint.misbehave = lambda result: result.coils.mul_(0) if len(joint.calls) == 1 else None
    images = images_of(messages_of(scan), joint, trajectory__window=20)
    assert len(images) == 3
    assert [call["initial_coils"] is None for call in joint.calls] == [True, True, False]


def test_a_scan_file_is_replayed(tmp_path):
    scan = recorded(SPIRAL, OBJECT)
    write_trajectory_scan(tmp_path / "scan.h5", scan)
    (image,) = images_of(read_scan(tmp_path / "scan.h5"), WeightedAdjoint())
    assert_alike(pixels(image), magnitude(OBJECT), 0.06)


def buffers_of(scan: NonCartesianReadouts) -> ReconDataArray:
    """Return the readouts of a scan as Gadgetron's BucketToBufferGadget accumulates them."""
    lines = readouts(scan, n_noise_readouts=0)
    made = accumulated(lines, (len(lines), 1, 1, 1, 1))
    points = np.stack([one.trajectory.T for one in lines], axis=2)[..., None, None, None, None]
    return replace(made, trajectory=np.asfortranarray(points))


def test_gadgetrons_buffers_bring_their_trajectories():
    scan = recorded(RADIAL, OBJECT)
    (expected,) = images_of(messages_of(scan), WeightedAdjoint())
    header, *_, close = messages_of(scan)

    buffers = ReconData((ReconBit(buffers_of(scan), None),))
    (image,) = images_of([header, buffers, close], WeightedAdjoint())

    assert np.array_equal(pixels(image), pixels(expected))


def test_a_buffer_whose_trajectory_is_of_another_shape_is_refused():
    made = buffers_of(recorded(RADIAL, OBJECT))
    odd = ReconData((ReconBit(replace(made, trajectory=made.trajectory[:, :, 1:]), None),))
    with pytest.raises(ScanError, match=r"its data has a trajectory of the shape \(2, 72, 63, 1, 1, 1, 1\)"):
        list(readouts_of(odd))


@pytest.mark.parametrize(
    ("name", "kind", "air"),
    [
        ("phantom_8coil_spiral", "spiral", (slice(100, 130), slice(80, 90))),
        ("phantom_16coil_radial", "radial", (slice(20, 80), slice(20, 80))),
    ],
)
def test_measured_phantoms_have_dark_air(name, kind, air, data_folder):
    scan = measured_phantom(data_folder, name, kind)
    stream = reconstruct_stream(messages_of(scan), settings(), reconstructor=reconstructor(WeightedAdjoint()))
    (image,) = (one for one in stream if isinstance(one, Image))

    shown = pixels(image)
    assert shown.shape == scan.matrix
    assert np.median(shown[air]) < 0.1 * np.percentile(shown, 99)
