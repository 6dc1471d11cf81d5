"""The split solver against scipy and Algorithm 1, and the properties that its text claims."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_problem import SmallProblem, small_problem
from written_out import EPSILON, IMAGINARY_WEIGHT, WEIGHT, LogCosh, scipy_minimum

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.protocol import Energy
from reconlib.energies.quadratic_variation import QuadraticVariation
from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.data_consistency import normalise_coils
from reconlib.joint.image_model import ImageModel
from reconlib.joint.ipalm import IpalmSettings, ipalm
from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointResult
from reconlib.joint.split_solver import SplitSettings, split_solve

TV = TotalVariation(epsilon=EPSILON)
LAST = {"averaged": 1e-9}
"""The image is the last iterate."""
SMOOTHNESS = CoilSmoothness(0.1)


def model_of(phase: str = "soft", energy: Energy = TV, n_slices: int = 1, **changes) -> ImageModel:
    weights = torch.full((n_slices,), WEIGHT, dtype=torch.float64)
    model = ImageModel(phase, energy, weights, torch.full_like(weights, IMAGINARY_WEIGHT), TV)
    return replace(model, **changes)


def run(problem: SmallProblem, model: ImageModel, *, coils=None, image=None, **settings) -> JointResult:
    """Run from the paper's start, or from other maps and another image."""
    first_image, first_coils = problem.start()
    return split_solve(
        problem.data,
        model,
        SMOOTHNESS,
        initial_image=first_image if image is None else image,
        initial_coils=first_coils if coils is None else coils,
        settings=SplitSettings(**settings),
        generator=torch.Generator().manual_seed(1),
    )


@pytest.mark.parametrize("energy", ["tv", "logcosh"])
@pytest.mark.parametrize("phase", ["soft", "free", "real"])
def test_with_fixed_maps_the_result_is_scipys_minimum(phase, energy):
    problem = small_problem(keep=0.35, noise=0.3, imaginary=0.3)
    value, image = scipy_minimum(problem, phase, energy)
    model = model_of(phase, TV if energy == "tv" else LogCosh())
    result = run(problem, model, coils=problem.coils, iterations=50, estimate_coils=False, **LAST)
    smoothness = float(SMOOTHNESS.value(problem.coils))
    assert float(result.trace.energy[-1, 0]) - smoothness == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(result.image[0, 0].numpy(), image, atol=1e-4)
    assert torch.equal(result.coils, problem.coils)


def test_a_prior_of_magnitudes_ends_where_algorithm_1_does():
    """Its energy is not convex in the image: both start from the same one."""
    problem = small_problem(keep=0.35, noise=0.1, imaginary=0.3)
    model = model_of("soft", LogCosh(), signed=False)
    result = run(problem, model, coils=problem.coils, iterations=40, estimate_coils=False, **LAST)
    reference = algorithm_1(problem, model, coils=problem.coils, iterations=150, estimate_coils=False)
    torch.testing.assert_close(result.image, reference.image, rtol=0, atol=2e-3)


def algorithm_1(problem: SmallProblem, model: ImageModel, *, coils=None, **settings) -> JointResult:
    image, maps = problem.start()
    return ipalm(
        problem.data,
        model,
        SMOOTHNESS,
        initial_image=image,
        initial_coils=maps if coils is None else coils,
        settings=IpalmSettings(coil_iterations=1_000_000, **settings),
        generator=torch.Generator().manual_seed(1),
    )


def joint_energy(problem: SmallProblem, model: ImageModel, image: torch.Tensor, coils: torch.Tensor) -> float:
    """H + lambda R + mu F of image and maps, by the written-out pieces."""
    data = problem.data.gradient_and_value(normalise_coils(coils)[0] * image)[1]
    prior = model.weight * model.energy.value(image.real) + model.imaginary_weight * TV.value(image.imag)
    return float(data + prior + SMOOTHNESS.value(coils))


@pytest.mark.parametrize("energy", [TV, LogCosh()], ids=["tv", "logcosh"])
def test_image_and_maps_reach_the_minimum_that_algorithm_1_reaches(energy):
    problem, model = small_problem(noise=0.05, imaginary=0.2, keep=0.7), model_of("soft", energy)
    result = run(problem, model, iterations=60, coil_iterations=60, **LAST)
    reference = algorithm_1(problem, model, iterations=240)
    start, end, least = (
        joint_energy(problem, model, *one)
        for one in (problem.start(), (result.image, result.coils), (reference.image, reference.coils))
    )
    assert abs(end - least) < 0.01 * (start - least)
    # the phase, which maps and image may share in more than one way, comes to rest last
    torch.testing.assert_close(result.image.abs(), reference.image.abs(), rtol=0, atol=0.02)


def test_maps_rest_after_their_iterations_and_the_image_goes_on():
    problem, model = small_problem(noise=0.05, imaginary=0.2, keep=0.4), model_of("soft", LogCosh())
    four, five, nine = (run(problem, model, iterations=n, coil_iterations=5, **LAST) for n in (4, 5, 9))
    assert not torch.equal(four.coils, five.coils)
    assert torch.equal(five.coils, nine.coils)
    assert not torch.allclose(five.image, nine.image, atol=1e-3)
    # the trace goes on with the energy of the maps as they are
    found = joint_energy(problem, model, nine.image, nine.coils)
    assert float(nine.trace.energy[-1, 0]) == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize("inner_steps", [1, 8])
@pytest.mark.parametrize("phase", ["soft", "free"])
def test_with_total_variation_no_image_step_raises_the_energy(phase, inner_steps):
    problem = small_problem(n_slices=2, noise=0.05, imaginary=0.2)
    result = run(
        problem,
        model_of(phase, n_slices=2),
        coils=problem.coils,
        iterations=20,
        inner_steps=inner_steps,
        largest_inertia=0.0,
        estimate_coils=False,
    )
    energy = result.trace.energy
    assert bool((torch.diff(energy, dim=0) <= 1e-9 * energy[:-1]).all())
    assert bool((energy[-1] < energy[0]).all())


def test_a_fully_sampled_scan_without_noise_gives_back_maps_times_image():
    problem = small_problem(keep=2.0, imaginary=0.2)
    nearly_off = torch.full((1,), 1e-9, dtype=torch.float64)
    model = model_of("soft", weight=nearly_off, imaginary_weight=nearly_off)
    image, coils = problem.start()
    result = split_solve(
        problem.data,
        model,
        CoilSmoothness(1e-6),
        initial_image=image,
        initial_coils=coils,
        settings=SplitSettings(),
        generator=torch.Generator(),
    )
    truth = problem.coils * problem.image
    error = torch.linalg.vector_norm(normalise_coils(result.coils)[0] * result.image - truth)
    assert float(error) < 1e-4 * float(torch.linalg.vector_norm(truth))


def rows_of(problem: SmallProblem, row: int) -> SmallProblem:
    rows = torch.arange(len(problem.image)) == row
    return replace(
        problem, image=problem.image[rows], coils=problem.coils[rows], data=problem.data.select(rows)
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 12},
        {"iterations": 12, "gradient_noise_std": 0.3},
        {"iterations": 12, "gradient_noise_std": 2.0},
        {"iterations": 60, "tolerance": 5e-3},
    ],
    ids=["plain", "noisy gradient", "L doubled", "early stop"],
)
@pytest.mark.parametrize("energy", [TV, LogCosh()], ids=["tv", "logcosh"])
def test_every_slice_of_a_batch_equals_the_slice_alone(energy, settings):
    problem = small_problem(n_slices=3, noise=0.05)
    weights = torch.tensor([1 / 512, 1 / 64, 1 / 8], dtype=torch.float64)
    batch = run(problem, ImageModel("soft", energy, weights, weights, TV), **settings)
    if "tolerance" in settings:
        assert len(set(batch.n_iterations)) > 1, "the slices must stop at different iterations"
    for row in range(3):
        one = weights[row : row + 1]
        alone = run(rows_of(problem, row), ImageModel("soft", energy, one, one, TV), **settings)
        assert alone.n_iterations[0] == batch.n_iterations[row]
        assert alone.outcomes[0] == batch.outcomes[row]
        torch.testing.assert_close(batch.image[row], alone.image[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(batch.coils[row], alone.coils[0], rtol=1e-9, atol=1e-9)
        n = alone.n_iterations[0]
        torch.testing.assert_close(batch.trace.energy[:n, row], alone.trace.energy[:n, 0])
        torch.testing.assert_close(batch.trace.image_lipschitz[:n, row], alone.trace.image_lipschitz[:n, 0])
        assert bool(batch.trace.energy[n:, row].isnan().all())


@pytest.mark.parametrize("n_coils", [1, 2])
@pytest.mark.parametrize("iterations", [1, 2])
def test_one_iteration_and_one_coil_are_enough_to_come_closer(n_coils, iterations):
    problem = small_problem(n_coils=n_coils, noise=0.02)
    result = run(problem, model_of(), iterations=iterations)
    image, coils = problem.start()
    assert result.outcomes == (Outcome.OUT_OF_ITERATIONS,)
    assert result.n_iterations == (iterations,)
    assert result.trace.energy.shape == (iterations, 1)
    assert joint_energy(problem, model_of(), result.image, result.coils) < joint_energy(
        problem, model_of(), image, coils
    )


def test_a_slice_of_zeros_stays_one_and_leaves_its_neighbour_alone():
    problem = small_problem(n_slices=2, noise=0.05)
    factor = torch.tensor([1.0, 0.0])
    image, coils = (one * factor.double()[:, None, None, None] for one in problem.start())
    dark = replace(problem, data=problem.data.scaled(factor))
    result = run(dark, model_of("soft", LogCosh(), n_slices=2), image=image, coils=coils, iterations=6)
    alone = run(rows_of(problem, 0), model_of("soft", LogCosh()), iterations=6)
    assert not bool(result.image[1].any())
    torch.testing.assert_close(result.image[0], alone.image[0], rtol=1e-9, atol=1e-9)


def test_a_batch_without_slices_is_no_error():
    problem = small_problem(n_slices=2)
    none = torch.zeros(2, dtype=torch.bool)
    empty = replace(problem, data=problem.data.select(none))
    image, coils = problem.image[none], problem.coils[none]
    result = split_solve(
        empty.data,
        model_of(n_slices=0),
        SMOOTHNESS,
        initial_image=image,
        initial_coils=coils,
        settings=SplitSettings(),
        generator=torch.Generator(),
    )
    assert (result.image.shape[0], result.outcomes, len(result.trace.energy)) == (0, (), 0)


def test_an_energy_of_the_imaginary_part_that_it_does_not_minimise_is_refused():
    quadratic = QuadraticVariation(torch.ones(1, 1, 12, 10))
    with pytest.raises(ValueError, match="imaginary part is QuadraticVariation"):
        run(small_problem(), replace(model_of(), imaginary=quadratic))
