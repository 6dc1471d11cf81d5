"""Samples at any points of k-space in the joint solver and the sampler, against the same on the grid."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_problem import single_precision, small_problem

from reconlib.joint import ipalm
from reconlib.joint.data_consistency import DataConsistency
from reconlib.joint.nonuniform_start import smooth_maps
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.posterior.run import sample_posterior
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct, zero_filled

SHIPPED = Path(__file__).parents[3] / "config" / "priors"
GRID = (15, 12)


@pytest.fixture(scope="module")
def tv() -> Prior:
    return load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))


@pytest.fixture(scope="module")
def problem():
    return small_problem(grid=GRID, n_slices=2, n_coils=3, noise=0.02)


def cells(shape: tuple[int, int] = GRID) -> torch.Tensor:
    """Points (ky, kx) of the complete grid, cycles per pixel: float64 (point, 2)."""
    y, x = (torch.from_numpy((np.arange(n) - n // 2) / n) for n in shape)
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1).reshape(-1, 2)


def as_points(kspace: KSpace, *, repeats: int = 1) -> NonuniformKSpace:
    """The measured samples of all slices (which share their lines) as points, each ``repeats`` times."""
    there = kspace.mask[0, 0].flatten()
    samples = kspace.samples.flatten(2)[..., there].repeat(1, 1, repeats)
    return NonuniformKSpace(
        samples=samples,
        trajectory=cells()[there].repeat(repeats, 1)[None],
        weights=torch.full((1, samples.shape[-1]), 1 / repeats),
        shape=GRID,
        noise_std=kspace.noise_std,
    )


def shared_lines(problem) -> KSpace:
    kspace = single_precision(problem.kspace)
    mask = kspace.mask[:1].expand_as(kspace.mask).contiguous()
    full = problem.kspace.samples.to(torch.complex64)
    return KSpace(samples=full * mask, mask=mask, noise_std=kspace.noise_std)


def test_the_weighted_adjoint_of_grid_points_is_the_zero_filled_image(problem):
    kspace = shared_lines(problem)
    torch.testing.assert_close(
        zero_filled(as_points(kspace, repeats=2)), zero_filled(kspace), rtol=0, atol=2e-4
    )


@pytest.mark.parametrize("phase", ["soft", "real"])
def test_with_given_maps_the_image_is_that_of_the_grid(problem, tv, phase):
    """The problem is convex then, so both solvers have to end at its one minimum."""
    kspace, maps = shared_lines(problem), problem.coils.to(torch.complex64)
    settings = ReconstructionSettings(image_phase=phase, iterations=70)
    on_grid = reconstruct(kspace, prior=tv, settings=settings, coils=maps)
    found = reconstruct(as_points(kspace), prior=tv, settings=settings, coils=maps)
    assert found.scale == pytest.approx(on_grid.scale, rel=1e-3)
    error = torch.linalg.vector_norm(found.image - on_grid.image)
    assert float(error) < 2e-3 * float(torch.linalg.vector_norm(on_grid.image))


def test_preconditioned_steps_do_not_change_what_is_minimised(problem, tv, monkeypatch):
    """The centre is measured nine times: steps of one length are slow there, and end at the same image."""
    kspace, maps = shared_lines(problem), problem.coils.to(torch.complex64)
    points = as_points(kspace)
    is_centre = (points.trajectory[0].abs() < 0.2).all(dim=-1)
    extra = replace(
        points,
        samples=torch.cat([points.samples, points.samples[..., is_centre].repeat(1, 1, 8)], dim=-1),
        trajectory=torch.cat([points.trajectory, points.trajectory[:, is_centre].repeat(1, 8, 1)], dim=1),
        weights=torch.cat([points.weights, torch.zeros(1, 8 * int(is_centre.sum()))], dim=1),
    )

    def image(iterations: int) -> torch.Tensor:
        settings = ReconstructionSettings(solver="paper", image_phase="soft", iterations=iterations)
        return reconstruct(extra, prior=tv, settings=settings, coils=maps).image

    few, many = image(15), image(150)
    monkeypatch.setattr(ipalm, "_direction", lambda _data, _model, gradient: gradient)
    monkeypatch.setattr(ipalm, "_first_lipschitz", lambda data, _model: data.largest_eigenvalue)
    plain_few, plain = image(15), image(400)

    def apart(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))

    assert apart(many, plain) < 2e-3
    assert apart(few, plain) < 0.5 * apart(plain_few, plain)


@pytest.mark.parametrize("repeats", [1, 3])
def test_the_preconditioner_is_the_inverse_of_the_number_of_samples_per_cell(repeats):
    samples = torch.ones(1, 2, repeats * len(cells()), dtype=torch.complex64)
    term = LeastSquares.of(NonuniformFourier.plan(cells().repeat(repeats, 1)[None], GRID), samples)
    assert term.largest_eigenvalue == pytest.approx(repeats, rel=1e-3)
    torch.testing.assert_close(term.preconditioner, torch.full((1, 1, *GRID), 1 / repeats), rtol=2e-3, atol=0)


def test_a_scaled_term_is_that_of_scaled_samples(problem, generator):
    points = as_points(shared_lines(problem))
    fourier = NonuniformFourier.plan(points.trajectory, GRID)
    factor = torch.tensor([2.0, -0.5])
    images = torch.randn(2, 3, *GRID, dtype=torch.complex64, generator=generator)
    one = LeastSquares.of(fourier, points.samples).scaled(factor)
    other = LeastSquares.of(fourier, points.samples * factor[:, None, None])
    for found, expected in zip(one.gradient_and_value(images), other.gradient_and_value(images), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_smooth_maps_are_the_sensitivities_where_these_do_not_change():
    """Coil images of one image times a constant: whatever the window does, it does to all coils alike."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 24), torch.linspace(-1, 1, 20), indexing="ij")
    image = torch.exp(-4 * (y**2 + x**2)).to(torch.complex64)[None, None]
    constant = torch.tensor([0.6, 0.8j], dtype=torch.complex64)[None, :, None, None]
    maps = smooth_maps(image * constant)
    torch.testing.assert_close(maps, constant.expand_as(maps), rtol=0, atol=1e-4)
    assert not bool(smooth_maps(torch.zeros(1, 2, 8, 9, dtype=torch.complex64)).abs().any())


def test_the_joint_estimate_comes_closer_to_the_truth_than_its_start(tv):
    problem = small_problem(grid=(24, 20), n_coils=6, keep=0.5, noise=0.005)
    kspace = single_precision(problem.kspace)
    there = kspace.mask[0, 0].flatten()
    points = NonuniformKSpace(
        samples=kspace.samples.flatten(2)[..., there],
        trajectory=cells((24, 20))[there][None],
        weights=torch.ones(1, int(there.sum())),
        shape=(24, 20),
        noise_std=kspace.noise_std,
    )
    truth = problem.image.abs()

    def error(image: torch.Tensor) -> float:
        return float(torch.linalg.vector_norm(image - truth) / torch.linalg.vector_norm(truth))

    found = reconstruct(points, prior=tv)
    assert error(found.image.abs()) < 0.6 * error(zero_filled(points))


def test_the_chains_are_those_of_the_grid(problem, tv):
    """The same density, steps and random numbers: the same draws, but for the transform's rounding."""
    kspace, maps = shared_lines(problem), problem.coils.to(torch.complex64)
    solver = ReconstructionSettings(iterations=30)
    settings = PosteriorSettings(sampler="langevin", chains=2, warmup=3, draws=20)
    on_grid = reconstruct(kspace, prior=tv, settings=solver, coils=maps)
    one, other = (
        sample_posterior(data, on_grid, prior=tv, settings=settings, solver=solver)
        for data in (kspace, as_points(kspace))
    )
    assert float((one.mean - other.mean).abs().max()) < 1e-2 * float(one.mean.abs().max())
    torch.testing.assert_close(other.std, one.std, rtol=2e-2, atol=0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": torch.ones(2, 3, 4)}, "must be complex with the axes"),
        ({"trajectory": torch.zeros(1, 5, 2)}, r"trajectory has the shape \(1, 5, 2\).*need \(2, 4, 2\)"),
        ({"weights": torch.ones(3, 4)}, r"weights has the shape \(3, 4\).*need \(2, 4\), or 1 in place of 2"),
        ({"noise_std": 0.0}, "noise_std is 0.0; it must be positive"),
    ],
)
def test_samples_that_do_not_belong_together_are_refused(changes, words):
    fields = {
        "samples": torch.ones(2, 3, 4, dtype=torch.complex64),
        "trajectory": torch.zeros(1, 4, 2),
        "weights": torch.ones(1, 4),
        "shape": (8, 8),
        "noise_std": 1.0,
    }
    NonuniformKSpace(**fields)
    with pytest.raises(ValueError, match=words):
        NonuniformKSpace(**(fields | changes))


def test_given_maps_of_another_size_are_refused(problem, tv):
    points = as_points(shared_lines(problem))
    with pytest.raises(ValueError, match=r"shape \(2, 3, 9, 9\), the samples \(2, 3, 15, 12\)"):
        reconstruct(points, prior=tv, coils=torch.ones(2, 3, 9, 9, dtype=torch.complex64))


def test_a_term_on_the_grid_needs_no_preconditioner():
    assert DataConsistency.preconditioner is None
    assert DataConsistency.largest_eigenvalue == 1
