"""The share of coil images that maps do not explain, against cases that are written down."""

import math

import pytest
import torch

from reconlib.evaluation.null_space import null_space_residual


def complex_normal(*shape, generator):
    return torch.randn(*shape, generator=generator, dtype=torch.complex64)


def test_true_maps_leave_nothing_whatever_their_scale_and_phase(generator):
    maps = complex_normal(2, 3, 5, 7, generator=generator)
    image = complex_normal(2, 1, 5, 7, generator=generator)
    twist = complex_normal(2, 1, 5, 7, generator=generator)
    assert float(null_space_residual(maps * image, maps * twist).max()) < 1e-9


def test_maps_at_an_angle_leave_the_square_of_its_sine():
    angle = 0.3
    images = torch.tensor([1.0, 0.0], dtype=torch.complex64)[None, :, None, None].expand(1, 2, 3, 4)
    maps = torch.tensor([math.cos(angle), 1j * math.sin(angle)]).to(torch.complex64)
    maps = maps[None, :, None, None].expand(1, 2, 3, 4)
    residual = null_space_residual(images, maps)
    assert float(residual) == pytest.approx(100 * math.sin(angle) ** 2, rel=1e-6)


def test_noise_is_left_over_but_for_one_part_in_the_number_of_coils(generator):
    noise = complex_normal(1, 8, 60, 60, generator=generator)
    maps = complex_normal(1, 8, 60, 60, generator=generator)
    assert float(null_space_residual(noise, maps)) == pytest.approx(100 * 7 / 8, rel=0.01)


def test_where_maps_vanish_the_coil_images_are_left_over():
    images = torch.ones(1, 2, 4, 4, dtype=torch.complex64)
    maps = torch.ones(1, 2, 4, 4, dtype=torch.complex64)
    maps[..., :2] = 0
    assert float(null_space_residual(images, maps)) == pytest.approx(50.0)


def test_what_cannot_be_compared_is_refused():
    ones = torch.ones(1, 2, 4, 4, dtype=torch.complex64)
    with pytest.raises(
        ValueError, match=r"shape \(1, 2, 4, 4\) cannot be compared with maps of shape \(1, 3,"
    ):
        null_space_residual(ones, torch.ones(1, 3, 4, 4, dtype=torch.complex64))
    with pytest.raises(ValueError, match="all zero; there is nothing to explain"):
        null_space_residual(0 * ones, ones)
