"""An echo off the centre of k-space: what is moved, that it is exact, and what it is good for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_problem import single_precision, small_problem

from reconlib.joint.echo_shift import echo_centred
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.fourier import ifft2c
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct

GRID = (16, 13)
PRIORS = Path(__file__).parents[3] / "config" / "priors"


@pytest.fixture(scope="module")
def tv() -> Prior:
    return load_prior(find_prior("tv", [PRIORS]), torch.device("cpu"))


def ramp(shift: tuple[int, int], grid: tuple[int, int] = GRID) -> np.ndarray:
    """exp(2 pi i s r / n) with r = 0 in the middle."""
    y, x = np.meshgrid(*((np.arange(n) - n // 2) / n for n in grid), indexing="ij")
    return np.exp(2j * np.pi * (shift[0] * y + shift[1] * x))


def shifted(shift: tuple[int, int]) -> tuple[KSpace, torch.Tensor]:
    """Fully sampled k-space of coil images with a ramp, and these."""
    problem = small_problem(grid=GRID, keep=2.0)
    images = (problem.coils * problem.image).numpy() * ramp(shift)
    centred = np.fft.fft2(np.fft.ifftshift(images, axes=(-2, -1)), norm="ortho")
    samples = torch.from_numpy(np.fft.fftshift(centred, axes=(-2, -1)))
    return replace(problem.kspace, samples=samples), torch.from_numpy(images)


@pytest.mark.parametrize("shift", [(3, -2), (-5, 0), (0, 4)])
def test_the_ramp_of_the_coil_images_is_found_and_taken_out(shift):
    kspace, images = shifted(shift)
    centred, turn = echo_centred(kspace)
    assert turn is not None
    np.testing.assert_allclose(turn[0, 0].numpy(), ramp(shift), atol=1e-6)
    np.testing.assert_allclose(ifft2c(centred.samples).numpy() * turn.numpy(), images.numpy(), atol=1e-6)


def test_what_is_centred_stays_as_it_is():
    kspace, _ = shifted((0, 0))
    same, turn = echo_centred(kspace)
    assert turn is None
    assert same is kspace


def test_the_mask_moves_with_its_samples_and_each_slice_has_its_own_shift():
    shifts = [(3, -2), (0, 0), (-4, 1)]
    parts = [shifted(shift)[0] for shift in shifts]
    mask = torch.ones(3, 1, *GRID, dtype=torch.bool)
    mask[:, :, ::3] = False
    kspace = KSpace(samples=torch.cat([one.samples for one in parts]) * mask, mask=mask, noise_std=0.1)
    centred, turn = echo_centred(kspace)
    for row, (y, x) in enumerate(shifts):
        np.testing.assert_allclose(turn[row, 0].numpy(), ramp((y, x)), atol=1e-6)
        for name in ("samples", "mask"):
            moved = np.roll(getattr(kspace, name)[row].numpy(), (-y, -x), (-2, -1))
            np.testing.assert_array_equal(getattr(centred, name)[row].numpy(), moved)


def test_off_the_grid_points_move_and_wrap_and_the_model_is_the_same():
    generator = torch.Generator().manual_seed(4)
    points = torch.rand(1, 400, 2, dtype=torch.float64, generator=generator) - 0.5
    points = points * points.abs().sqrt()  # denser in the centre
    fourier = NonuniformFourier.plan(points, GRID)
    problem = small_problem(grid=GRID)
    images = (problem.coils * problem.image * torch.from_numpy(ramp((3, -2)))).to(torch.complex64)
    kspace = NonuniformKSpace(
        samples=fourier.forward(images),
        trajectory=points.float(),
        weights=torch.full((1, 400), GRID[0] * GRID[1] / 400),
        shape=GRID,
        noise_std=0.1,
    )
    moved, turn = echo_centred(kspace)
    np.testing.assert_allclose(turn[0, 0].numpy(), ramp((3, -2)), atol=1e-6)
    assert float(moved.trajectory.abs().max()) <= 0.5
    again = NonuniformFourier.plan(moved.trajectory, GRID).forward(images * turn.conj())
    torch.testing.assert_close(again, kspace.samples, rtol=0, atol=2e-3 * float(kspace.samples.abs().max()))


@pytest.mark.parametrize("fill", [0.0, np.nan, np.inf])
def test_samples_without_a_centroid_are_left_alone(fill):
    kspace, _ = shifted((3, -2))
    kspace = replace(kspace, samples=torch.full_like(kspace.samples, fill))
    assert echo_centred(kspace)[1] is None


@pytest.mark.parametrize("given", ["nothing", "coils", "initial coils"])
@pytest.mark.parametrize("solver", ["fast", "paper"])
def test_a_reconstruction_of_shifted_k_space_is_that_of_the_centred_one(solver, given, tv: Prior):
    """The image is the same, and the maps have the ramp; maps that are given have it, too."""
    shift = (3, -2)
    settings = ReconstructionSettings(solver=solver, iterations=5)
    problem = small_problem(grid=GRID, keep=2.0)
    found = []
    for by in ((0, 0), shift):
        maps = (problem.coils * torch.from_numpy(ramp(by))).to(torch.complex64)
        known = {"nothing": {}, "coils": {"coils": maps}, "initial coils": {"initial_coils": maps}}[given]
        found.append(reconstruct(single_precision(shifted(by)[0]), prior=tv, settings=settings, **known))
    centred, moved = found
    torch.testing.assert_close(moved.image, centred.image, rtol=0, atol=1e-4)
    turned = centred.coils * torch.from_numpy(ramp(shift))
    torch.testing.assert_close(moved.coils, turned.to(torch.complex64), rtol=0, atol=1e-3)
