"""Rough coil maps from separate calibration lines, against maps and objects in closed form."""

import numpy as np
import pytest
from synthetic_scan import OBJECT, Spot, image_of, kspace_of
from synthetic_slab import OBJECT as SLAB_OBJECT
from synthetic_slab import slab, slab_image, slab_kspace

from gadget.scan.calibration import CalibrationLines
from gadget.scan.calibration_maps import coil_maps, split_calibration
from gadget.scan.volume_partitions import slices_of
from gadget.scan.volume_planes import VolumePlanes

WIDE = (Spot(x=0.0, y=0.0, width=40.0, amplitudes=(1.0, 0.5 - 0.5j, -0.7j)),)
"""A body of one coil direction."""


def calibration(
    spots=OBJECT, matrix=(40, 36), fov_mm=(150.0, 162.0), rows=slice(None), columns=slice(None)
) -> CalibrationLines:
    mask = np.zeros(matrix[::-1], bool)
    mask[rows, columns] = True
    samples = kspace_of(spots, matrix, fov_mm).astype(np.complex64) * mask
    return CalibrationLines(samples=samples, mask=mask, fov_mm=fov_mm)


def test_maps_are_the_directions_of_the_coils_on_the_slices_own_grid():
    """Two spots with different coil directions, on a grid of another size, field of view and parity."""
    matrix, fov_mm = (33, 45), (120.0, 135.0)
    maps = coil_maps(calibration(), matrix, fov_mm)

    truth = image_of(OBJECT, matrix, fov_mm)
    magnitude = np.sqrt((np.abs(truth) ** 2).sum(axis=0))
    bright = magnitude > 0.6 * magnitude.max()
    assert maps is not None
    assert maps.shape == (3, 45, 33)
    np.testing.assert_allclose(np.linalg.norm(maps, axis=0), 1, atol=1e-5)
    # The phase too: spots are real, so coil images have the phase of the coils.
    np.testing.assert_allclose(maps[:, bright], (truth / magnitude)[:, bright], atol=0.03)


def test_only_the_middle_of_kspace_counts_and_the_window_ends_where_lines_do():
    """Row 18 is the centre; 12 to 24 are complete, beyond a gap nothing is used."""
    some = calibration(rows=slice(12, 25))
    more = calibration(rows=[*range(12, 25), 28, 31])
    assert np.array_equal(
        coil_maps(some, (20, 20), (120.0, 120.0)), coil_maps(more, (20, 20), (120.0, 120.0))
    )
    lopsided = calibration(rows=slice(12, 36))
    np.testing.assert_array_equal(
        coil_maps(some, (20, 20), (120.0, 120.0)), coil_maps(lopsided, (20, 20), (120.0, 120.0))
    )


def test_nothing_is_known_outside_of_the_calibrations_field_of_view():
    maps = coil_maps(calibration(WIDE, (20, 20), (100.0, 100.0)), (30, 30), (150.0, 150.0))
    assert maps is not None
    known = np.linalg.norm(maps, axis=0) > 0
    assert known[5:25, 5:25].all()
    assert not known[:4].any()
    assert not known[:, 27:].any()


def test_without_the_centre_of_kspace_there_are_no_maps():
    lines = calibration(rows=slice(20, 36))
    assert coil_maps(lines, (20, 20), (120.0, 120.0)) is None
    assert split_calibration(lines, 0, 20, 120.0) is None


def slab_calibration(matrix=(20, 16, 14), fov_mm=(240.0, 200.0, 98.0)) -> CalibrationLines:
    samples = slab_kspace(SLAB_OBJECT, matrix, fov_mm).astype(np.complex64)
    return CalibrationLines(samples=samples, mask=np.ones(matrix[::-1], bool), fov_mm=fov_mm)


def directions(coil_images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    magnitude = np.sqrt((np.abs(coil_images) ** 2).sum(axis=0))
    return coil_images / np.where(magnitude > 0, magnitude, 1), magnitude > 0.6 * magnitude.max()


def test_slices_of_a_slab_get_the_maps_of_their_own_place():
    slices = list(slices_of(slab(calibration=slab_calibration())))
    truth, bright = directions(
        slab_image(SLAB_OBJECT, (26, 18, 13), (208.0, 180.0, 91.0), (np.arange(13) - 6) * 7.0)
    )

    found = np.stack([coil_maps(one.calibration, (26, 18), (208.0, 180.0)) for one in slices], axis=1)

    assert bright.any(axis=(1, 2)).sum() >= 3
    np.testing.assert_allclose(found[:, bright], truth[:, bright], atol=0.05)


@pytest.mark.parametrize("axis", ["kx", "ky"])
def test_planes_of_a_volume_get_the_maps_of_their_own_place(axis):
    mask = np.ones((13, 18, 26), bool)
    mask[(0, 0, slice(None)) if axis == "kx" else (0, slice(None), 0)] = False
    planes = VolumePlanes.of(slab(mask=mask, calibration=slab_calibration()))
    truth, bright = directions(
        slab_image(SLAB_OBJECT, (26, 18, 13), (208.0, 180.0, 91.0), (np.arange(13) - 6) * 7.0)
    )

    found = planes.initial_coils(range(len(planes)))

    stacked = np.moveaxis(found, 0, -1 if axis == "kx" else 2)
    np.testing.assert_allclose(stacked[:, bright], truth[:, bright], atol=0.05)
