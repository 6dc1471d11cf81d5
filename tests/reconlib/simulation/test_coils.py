"""Coil maps against the field of a loop that textbooks give, and phases against what they promise."""

import math

import pytest
import torch

from reconlib.simulation.coils import _loop_field, loop_coils, pixel_positions, rough_phase, smooth_phase


def maps(matrix=(48, 40), n_coils=8, seed=5, **more):
    return loop_coils(matrix, n_coils, generator=torch.Generator().manual_seed(seed), **more)


def test_pixel_positions_are_zero_at_the_middle_index():
    y, x = pixel_positions((5, 4), (10.0, 8.0))
    assert y.flatten().tolist() == [-4.0, -2.0, 0.0, 2.0, 4.0]
    assert x.flatten().tolist() == [-4.0, -2.0, 0.0, 2.0]


def test_the_field_on_the_axis_of_a_loop_is_the_textbook_one():
    """On its axis a loop of radius a makes 2 pi a^2 / (a^2 + d^2)^(3/2) along its normal."""
    radius, centre = 40.0, torch.tensor([90.0, 0.0, 0.0], dtype=torch.float64)
    x = torch.tensor([[-30.0, 0.0, 40.0]], dtype=torch.float64)
    y = torch.zeros(1, 1, dtype=torch.float64)
    normal = torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64)
    field = _loop_field(x, y, 0.0, centre, normal, radius, 60)[0]
    distance = 90.0 - x[0]
    # The wire of the model is a strip, which softens the distance by 12 mm.
    expected = (radius**2) / (radius**2 + distance**2 + 12.0**2).pow(1.5)
    assert torch.allclose(field.abs() / field[0].abs(), expected / expected[0], rtol=1e-6)
    assert torch.allclose(field.imag, torch.zeros(3, dtype=torch.float64), atol=1e-12)
    assert len(set(field.real.sign().tolist())) == 1


@pytest.mark.parametrize("n_coils", [1, 2, 3, 8, 9, 13, 32])
@pytest.mark.parametrize("matrix", [(7, 12), (15, 9)], ids=str)
def test_any_number_of_coils_on_any_matrix(n_coils, matrix):
    coils = maps(matrix, n_coils, slice_positions_mm=(0.0, 20.0))
    assert coils.shape == (2, n_coils, *matrix)
    assert coils.dtype == torch.complex64
    assert bool(torch.isfinite(torch.view_as_real(coils)).all())
    assert bool((coils.abs().square().sum(1) > 1e-4).all())


def test_the_root_sum_of_squares_is_one_at_the_centre():
    coils = maps(slice_positions_mm=(0.0, 10.0))
    assert float(coils[0, :, 24, 20].abs().square().sum().sqrt()) == pytest.approx(1.0, abs=1e-5)


def test_maps_are_smooth():
    """Less than 1 % of their energy lies outside the inner eighth of k-space (windowed for the borders)."""
    coils = maps((96, 96))[0] * torch.hann_window(96)[:, None] * torch.hann_window(96)[None, :]
    power = torch.fft.fftshift(torch.fft.fft2(coils), dim=(-2, -1)).abs().square().sum(0)
    assert float(1 - power[42:54, 42:54].sum() / power.sum()) < 0.01


def test_coils_differ_in_place_and_phase():
    coils = maps()[0].flatten(1)
    gram = (coils @ coils.mH).abs()
    norm = gram.diagonal().sqrt()
    overlap = gram / (norm[:, None] * norm[None, :]) - torch.eye(8)
    assert float(overlap.max()) < 0.97
    assert int(torch.linalg.matrix_rank(coils)) == 8


def test_maps_are_those_of_one_array_at_every_matrix_and_slice():
    coarse, fine = maps((16, 16)), maps((48, 48))
    assert torch.allclose(fine[..., ::3, ::3], coarse, rtol=1e-3, atol=1e-3)
    both, second = maps(slice_positions_mm=(0.0, 25.0)), maps(slice_positions_mm=(25.0,))
    ratio = both[1] / second[0]
    assert torch.allclose(ratio, ratio[0, 0, 0].expand_as(ratio), rtol=1e-3)


def test_seeds_decide():
    assert torch.equal(maps(), maps())
    assert not torch.allclose(maps(), maps(seed=6))


@pytest.mark.parametrize("phase_of", [smooth_phase, rough_phase])
def test_phases_have_the_axes_of_an_image_and_follow_the_seed(phase_of):
    def draw(seed, matrix=(9, 14)):
        return phase_of(
            matrix, generator=torch.Generator().manual_seed(seed), slice_positions_mm=(0.0, 5.0, 11.0)
        )

    assert draw(1).shape == (3, 1, 9, 14)
    assert draw(1).dtype == torch.float32
    assert torch.equal(draw(1), draw(1))
    assert not torch.allclose(draw(1), draw(2))


def test_smooth_phase_is_smooth_and_rough_phase_is_not(generator):
    smooth = smooth_phase((110, 110), generator=generator)
    rough = rough_phase((110, 110), generator=generator)
    assert float(smooth.diff(dim=-1).abs().max()) < 0.15
    assert float(rough.diff(dim=-1).abs().max()) > 0.15


def test_rough_phase_is_scarce_and_as_large_as_asked(generator):
    phase = rough_phase((220, 220), generator=generator, amplitude_rad=0.6)
    share = float((phase.abs() > 0.3).float().mean())
    assert 0.002 < share < 0.1
    assert 0.5 < float(phase.abs().max()) < 0.6 * (1 + 0.05 * 5)
    assert float(rough_phase((8, 8), generator=generator, amplitude_rad=0.0).abs().max()) == 0.0


def test_impossible_arrays_are_refused():
    with pytest.raises(ValueError, match="n_coils is 0"):
        maps(n_coils=0)
    with pytest.raises(ValueError, match=r"\(0, 5\) pixels"):
        maps((0, 5))
    assert math.isfinite(float(maps((1, 1), 1).abs()))
