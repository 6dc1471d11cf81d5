"""The Gauss-Newton step of the maps against scipy's minimum, and what its text claims."""

import numpy as np
import pytest
import scipy.optimize
import torch
from small_problem import SmallProblem, small_problem

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.joint.coil_newton import CoilMaps, newton_coil_step, unit_maps
from reconlib.joint.data_consistency import DataConsistency, DataTerm
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier

GRID = (6, 5)
SMOOTHNESS = CoilSmoothness(0.3)


def problem_of(n_coils: int, *, noise: float = 0.05) -> tuple[SmallProblem, torch.Tensor]:
    """Two slices, and maps that are off the truth, of any magnitude."""
    problem = small_problem(grid=GRID, n_coils=n_coils, n_slices=2, noise=noise, imaginary=0.2)
    generator = torch.Generator().manual_seed(5)
    off = torch.randn(problem.coils.shape, dtype=torch.complex128, generator=generator)
    return problem, 1.5 * problem.coils + 0.3 * off


def objective(data: DataTerm, image: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """H + mu F: float64 (slice,)."""
    return data.gradient_and_value(maps * image)[1] + SMOOTHNESS.value(maps)


def differences_squared(maps: np.ndarray) -> tuple[float, np.ndarray]:
    """Half the sum of squared differences, zero outside the image, and its gradient."""
    value, gradient = 0.0, np.zeros_like(maps)
    for axis in (-2, -1):
        d = np.diff(maps, axis=axis, prepend=0, append=0)
        value += np.sum(np.abs(d) ** 2) / 2
        gradient -= np.diff(d, axis=axis)
    return float(value), gradient


def scipy_minimum(problem: SmallProblem, row: int, start: np.ndarray) -> float:
    """H + mu F of one slice at the best maps of magnitude 1: L-BFGS over maps that are divided by theirs."""
    image, samples = problem.image.numpy()[row], problem.kspace.samples.numpy()[row]
    mask = problem.kspace.mask.numpy()[row]
    axes = (-2, -1)

    def parts(x: np.ndarray) -> tuple[float, np.ndarray]:
        real, imaginary = x.reshape(2, *start.shape)
        maps = real + 1j * imaginary
        size = np.linalg.norm(maps, axis=0)
        unit = maps / size
        found = np.fft.fftshift(
            np.fft.fft2(np.fft.ifftshift(unit * image, axes=axes), norm="ortho"), axes=axes
        )
        residual = (found - samples) * mask
        back = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(residual, axes=axes), norm="ortho"), axes=axes)
        rough, slope = differences_squared(unit)
        gradient = image.conj() * back + SMOOTHNESS.weight * slope
        gradient = (gradient - unit * np.sum(unit.conj() * gradient, axis=0).real) / size
        value = np.sum(np.abs(residual) ** 2) / 2 + SMOOTHNESS.weight * rough
        return float(value), np.stack([gradient.real, gradient.imag]).ravel()

    first = np.stack([start.real, start.imag]).ravel()
    assert scipy.optimize.check_grad(lambda x: parts(x)[0], lambda x: parts(x)[1], first) < 1e-4
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9}
    best = scipy.optimize.minimize(parts, first, jac=True, method="L-BFGS-B", options=options)
    return float(best.fun)


@pytest.mark.parametrize("n_coils", [1, 3])
def test_solved_steps_end_at_scipys_minimum(n_coils):
    problem, maps = problem_of(n_coils)
    state = CoilMaps.start(maps)
    for _ in range(15):
        state, _ = newton_coil_step(problem.data, SMOOTHNESS, state, problem.image, n_steps=100)
    found = objective(problem.data, problem.image, state.maps)
    for row in range(2):
        assert float(found[row]) == pytest.approx(scipy_minimum(problem, row, maps[row].numpy()), rel=1e-6)


def test_near_the_minimum_the_distance_is_squared_in_a_step():
    """The model's Hessian is the true one where the residual vanishes: the step is Newton's."""
    problem = small_problem(grid=GRID, n_coils=3, keep=2.0)
    data = problem.data
    weak = CoilSmoothness(1e-12)
    generator = torch.Generator().manual_seed(2)
    off = torch.randn(problem.coils.shape, dtype=torch.complex128, generator=generator)
    distances = []
    state = CoilMaps.start(problem.coils + 0.05 * off)
    for _ in range(3):
        distances.append(float(data.gradient_and_value(state.maps * problem.image)[1]) ** 0.5)
        state, _ = newton_coil_step(data, weak, state, problem.image, n_steps=200)
    assert distances[1] < 0.1 * distances[0]
    assert distances[2] < 2 * distances[1] ** 2 / distances[0] ** 2 * distances[0]


def off_grid(problem: SmallProblem) -> tuple[LeastSquares, torch.Tensor]:
    generator = torch.Generator().manual_seed(6)
    points = torch.rand(1, 90, 2, dtype=torch.float64, generator=generator) - 0.5
    fourier = NonuniformFourier.plan(points, GRID)
    image = problem.image.to(torch.complex64)
    return LeastSquares.of(fourier, fourier.forward(problem.coils.to(torch.complex64) * image)), image


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("where", ["on the grid", "off the grid"])
def test_no_step_raises_the_objective_whose_value_it_returns(where, n_steps):
    problem, maps = problem_of(3)
    data, image = (problem.data, problem.image) if where == "on the grid" else off_grid(problem)
    state = CoilMaps.start(maps.to(image.dtype))
    before = start = objective(data, image, state.maps)
    for _ in range(10):
        state, value = newton_coil_step(data, SMOOTHNESS, state, image, n_steps=n_steps)
        torch.testing.assert_close(
            torch.linalg.vector_norm(state.maps, dim=1), torch.ones(2, *GRID), check_dtype=False
        )
        after = objective(data, image, state.maps)
        torch.testing.assert_close(value, after, rtol=1e-4, atol=1e-5)
        assert bool((after <= before * (1 + 1e-6)).all())
        before = after
    assert bool((before < 0.7 * start).all())


class TooFlat:
    """A data term that tells a hundredth of its curvature in the first slice, so that steps are too long."""

    def __init__(self, data: DataConsistency) -> None:
        self._data = data

    def __getattr__(self, name: str) -> object:
        return getattr(self._data, name)

    def parts(self, n_coils: int) -> list[tuple[slice, "TooFlat"]]:
        return [(coils, TooFlat(part)) for coils, part in self._data.parts(n_coils)]

    def normal_of(self, maps: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        return self._data.normal_of(maps, image) * torch.tensor([0.01, 1.0])[:, None, None, None]


def test_a_step_that_would_raise_the_objective_is_not_made_and_the_next_is_shorter():
    problem, maps = problem_of(3)
    data, image = TooFlat(problem.data), problem.image
    weak = CoilSmoothness(0.01)
    state = CoilMaps.start(maps)
    refused, lengths = 0, []
    for _ in range(12):
        last = state
        state, _ = newton_coil_step(data, weak, state, image, n_steps=8)
        lengths.append(float(last.length[0]))
        if float(state.length[0]) < float(last.length[0]):
            assert torch.equal(state.maps[0], last.maps[0])
            assert float(state.length[0]) == lengths[-1] / 4
            refused += 1
        else:
            assert float(state.length[0]) == min(1.0, 2 * lengths[-1])
        assert float(state.length[1]) == 1.0, "the other slice has a true model"
        assert not torch.equal(state.maps[1], last.maps[1])
    assert 2 <= refused < 12
    before, after = (
        problem.data.gradient_and_value(one * image)[1] + weak.value(one)
        for one in (unit_maps(maps), state.maps)
    )
    assert bool((after < 0.7 * before).all())


def test_every_slice_of_a_batch_equals_the_slice_alone():
    problem, maps = problem_of(3)
    both, values = newton_coil_step(problem.data, SMOOTHNESS, CoilMaps.start(maps), problem.image, n_steps=3)
    for row in range(2):
        rows = torch.arange(2) == row
        alone, value = newton_coil_step(
            problem.data.select(rows), SMOOTHNESS, CoilMaps.start(maps[rows]), problem.image[rows], n_steps=3
        )
        torch.testing.assert_close(both.maps[row], alone.maps[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(values[row], value[0])


def test_without_an_image_maps_get_smooth_and_stay_numbers():
    problem, maps = problem_of(2)
    dark = torch.zeros_like(problem.image)
    state = CoilMaps.start(maps)
    rough = SMOOTHNESS.value(state.maps)
    for _ in range(5):
        state, _ = newton_coil_step(problem.data, SMOOTHNESS, state, dark, n_steps=3)
    assert bool(torch.isfinite(torch.view_as_real(state.maps)).all())
    assert bool((SMOOTHNESS.value(state.maps) < rough).all())
