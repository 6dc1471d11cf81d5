"""A slab's partitions: which way it is taken apart, what the slices hold, and where they lie."""

import numpy as np
import pytest
from synthetic_scan import Spot, inverse_transform
from synthetic_slab import OBJECT, SlabSpot, slab, slab_image

from gadget.errors import ScanError
from gadget.scan.volume_partitions import CompleteAxis, complete_axis, partition_contexts, slices_of

ROWS = np.arange(13)[:, None] * 2 + np.arange(18)  # to scatter lines with


def lines(*, every: int = 1, columns: slice = slice(None)) -> np.ndarray:
    """Every so many lines of (kz, ky), in no regular pattern, and part of each readout."""
    mask = np.zeros((13, 18, 26), bool)
    mask[..., columns] = (ROWS % every == 0)[..., None]
    return mask


@pytest.mark.parametrize(
    ("mask", "axis"),
    [
        (lines(), CompleteAxis.KZ),
        (lines(columns=slice(6, 26)), CompleteAxis.KZ),
        ((np.arange(18) % 2 == 0)[:, None], CompleteAxis.KZ),
        (lines(every=3), CompleteAxis.KX),
        ((np.arange(13) > 2)[:, None, None] * np.ones((18, 26), bool), CompleteAxis.KX),
        ((np.arange(13) > 2)[:, None, None] * lines(columns=slice(6, 26)), CompleteAxis.KY),
    ],
    ids=["all", "asymmetric echo", "every second ky", "scattered", "partial kz", "partial kz and kx"],
)
def test_the_axis_along_which_kspace_is_complete_is_transformed(mask, axis):
    assert complete_axis(slab(mask=mask)) is axis


def test_a_slab_that_is_complete_along_no_axis_is_refused_by_name():
    with pytest.raises(
        ScanError,
        match=r"slice 0: a 3-D scan with 78 of 13 x 18 lines and 20 of 26 samples per readout, complete "
        r"along none of the three directions, which is not supported: .* Measure whole echoes, or all lines",
    ):
        complete_axis(slab(mask=lines(every=3, columns=slice(6, 26))))


@pytest.mark.parametrize(
    ("n_z", "fov_z", "n_recon", "recon_fov_z", "first"),
    [
        (13, 91.0, 13, 91.0, -6 * 7.0),
        (12, 84.0, 12, 84.0, -6 * 7.0),
        (16, 112.0, 10, 70.0, -5 * 7.0),
        (13, 91.0, 9, 63.0, -4 * 7.0),
        (13, 91.0, 26, 91.0, -13 * 3.5),
        (14, 98.0, 21, 73.5, -10 * 3.5),
    ],
    ids=["odd", "even", "oversampled, even", "oversampled, odd", "interpolated", "both"],
)
def test_slices_hold_the_object_where_their_positions_say(n_z, fov_z, n_recon, recon_fov_z, first):
    """Coil images of each slice against the closed form at the place of its header's position."""
    volume = slab(
        (26, 18, n_z),
        (208.0, 180.0, fov_z),
        recon_matrix=(26, 18, n_recon),
        recon_fov_mm=(208.0, 180.0, recon_fov_z),
    )
    position, normal = np.array(volume.context.position), np.array(volume.context.slice_dir)

    slices = list(slices_of(volume))

    assert len(slices) == n_recon
    moves = np.array([one.context.position for one in slices]) - position
    places = moves @ normal
    np.testing.assert_allclose(moves, places[:, None] * normal, atol=1e-9)
    np.testing.assert_allclose(places[0], first)
    np.testing.assert_allclose(np.diff(places), recon_fov_z / n_recon)
    expected = slab_image(OBJECT, (26, 18, n_z), (208.0, 180.0, fov_z), places)
    found = np.stack([inverse_transform(one.kspace.samples[0].numpy()) for one in slices], axis=1)
    np.testing.assert_allclose(found, expected, atol=5e-3)


def test_each_slice_is_an_ordinary_one_with_its_own_counter_and_notes():
    volume = slab(
        recon_matrix=(26, 18, 20), recon_fov_mm=(208.0, 180.0, 70.0), slice=2, contrast=1, noise_std=0.3
    )

    slices = list(slices_of(volume))

    assert [one.context.slice for one in slices] == list(range(40, 60))
    last = slices[-1]
    assert last.context.contrast == 1
    assert last.context.recon_matrix == (26, 18, 1)
    assert last.context.recon_fov_mm == pytest.approx((208.0, 180.0, 3.5))
    assert last.kspace.samples.shape == (1, 3, 18, 26)
    assert last.kspace.mask.shape == (1, 1, 18, 26)
    assert last.kspace.noise_std == 0.3
    assert last.context.notes == (
        "234 of 234 lines measured",
        "3-D: 20 of 26 partitions, transformed along kz, which is complete",
        "partitions interpolated from 13 to 26 by zero-filling",
    )


@pytest.mark.parametrize(
    ("n_recon", "fov_z", "expected"), [(13, 91.0, 1.0), (26, 91.0, 1.0), (9, 63.0, 1.0), (6, 91.0, 0.679)]
)
def test_the_noise_level_of_slices_is_what_they_are_told(n_recon, fov_z, expected):
    """White noise of standard deviation 1 per real component; cutting kz from 13 to 6 leaves sqrt(6 / 13)."""
    volume = slab(recon_matrix=(26, 18, n_recon), recon_fov_mm=(208.0, 180.0, fov_z), noise_std=1.0)
    rng = np.random.default_rng(3)
    volume.samples[...] = rng.normal(size=volume.samples.shape) + 1j * rng.normal(size=volume.samples.shape)

    slices = list(slices_of(volume))

    samples = np.stack([one.kspace.samples.numpy() for one in slices])
    assert samples.real.std() == pytest.approx(expected, rel=0.03)
    assert slices[0].kspace.noise_std == pytest.approx(expected, rel=1e-3)


def test_a_point_lies_in_the_partition_that_its_position_names():
    """A thin spot 21 mm along the slice direction from the slab's position: 3 partitions of 7 mm."""
    point = (SlabSpot(spot=Spot(x=0.0, y=0.0, width=12.0), z=21.0, width_z=2.5),)
    for n_z in (13, 14):
        slices = list(slices_of(slab((26, 18, n_z), (208.0, 180.0, 7.0 * n_z), spots=point)))
        energy = [float((one.kspace.samples.abs() ** 2).sum()) for one in slices]
        place = np.array(slices[int(np.argmax(energy))].context.position)
        np.testing.assert_allclose(place, np.array([10.0, -20.0, 30.0]) + 21 * np.array([0, -0.6, 0.8]))


def test_headers_that_cannot_place_partitions_say_so():
    for changes in ({"slice_dir": (0.0, 0.0, 0.0)}, {"slab_fov_mm": 0.0}):
        contexts = partition_contexts(slab(**changes).context, "in a test")
        assert {one.position for one in contexts} == {(10.0, -20.0, 30.0)}
        assert "all partitions have its position" in contexts[0].notes[-1]
    (*_, note) = partition_contexts(slab(slab_fov_mm=84.0).context, "in a test")[0].notes
    assert note == "13 partitions in the header, more than the encoded slab holds"


def test_incomplete_slabs_leave_unmeasured_lines_unmeasured():
    mask = (np.arange(18) % 3 == 0)[:, None] * np.ones((13, 18, 26), bool)

    slices = list(slices_of(slab(mask=mask)))

    np.testing.assert_array_equal(slices[4].kspace.mask[0, 0].numpy(), mask[0])
    assert not slices[4].kspace.samples[0].numpy()[:, ~mask[0]].any()
