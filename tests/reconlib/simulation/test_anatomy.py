"""The drawn head: reproducible, band-limited, one head at any grid, with structure where a brain has it."""

import numpy as np
import pytest
import torch

from reconlib.simulation.anatomy import cut_to_matrix, draw_head


def head(matrix=(96, 80), seed=3, positions=(6.0,), **more):
    return draw_head(
        matrix,
        generator=torch.Generator().manual_seed(seed),
        fov_mm=(228.0, 190.0),
        slice_positions_mm=positions,
        **more,
    )


@pytest.mark.parametrize("matrix", [(33, 47), (64, 31), (20, 20), (5, 8)], ids=str)
def test_a_head_fits_any_matrix(matrix):
    image = head(matrix, positions=(0.0, 12.0)).magnitude
    assert image.shape == (2, 1, *matrix)
    assert image.dtype == torch.float32
    assert bool(torch.isfinite(image).all())
    assert bool((image >= 0).all())


def test_one_seed_gives_one_head_and_another_seed_another():
    assert torch.equal(head().magnitude, head().magnitude)
    assert float((head().magnitude - head(seed=4).magnitude).abs().mean()) > 0.02


def test_the_brightest_pixels_are_at_one():
    image = head((128, 107)).magnitude
    assert np.percentile(image.numpy(), 99.95) == pytest.approx(1.0, abs=1e-5)
    assert float(image.max()) < 1.3


def test_water_and_fat_make_up_the_head():
    slices = head()
    assert torch.equal(slices.magnitude, (slices.water + slices.fat).abs())
    # Fat is a small part of a head, all of it in the scalp and the skull.
    share = float(slices.fat.abs().sum() / slices.magnitude.sum())
    assert 0.1 < share < 0.5
    assert float(slices.fat[0, 0, 38:58, 30:50].abs().max()) < 0.1


def test_the_matrix_only_decides_how_finely_the_head_is_seen():
    """A coarse matrix shows what is left of a fine one when its k-space is cut."""
    coarse = head((64, 54))
    fine = head((192, 162))
    expected = cut_to_matrix(fine.water + fine.fat, (64, 54))
    found = coarse.water + coarse.fat
    factor = (found * expected).sum() / expected.square().sum()
    error = (found - factor * expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert float(error) < 0.12


def test_a_head_is_band_limited_not_pixel_sharp():
    """Drawn at three times the resolution and cut: edges ring into the air, as in a measured image."""
    image = head((128, 107))
    corner = (image.water + image.fat)[0, 0, :10, :10]
    assert 0 < float(corner.abs().max()) < 0.03
    assert bool((corner < 0).any())
    assert bool((corner > 0).any())


def test_neighbouring_slices_change_smoothly_and_distant_ones_more():
    image = head(positions=(6.0, 6.5, 9.0, 30.0)).magnitude
    steps = [float((image[i] - image[0]).square().mean().sqrt()) for i in (1, 2, 3)]
    assert steps[0] < 0.6 * steps[1]
    assert steps[1] < 0.7 * steps[2]


def test_there_is_fine_structure_all_over_the_cortex():
    """Along a closed line inside the skull, grey matter, fluid and white matter alternate many times."""
    image = head((228, 190)).magnitude[0, 0].numpy()
    angle = np.linspace(0.0, 2.0 * np.pi, 720, endpoint=False)
    rows = np.round(114 + 70 * np.sin(angle)).astype(int)
    columns = np.round(95 + 53 * np.cos(angle)).astype(int)
    along = image[rows, columns]
    white = along > 0.85 * np.percentile(along, 90)
    assert 14 <= int((white != np.roll(white, 1)).sum()) // 2 <= 60


def test_contrasts_order_the_tissues_as_they_should():
    """Ventricles are the darkest of the brain in T1 and the brightest in T2; white matter is not."""
    t_1, t_2 = head((128, 107)).magnitude, head((128, 107), contrast="t2").magnitude
    brain = (slice(None), slice(None), slice(40, 88), slice(36, 72))
    dark = t_1[brain] <= t_1[brain].quantile(0.03)
    bright = t_1[brain] >= t_1[brain].quantile(0.6)
    assert float(t_2[brain][dark].mean()) > 1.8 * float(t_2[brain][bright].mean())


@pytest.mark.parametrize(
    ("n", "cut"), [((12, 15), (8, 9)), ((13, 10), (6, 10)), ((9, 9), (8, 5)), ((12, 10), (7, 5))], ids=str
)
def test_cutting_keeps_what_both_matrices_can_show(n, cut, generator):
    """A wave below the cut looks the same, at the same place, on both grids (origin at n // 2)."""
    phase = 2 * np.pi * torch.rand(2, generator=generator)

    def wave(shape):
        y, x = ((torch.arange(k, dtype=torch.float64) - k // 2) / k for k in shape)
        return (
            2.0
            + torch.cos(2 * np.pi * 2 * y + phase[0])[:, None]
            * torch.sin(2 * np.pi * 1 * x + phase[1])[None, :]
        )

    assert torch.allclose(cut_to_matrix(wave(n), cut), wave(cut), atol=1e-12)


def test_impossible_heads_are_refused():
    with pytest.raises(ValueError, match="oversampling is 0"):
        head(oversampling=0)
    with pytest.raises(ValueError, match="slice_positions_mm is empty"):
        head(positions=())
    with pytest.raises(ValueError, match="cannot be cut to the larger matrix 9 x 4"):
        cut_to_matrix(torch.ones(8, 8), (9, 4))
