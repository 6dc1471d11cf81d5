"""The coil step against its formula, written out in one piece."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_problem import SmallProblem, small_problem
from written_out import coil_gradient

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.joint import data_consistency
from reconlib.joint.backtracking import backtrack
from reconlib.joint.coil_step import (
    CoilState,
    CoilStepSettings,
    at_least_unit,
    coil_step,
    mean_coil_magnitude,
)
from reconlib.joint.data_consistency import DataTerm, normalise_coils
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier

GRID = (9, 8)
SMOOTHNESS = CoilSmoothness(0.3)
SETTINGS = CoilStepSettings()


def data_gradient(
    data: DataTerm, image: torch.Tensor, maps: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient of H in the maps, and H."""
    directions, magnitude = normalise_coils(maps)
    pull, value = data.gradient_and_value(directions * image)
    return coil_gradient(image, directions, magnitude, pull), value


def stepped(point: torch.Tensor, gradient: torch.Tensor, lipschitz: torch.Tensor) -> torch.Tensor:
    """The proximal gradient step of the module's text, before it is lifted to unit magnitude."""
    per_slice = lipschitz[:, None, None, None]
    return SMOOTHNESS.prox(point - gradient / per_slice, 1 / lipschitz)


def lifted(maps: torch.Tensor) -> torch.Tensor:
    return maps / torch.linalg.vector_norm(maps, dim=1, keepdim=True).clamp(1e-12, 1.0)


def problem_of(n_coils: int) -> tuple[SmallProblem, torch.Tensor]:
    """Two slices, and maps that are far from the truth and of any magnitude."""
    problem = small_problem(grid=GRID, n_coils=n_coils, n_slices=2, noise=0.05, imaginary=0.2)
    generator = torch.Generator().manual_seed(5)
    off = torch.randn(problem.coils.shape, dtype=torch.complex128, generator=generator)
    return problem, 1.5 * problem.coils + 0.3 * off


@pytest.mark.parametrize("cached", [1, 2 * 2 * 72, 2**16], ids=["one by one", "in twos", "together"])
@pytest.mark.parametrize("n_coils", [1, 2, 5])
def test_a_step_on_the_grid_is_the_formula(n_coils, cached, monkeypatch):
    monkeypatch.setattr(data_consistency, "CACHED_PIXELS", cached)
    problem, maps = problem_of(n_coils)
    state = CoilState.start(maps, problem.data)
    found = coil_step(problem.data, SMOOTHNESS, state, problem.image, SETTINGS)
    gradient, _ = data_gradient(problem.data, problem.image, maps)
    expected = lifted(stepped(maps, gradient, torch.ones(2, dtype=torch.float64)))
    torch.testing.assert_close(state.maps, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        found, data_gradient(problem.data, problem.image, expected)[1], rtol=1e-6, atol=0
    )
    assert torch.equal(state.previous, maps)


def test_a_step_off_the_grid_is_the_formula():
    problem, maps = problem_of(3)
    generator = torch.Generator().manual_seed(6)
    points = torch.rand(1, 150, 2, dtype=torch.float64, generator=generator) - 0.5
    fourier = NonuniformFourier.plan(points, GRID)
    image, maps = problem.image.to(torch.complex64), maps.to(torch.complex64)
    samples = fourier.forward(problem.coils.to(torch.complex64) * image)
    data = LeastSquares.of(fourier, samples)
    state = CoilState.start(maps, data)
    found = coil_step(data, SMOOTHNESS, state, image, SETTINGS)
    gradient, _ = data_gradient(data, image, maps)
    first = torch.full((2,), data.largest_eigenvalue, dtype=torch.float64)
    expected = lifted(stepped(maps, gradient, first).to(torch.complex64))
    torch.testing.assert_close(state.maps, expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found, data_gradient(data, image, expected)[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("inertia", [True, False])
def test_later_steps_start_from_the_extrapolated_maps(inertia):
    problem, maps = problem_of(3)
    older = maps + 0.1 * problem_of(3)[1].roll(1, dims=-1)
    age = torch.tensor([2, 6])
    state = replace(CoilState.start(maps, problem.data), previous=older, age=age.clone())
    coil_step(problem.data, SMOOTHNESS, state, problem.image, CoilStepSettings(inertia=inertia))
    ratio = torch.tensor([2 / 5, 6 / 9], dtype=torch.float64)[:, None, None, None] if inertia else 0
    point = maps + ratio * (maps - older)
    gradient, _ = data_gradient(problem.data, problem.image, point)
    expected = lifted(stepped(point, gradient, torch.ones(2, dtype=torch.float64)))
    torch.testing.assert_close(state.maps, expected, rtol=1e-6, atol=1e-6)
    turned_back = ((point - expected).conj() * (expected - maps)).real.sum(dim=(1, 2, 3)) > 0
    assert state.age.tolist() == torch.where(turned_back, 0, age + 1).tolist()


def test_inertia_starts_anew_where_a_step_turns_back():
    """One slice went far past the truth, the other goes on towards it."""
    problem, maps = problem_of(3)
    truth = problem.coils
    beyond, before = truth + 3 * (truth - maps), maps + 0.1 * (maps - truth)
    older = torch.stack([maps[0], before[1]])
    now = torch.stack([beyond[0], maps[1]])
    state = replace(CoilState.start(now, problem.data), previous=older, age=torch.tensor([50, 5]))
    coil_step(problem.data, CoilSmoothness(1e-6), state, problem.image, SETTINGS)
    assert state.age.tolist() == [0, 6]


def test_a_slowed_step_is_that_much_shorter():
    problem, maps = problem_of(3)
    state = CoilState.start(maps, problem.data)
    coil_step(problem.data, SMOOTHNESS, state, problem.image, SETTINGS, 4.0)
    gradient, _ = data_gradient(problem.data, problem.image, maps)
    expected = lifted(stepped(maps, gradient, torch.full((2,), 4.0, dtype=torch.float64)))
    torch.testing.assert_close(state.maps, expected, rtol=1e-6, atol=1e-6)


def test_the_step_is_halved_until_the_value_is_bounded_as_written():
    """H(new) <= H(y) + <gradient, new - y> + 1.01 L/2 |new - y|^2, by the written-out H, slice by slice."""
    problem, maps = problem_of(3)
    maps = 1.2 * maps
    image = problem.image * torch.tensor([1.0, 3.0], dtype=torch.float64)[:, None, None, None]
    gradient, value = data_gradient(problem.data, image, maps)
    first = 2.0**-6

    def holds(lipschitz: torch.Tensor) -> torch.Tensor:
        new = stepped(maps, gradient, lipschitz)
        moved = new - maps
        linear = (gradient.conj() * moved).real.sum(dim=(1, 2, 3))
        bound = value + linear + 1.01 * lipschitz / 2 * moved.abs().square().sum(dim=(1, 2, 3))
        return data_gradient(problem.data, image, new)[1] <= bound

    tried = torch.full((2,), first, dtype=torch.float64)
    while not bool(holds(tried).all()):
        tried = torch.where(holds(tried), tried, 2 * tried)
    assert tried[1] > tried[0] > first, "both must be halved, and not alike"
    state = replace(CoilState.start(maps, problem.data), lipschitz=torch.full_like(tried, first))
    coil_step(problem.data, SMOOTHNESS, state, image, CoilStepSettings(smallest_lipschitz=first))
    torch.testing.assert_close(state.lipschitz, tried / 1.5)
    torch.testing.assert_close(state.maps, lifted(stepped(maps, gradient, tried)), rtol=1e-6, atol=1e-6)


def test_maps_and_images_of_zeros_stay_zeros():
    problem, maps = problem_of(3)
    nothing = problem.data.scaled(torch.zeros(2))
    for image in (problem.image, torch.zeros_like(problem.image)):
        state = CoilState.start(torch.zeros_like(maps), nothing)
        value = coil_step(nothing, SMOOTHNESS, state, image, SETTINGS)
        assert not bool(state.maps.any())
        assert value.tolist() == [0, 0]


def test_a_slice_that_is_not_finite_leaves_its_neighbour_alone():
    problem, maps = problem_of(3)
    alone, both = CoilState.start(maps, problem.data), CoilState.start(maps, problem.data)
    coil_step(problem.data, SMOOTHNESS, alone, problem.image, SETTINGS)
    broken = problem.image.clone()
    broken[1, 0, 3, 3] = torch.nan
    coil_step(problem.data, SMOOTHNESS, both, broken, SETTINGS)
    assert torch.equal(both.maps[0], alone.maps[0])
    assert both.lipschitz[0] == alone.lipschitz[0]


@pytest.mark.parametrize("most", [2, 10])
def test_backtracking_doubles_each_slice_as_often_as_it_needs_and_at_most_so_often(most):
    needs = torch.tensor([1.0, 3.0, 100.0], dtype=torch.float64)

    def attempt(lipschitz: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
        return [lipschitz[:, None, None, None] * 10], lipschitz * 100, lipschitz >= needs

    (new,), value, after = backtrack(
        attempt, torch.ones(3, dtype=torch.float64), smallest=0.9, relaxation=1.5, most_doublings=most
    )
    used = [1, 4, 4 if most == 2 else 128]
    assert new.flatten().tolist() == [10 * one for one in used]
    assert value.tolist() == [100 * one for one in used]
    # what was not accepted is not made smaller
    assert after.tolist() == pytest.approx([0.9, 4 / 1.5, 4 if most == 2 else 128 / 1.5])


def test_lifting_maps_keeps_their_direction():
    coils = torch.tensor([[0.3 + 0.4j, 3.0, 0.0], [0.0, 4.0j, 0.0]], dtype=torch.complex128)[None, :, None]
    expected = torch.tensor([[0.6 + 0.8j, 3.0, 0.0], [0.0, 4.0j, 0.0]], dtype=torch.complex128)
    torch.testing.assert_close(at_least_unit(coils), expected[None, :, None])


def test_the_mean_magnitude_of_maps_is_weighted_by_the_image():
    coils = torch.tensor([[3.0, 1.0], [4.0j, 0.0]], dtype=torch.complex64).reshape(1, 2, 1, 2)
    image = torch.tensor([1.0, -3.0j], dtype=torch.complex64).reshape(1, 1, 1, 2)
    assert mean_coil_magnitude(coils, image).tolist() == [np.float64((1 * 5 + 3 * 1) / 4)]
