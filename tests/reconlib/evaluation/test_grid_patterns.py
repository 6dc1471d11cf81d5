"""Points of the grid: shares, geometry, and that a name always means the same mask."""

import hashlib
import math

import numpy as np
import pytest
import torch

from reconlib.evaluation.grid_patterns import (
    PARALLEL_IMAGING,
    PATTERNS,
    SINGLE_COIL,
    gaussian_mask,
    pseudo_radial_mask,
    pseudo_spiral_mask,
    random_points_mask,
)
from reconlib.evaluation.sampling_patterns import random_lines

MATRICES = [(64, 48), (51, 64), (33, 35)]


@pytest.mark.parametrize("matrix", MATRICES, ids=str)
@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_is_a_mask_that_is_the_same_each_time(name, matrix):
    mask = PATTERNS[name](matrix)

    assert mask.dtype == torch.bool
    assert mask.shape == (1, 1, *matrix)
    assert torch.equal(mask, PATTERNS[name](matrix))
    assert bool(mask[0, 0, matrix[0] // 2, matrix[1] // 2]) or name == "random-3"


def test_the_names_mean_what_the_paper_compares():
    assert len(PARALLEL_IMAGING) == 5
    assert len(SINGLE_COIL) == 4
    assert set(PARALLEL_IMAGING) | set(SINGLE_COIL) == set(PATTERNS)
    shares = {name: float(mask((256, 256)).float().mean()) for name, mask in PATTERNS.items()}
    expected = {"random-3": 1 / 3, "gaussian-8": 1 / 8, "spiral-5": 1 / 5}
    for name, share in expected.items():
        assert shares[name] == pytest.approx(share, rel=0.03), name


def test_cartesian_patterns_are_the_quoted_lines():
    lines = random_lines(64, calibration_fraction=0.08)
    fewer = random_lines(64, calibration_fraction=0.04)
    assert np.array_equal(PATTERNS["cartesian-4"]((64, 48))[0, 0, :, 5].numpy(), lines)
    assert np.array_equal(PATTERNS["cartesian-4-swapped"]((48, 64))[0, 0, 7].numpy(), lines)
    assert np.array_equal(PATTERNS["cartesian-4-acl4"]((64, 48))[0, 0, :, 5].numpy(), fewer)


def test_one_spoke_is_the_centre_row_and_two_are_a_cross():
    one, two = (pseudo_radial_mask((31, 40), n_spokes=n)[0, 0] for n in (1, 2))
    row = torch.zeros(31, 40, dtype=torch.bool)
    row[15] = True
    cross = row.clone()
    cross[:, 20] = True
    assert torch.equal(one, row)
    assert torch.equal(two, cross)


def test_45_spokes_hold_the_points_whose_square_a_spoke_crosses():
    """A line meets the unit square round a point if it passes it at a distance of at most (|s| + |c|) / 2."""
    n = 128
    axis = torch.arange(n, dtype=torch.float64) - n // 2
    y, x = axis[:, None], axis[None, :]
    crossed = torch.zeros(n, n, dtype=torch.bool)
    for spoke in range(45):
        s, c = math.sin(math.pi * spoke / 45), math.cos(math.pi * spoke / 45)
        crossed |= (x * s - y * c).abs() <= (abs(s) + abs(c)) / 2 + 1e-9
    mask = PATTERNS["radial-45"]((n, n))[0, 0]
    inside = torch.hypot(y, x) < n / 2 - 1

    assert not bool((mask & ~crossed).any())
    assert float(mask[inside & crossed].double().mean()) > 0.93  # squares that are cut at a corner may miss
    assert not bool(mask[torch.hypot(y, x) > n / 2 + 1].any())


def test_spokes_have_equal_angles():
    n = 101
    mask = pseudo_radial_mask((n, n), n_spokes=6)[0, 0]
    y, x = (
        axis.double() - n // 2 for axis in torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    )
    ring = mask & ((torch.hypot(y, x) - 45).abs() < 0.5)
    angles = torch.atan2(y[ring], x[ring]) % math.pi
    # every point of the ring lies within a pixel of one of the angles 0, 30, .. 150 degrees
    off = (angles[:, None] - math.pi * torch.arange(7) / 6).abs().amin(dim=1)
    assert float(off.max()) < 1.0 / 44
    nearest = (angles[:, None] - math.pi * torch.arange(7) / 6).abs().argmin(dim=1) % 6
    assert set(nearest.tolist()) == set(range(6))


def test_a_spiral_crosses_a_ray_at_equal_distances():
    n = 129
    crossings = torch.nonzero(pseudo_spiral_mask((n, n), acceleration=8.0)[0, 0, n // 2, n // 2 :]).flatten()
    # adjacent grid points belong to one crossing
    starts = [int(c) for c in crossings if int(c) - 1 not in crossings.tolist()]
    gaps = np.diff(starts)
    assert len(gaps) >= 4
    assert gaps.max() - gaps.min() <= 2
    assert starts[0] == 0


@pytest.mark.parametrize("acceleration", [2.0, 5.0, 10.0])
def test_the_spiral_has_about_the_acceleration_that_was_asked_for(acceleration):
    share = float(pseudo_spiral_mask((160, 128), acceleration=acceleration).float().mean())
    assert share == pytest.approx(1 / acceleration, rel=0.05)


def test_drawn_points_have_exactly_their_number_and_depend_on_the_seed():
    for mask in (random_points_mask((50, 44), acceleration=3), gaussian_mask((50, 44), acceleration=8.0)):
        assert int(mask.sum()) in (round(2200 / 3), 2200 // 8)
    assert not torch.equal(random_points_mask((50, 44), seed=1), random_points_mask((50, 44), seed=2))


@pytest.mark.parametrize("matrix", [(256, 256), (256, 216), (33, 40)], ids=str)
@pytest.mark.parametrize("name", list(PATTERNS))
def test_the_centre_of_k_space_is_always_measured(name, matrix):
    assert bool(PATTERNS[name](matrix)[0, 0, matrix[0] // 2, matrix[1] // 2])


def test_gaussian_points_are_as_dense_as_a_gaussian():
    """At a low share, draws without replacement follow the density: mean square radius 2 width^2."""
    n = 200
    points = torch.cat(
        [torch.nonzero(gaussian_mask((n, n), acceleration=200, seed=s)[0, 0]) for s in range(20)]
    )
    offset = (points.double() - n // 2) / (n / 2)
    # 4000 draws; the density is 0.25 of half the matrix along each axis; the tail beyond 4 widths is 6e-5
    assert float(offset.square().mean()) == pytest.approx(0.25**2, rel=0.06)
    assert float(offset.mean().abs()) < 0.02


def test_even_points_are_spread_evenly():
    mask = random_points_mask((120, 120))[0, 0].double()
    quarters = mask.reshape(2, 60, 2, 60).mean(dim=(1, 3)).flatten()
    assert float((quarters - 1 / 3).abs().max()) < 5 * math.sqrt(2 / 9 / 3600)


def test_a_seeded_pattern_is_the_same_on_every_machine():
    """Numpy's generator is stable over versions; a table names a pattern by its name alone."""
    digest = hashlib.sha256(np.packbits(PATTERNS["gaussian-8"]((32, 32)).numpy()).tobytes()).hexdigest()
    again = np.log(np.random.default_rng(42).uniform(size=(32, 32)))
    y = 2 * (np.arange(32) - 16) / 32 / 0.25
    order = np.argsort(again / np.exp(-(y[:, None] ** 2 + y**2) / 2), axis=None)
    written_out = np.zeros(1024, bool)
    written_out[order[-128:]] = True
    assert digest == hashlib.sha256(np.packbits(written_out).tobytes()).hexdigest()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"acceleration is 0.5; .* at least 1"):
        random_points_mask((32, 32), acceleration=0.5)
    with pytest.raises(ValueError, match="acceleration is nan"):
        pseudo_spiral_mask((32, 32), acceleration=float("nan"))
    with pytest.raises(ValueError, match="n_spokes is 0"):
        pseudo_radial_mask((32, 32), n_spokes=0)
    with pytest.raises(ValueError, match=r"matrix is \(3, 32\); a pattern needs at least 4 x 4"):
        gaussian_mask((3, 32))
