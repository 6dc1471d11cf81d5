"""The phantom of ellipses: its k-space against integrals that know no Bessel function."""

import numpy as np
import pytest
import torch
from scipy import integrate

from reconlib.simulation.analytic_phantom import (
    PHANTOM,
    Ellipse,
    coil_kspace,
    grid_points,
    phantom_image,
    phantom_kspace,
    wave_coils,
)
from reconlib.simulation.coils import loop_coils, smooth_phase

ELLIPSE = Ellipse(x=0.1, y=-0.05, a=0.3, b=0.12, turn_rad=0.5, value=0.7)
FOV = (220.0, 200.0)


def coils(n_coils=3, seed=4):
    return wave_coils(n_coils, generator=torch.Generator().manual_seed(seed), fov_mm=FOV)


@pytest.mark.parametrize("k", [(0.0, 0.0), (3.0, 0.0), (-1.3, 4.2), (17.4, -31.0)])
def test_the_transform_of_an_ellipse_is_that_of_its_projection(k):
    # projection onto k's direction: chords of length 2 a b / r sqrt(1 - s^2 / r^2), r the support's radius
    size = np.hypot(*k)
    direction = np.array(k) / size if size else np.array([1.0, 0.0])
    turned = np.array(
        [
            np.cos(0.5) * direction[0] + np.sin(0.5) * direction[1],
            np.cos(0.5) * direction[1] - np.sin(0.5) * direction[0],
        ]
    )
    radius = np.hypot(0.3 * turned[0], 0.12 * turned[1])

    # s = r sin t
    half_turn = integrate.quad(
        lambda t: np.cos(t) ** 2 * np.cos(2 * np.pi * size * radius * np.sin(t)),
        -np.pi / 2,
        np.pi / 2,
        limit=400,
        epsabs=1e-12,
    )
    at_origin = 2 * 0.3 * 0.12 * half_turn[0]
    expected = 0.7 * at_origin * np.exp(-2j * np.pi * (k[0] * 0.1 + k[1] * -0.05))

    assert phantom_kspace(np.array([k]), (ELLIPSE,))[0] == pytest.approx(expected, abs=1e-9)


def test_at_the_centre_of_kspace_is_the_integral():
    area = sum(ellipse.value * np.pi * ellipse.a * ellipse.b for ellipse in PHANTOM)

    assert phantom_kspace(np.zeros((1, 2)))[0] == pytest.approx(area, rel=1e-12)


def test_coil_kspace_is_the_transform_of_what_the_coils_see():
    fine = (600, 750)
    made = coils()
    points = np.array([[0.0, 0.0], [2.0, -1.0], [0.4, 7.3], [-5.2, -3.1]])
    seen = made.on_grid(fine) * phantom_image(fine)
    y, x = (np.arange(n) / n - (n // 2) / n for n in fine)
    waves_y, waves_x = (
        np.exp(-2j * np.pi * points[:, axis, None] * place) for axis, place in ((1, y), (0, x))
    )
    expected = np.einsum("cyx,py,px->cp", seen, waves_y, waves_x, optimize=True) / (600 * 750)

    samples = coil_kspace(points, made, (24, 32))

    # what is left is the edge of ellipses, drawn in pixels
    assert np.abs(samples / np.sqrt(24 * 32) - expected).max() < 6e-4 * np.abs(expected).max()


def test_on_a_complete_grid_the_inverse_transform_is_the_image():
    matrix = (64, 50)
    samples = coil_kspace(grid_points(matrix), coils(), matrix)

    shifted = np.fft.ifft2(np.fft.ifftshift(samples, axes=(-2, -1)), norm="ortho")
    image = np.fft.fftshift(shifted, axes=(-2, -1))

    expected = coils().on_grid(matrix) * phantom_image(matrix)
    # in flat regions; edges ring
    flat = np.s_[:, 26:30, 14:17]
    assert np.abs(image[flat] - expected[flat]).max() < 0.06 * np.abs(expected).max()


def test_coils_resemble_loops():
    generator = torch.Generator().manual_seed(4)
    loops = loop_coils((32, 32), 3, generator=generator, fov_mm=FOV)[0].numpy()
    phase = smooth_phase((32, 32), generator=generator, fov_mm=FOV, amplitude_rad=0.8)[0].numpy()
    place = (np.arange(32) - 16) / 32
    inside = place**2 + place[:, None] ** 2 < 0.2

    difference = np.abs(coils().on_grid((32, 32)) - loops * np.exp(1j * phase))[:, inside]

    assert np.sqrt((difference**2).mean()) < 0.06
    assert np.abs(coils().weights).max() < 10


def test_the_phantom_is_nowhere_negative_and_has_fine_details():
    image = phantom_image((400, 400))

    assert image.min() >= -1e-12
    assert 0.85 < image.max() < 1.0
    assert len(np.unique(np.round(image, 6))) > 8
