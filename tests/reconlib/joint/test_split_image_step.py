"""The inner problem of an image step against dense solves and scipy."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import torch
from small_problem import SmallProblem, small_problem
from written_out import EPSILON, data_term, total_variation

from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.data_consistency import DataTerm
from reconlib.joint.split_image_step import FixedMaps, QuickTerms, combined, split_step
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier

GRID = (9, 8)
NOTHING = QuickTerms(None, None)
LIPSCHITZ = torch.tensor([0.05, 0.7], dtype=torch.float64)
WEIGHTS = torch.tensor([1 / 8, 1 / 32], dtype=torch.float64)


@pytest.fixture
def problem() -> SmallProblem:
    return small_problem(grid=GRID, n_slices=2, noise=0.1, imaginary=0.3)


def maps_of(data: DataTerm, coils: torch.Tensor) -> FixedMaps:
    return FixedMaps.of(data, coils, -data.gradient(torch.zeros_like(coils)))


def drawn(generator: torch.Generator, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(2, 1, *GRID, dtype=torch.complex128, generator=generator)


def dense(problem: SmallProblem, row: int) -> tuple[np.ndarray, np.ndarray]:
    """E^H E and E^H z of one slice as matrices over real and imaginary parts, from the centred model."""
    n = GRID[0] * GRID[1]
    zero = data_term(problem, np.zeros(GRID, complex), row)[1].ravel()
    columns = []
    for unit in (1, 1j):
        for pixel in range(n):
            image = np.zeros(n, complex)
            image[pixel] = unit
            column = data_term(problem, image.reshape(GRID), row)[1].ravel() - zero
            columns.append(np.concatenate([column.real, column.imag]))
    return np.stack(columns, axis=1), -np.concatenate([zero.real, zero.imag])


def as_parts(image: torch.Tensor) -> np.ndarray:
    values = image.numpy().ravel()
    return np.concatenate([values.real, values.imag])


@pytest.mark.parametrize("phase", ["free", "soft"])
def test_without_quick_terms_the_image_solves_the_linear_system(problem, generator, phase):
    """L binds the imaginary part in ``free`` alone."""
    point, pull = drawn(generator), drawn(generator, 0.1)
    if phase == "soft":
        pull = torch.complex(pull.real, torch.zeros_like(pull.real))
    found = split_step(
        maps_of(problem.data, problem.coils),
        NOTHING,
        point,
        pull,
        LIPSCHITZ,
        phase=phase,
        n_steps=300,
    )
    for row in range(2):
        normal, backprojection = dense(problem, row)
        n = GRID[0] * GRID[1]
        bound = float(LIPSCHITZ[row]) * np.concatenate([np.ones(n), np.full(n, float(phase == "free"))])
        expected = np.linalg.solve(
            normal + np.diag(bound), backprojection - as_parts(pull[row]) + bound * as_parts(point[row])
        )
        np.testing.assert_allclose(as_parts(found[row]), expected, atol=1e-5)


@pytest.mark.parametrize("n_coils", [1, 3])
def test_a_real_image_is_the_least_squares_solution_that_is_not_negative(n_coils, generator):
    """Against scipy's bounded least squares. With one coil and few samples many pixels rest at 0."""
    problem = small_problem(grid=GRID, n_slices=2, n_coils=n_coils, noise=0.5, imaginary=0.3)
    point = torch.randn(2, 1, *GRID, dtype=torch.float64, generator=generator).clamp_min(0)
    pull = 0.3 * torch.randn(2, 1, *GRID, dtype=torch.float64, generator=generator)
    image = torch.complex(point, torch.zeros_like(point))
    for _ in range(12):  # which pixels rest is decided at the start of a step
        found = split_step(
            maps_of(problem.data, problem.coils),
            NOTHING,
            image,
            torch.complex(pull, torch.zeros_like(pull)) + LIPSCHITZ[:, None, None, None] * (image - point),
            LIPSCHITZ,
            phase="real",
            n_steps=100,
        )
        image = found
    n = GRID[0] * GRID[1]
    for row in range(2):
        normal, backprojection = dense(problem, row)
        system = normal[:n, :n] + float(LIPSCHITZ[row]) * np.eye(n)
        right = (
            backprojection[:n]
            - pull[row].numpy().ravel()
            + float(LIPSCHITZ[row]) * point[row].numpy().ravel()
        )
        root = np.linalg.cholesky(system).T
        expected = scipy.optimize.nnls(root, np.linalg.solve(root.T, right))[0]
        assert 0.1 < np.mean(expected == 0) < 0.9
        np.testing.assert_allclose(found[row].real.numpy().ravel(), expected, atol=1e-3)
        assert not bool(found[row].imag.any())


def spoke_samples(coils: torch.Tensor, image: torch.Tensor) -> tuple[NonuniformFourier, torch.Tensor]:
    """Points along spokes, dense in the centre, and the samples of an image there."""
    angles = torch.arange(14, dtype=torch.float64)[:, None] * np.pi / 14
    radius = (torch.arange(24, dtype=torch.float64) - 12) / 24
    points = torch.stack([radius * torch.sin(angles), radius * torch.cos(angles)], dim=-1).reshape(1, -1, 2)
    fourier = NonuniformFourier.plan(points, GRID)
    return fourier, fourier.forward((coils * image).to(torch.complex64))


def dense_spokes(coils: torch.Tensor, fourier: NonuniformFourier, row: int) -> np.ndarray:
    """E of one slice as the sum that is written out: (coil * point, pixel)."""
    points = fourier.points[0].numpy()
    y, x = (np.arange(n) - n // 2 for n in GRID)
    turns = points[:, 0, None, None] * y[:, None] + points[:, 1, None, None] * x
    waves = np.exp(-2j * np.pi * turns) / np.sqrt(GRID[0] * GRID[1])
    return np.concatenate([(waves * one).reshape(len(points), -1) for one in coils[row].numpy()])


def test_off_the_grid_the_preconditioned_steps_solve_the_linear_system(problem, generator):
    fourier, samples = spoke_samples(problem.coils, problem.image)
    samples = samples + 0.1 * torch.randn(samples.shape, dtype=samples.dtype, generator=generator)
    data = LeastSquares.of(fourier, samples)
    point, pull = drawn(generator).to(torch.complex64), drawn(generator, 0.1).to(torch.complex64)
    plain = replace(data, preconditioner=torch.ones_like(data.preconditioner))

    def step(n_steps: int, data: LeastSquares) -> torch.Tensor:
        maps = maps_of(data, problem.coils.to(torch.complex64))
        return split_step(maps, NOTHING, point, pull, LIPSCHITZ, phase="free", n_steps=n_steps)

    for row in range(2):
        e = dense_spokes(problem.coils, fourier, row)
        bound = float(LIPSCHITZ[row])
        rest = e.conj().T @ samples[row].numpy().ravel() - (pull - bound * point)[row].numpy().ravel()
        expected = np.linalg.solve(e.conj().T @ e + bound * np.eye(e.shape[1]), rest)
        errors = []
        for n_steps, term in ((60, data), (60, plain), (8, data), (8, plain)):
            found = step(n_steps, term)[row].numpy().ravel()
            errors.append(np.linalg.norm(found - expected) / np.linalg.norm(expected))
        assert max(errors[:2]) < 1e-3
        assert errors[2] < 0.7 * errors[3]


def objective(
    problem: SmallProblem, row: int, point: np.ndarray, pull: np.ndarray, image: np.ndarray
) -> tuple[float, np.ndarray]:
    """The inner problem of one slice with total variation of both parts: value and gradient."""
    value, gradient = data_term(problem, image, row)
    moved, bound = image - point, float(LIPSCHITZ[row])
    value += np.sum((pull.conj() * moved).real) + bound / 2 * np.sum(np.abs(moved) ** 2)
    gradient = gradient + pull + bound * moved
    for part, unit in ((image.real, 1), (image.imag, 1j)):
        of_part, slope = total_variation(part)
        value += float(WEIGHTS[row]) * of_part
        gradient = gradient + unit * float(WEIGHTS[row]) * slope
    return float(value), gradient


@pytest.fixture
def step(problem, generator):
    """The step with total variation of both parts, and its objective."""
    tv = TotalVariation(epsilon=EPSILON)
    maps = maps_of(problem.data, problem.coils)
    point, pull = drawn(generator), drawn(generator, 0.1)

    def run(n_steps: int) -> torch.Tensor:
        quick = QuickTerms((tv, WEIGHTS), (tv, WEIGHTS))
        return split_step(maps, quick, point, pull, LIPSCHITZ, phase="free", n_steps=n_steps)

    def of(row: int, image: np.ndarray) -> tuple[float, np.ndarray]:
        return objective(problem, row, point[row, 0].numpy(), pull[row, 0].numpy(), image)

    return run, of


def test_with_total_variation_the_image_is_scipys_minimum(step):
    run, of = step
    found = run(400)
    for row in range(2):

        def parts(x: np.ndarray, row: int = row) -> tuple[float, np.ndarray]:
            a, b = x.reshape(2, *GRID)
            value, gradient = of(row, a + 1j * b)
            return value, np.stack([gradient.real, gradient.imag]).ravel()

        best = scipy.optimize.minimize(
            parts,
            np.zeros(2 * GRID[0] * GRID[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 40},
        )
        np.testing.assert_allclose(as_parts(found[row]), best.x, atol=2e-4)


def test_the_first_step_goes_down_the_gradient_to_the_minimum_of_the_majoriser(problem, step):
    run, of = step
    start, end = (run(n)[:, 0].numpy() for n in (0, 1))
    for row in range(2):
        down = -of(row, start[row])[1]
        normal, _ = dense(problem, row)
        parts = np.concatenate([down.real.ravel(), down.imag.ravel()])
        curvature = parts @ normal @ parts + float(LIPSCHITZ[row]) * parts @ parts
        for image, along in ((start[row].real, down.real), (start[row].imag, down.imag)):
            slopes = [np.zeros(GRID), np.zeros(GRID)]
            for total, one in zip(slopes, (image, along), strict=True):
                total[:-1] += np.diff(one, axis=0) ** 2
                total[:, :-1] += np.diff(one, axis=1) ** 2
            curvature += float(WEIGHTS[row]) * np.sum(slopes[1] / np.sqrt(slopes[0] + EPSILON**2))
        expected = start[row] + parts @ parts / curvature * down
        np.testing.assert_allclose(end[row], expected, atol=1e-5)


def test_no_step_raises_the_objective(step):
    run, of = step
    images = [run(n)[:, 0].numpy() for n in range(12)]
    for row in range(2):
        values = np.array([of(row, image[row])[0] for image in images])
        assert bool((np.diff(values) < 0).all())
        # ten steps get most of the way
        assert values[10] - of(row, run(200)[row, 0].numpy())[0] < 0.02 * (values[0] - values[10])


def test_every_slice_of_a_batch_equals_the_slice_alone(problem, generator):
    tv = TotalVariation(epsilon=EPSILON)
    point, pull = drawn(generator), drawn(generator, 0.1)

    def run(rows: torch.Tensor) -> torch.Tensor:
        weights = tv, WEIGHTS[rows]
        return split_step(
            maps_of(problem.data.select(rows), problem.coils[rows]),
            QuickTerms(weights, weights),
            point[rows],
            pull[rows],
            LIPSCHITZ[rows],
            phase="free",
            n_steps=8,
        )

    both = run(torch.tensor([True, True]))
    for row in range(2):
        alone = run(torch.arange(2) == row)
        torch.testing.assert_close(both[row], alone[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("brightness", [1.0, 0.0])
def test_at_the_minimum_the_image_stays(brightness):
    """All residuals vanish there: no division may make a NaN of them."""
    full = small_problem(grid=GRID, keep=2.0)
    data, image = full.data.scaled(torch.tensor([brightness])), full.image * brightness
    found = split_step(
        maps_of(data, full.coils),
        NOTHING,
        image,
        torch.zeros_like(image),
        torch.zeros(1),
        phase="free",
        n_steps=8,
    )
    torch.testing.assert_close(found, image, rtol=0, atol=1e-6)


def test_combined_is_the_sum_over_the_coils(generator):
    a, b = (torch.randn(2, 3, *GRID, dtype=torch.complex128, generator=generator) for _ in range(2))
    expected = np.sum(a.numpy() * b.numpy(), axis=1, keepdims=True)
    np.testing.assert_allclose(combined(a, b).numpy(), expected, rtol=1e-12)
