"""Joint iPALM against an independent optimiser, and the properties that its text claims."""

import numpy as np
import pytest
import torch
from small_problem import SmallProblem, small_problem
from written_out import EPSILON, IMAGINARY_WEIGHT, WEIGHT, coil_gradient, scipy_minimum

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.coil_step import at_least_unit
from reconlib.joint.data_consistency import DataConsistency, normalise_coils
from reconlib.joint.image_model import ImageModel
from reconlib.joint.ipalm import IpalmSettings, ipalm
from reconlib.joint.result import JointResult


def model_of(
    phase, n_slices: int = 1, weight: float = WEIGHT, imaginary: float = IMAGINARY_WEIGHT
) -> ImageModel:
    """Total variation on the real part; weights that are exact in float32."""
    tv = TotalVariation(epsilon=EPSILON)
    weights = torch.full((n_slices,), weight, dtype=torch.float64)
    return ImageModel(phase, tv, weights, torch.full_like(weights, imaginary), tv)


def run(problem: SmallProblem, model: ImageModel, *, data=None, coils=None, smoothness=0.1, **settings):
    """Run from the paper's start, coil steps never falling; ``coils`` replaces the start's maps."""
    settings = {"coil_iterations": 1_000_000, **settings}
    data = data or problem.data
    image, maps = problem.start()
    return ipalm(
        data,
        model,
        CoilSmoothness(smoothness),
        initial_image=image.to(data.samples.dtype),
        initial_coils=(maps if coils is None else coils).to(data.samples.dtype),
        settings=IpalmSettings(**settings),
        generator=torch.Generator().manual_seed(1),
    )


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("phase", ["real", "soft"])
def test_with_fixed_maps_the_result_is_scipys_optimum(phase, precision):
    problem = small_problem(keep=0.35, noise=0.3, imaginary=0.3, dark=phase == "real")
    value, image = scipy_minimum(problem, phase)
    if phase == "real":
        assert (image == 0).sum() >= 2, "the bound must matter"
    result = run(
        problem,
        model_of(phase),
        data=problem.data if precision == "float64" else problem.single(),
        coils=problem.coils,
        iterations=400,
        estimate_coils=False,
        largest_image_inertia=1.0,
    )
    exact = precision == "float64"
    smoothness = float(CoilSmoothness(0.1).value(problem.coils))
    assert float(result.trace.energy[-1, 0]) - smoothness == pytest.approx(value, rel=1e-6 if exact else 1e-5)
    np.testing.assert_allclose(result.image[0, 0].numpy(), image, atol=5e-4 if exact else 5e-3)
    torch.testing.assert_close(result.coils, problem.coils.to(result.coils.dtype))


@pytest.mark.parametrize("estimate_coils", [False, True], ids=["maps fixed", "joint"])
@pytest.mark.parametrize("phase", ["real", "soft"])
def test_the_energy_falls_without_inertia(phase, estimate_coils):
    problem = small_problem(n_slices=2, noise=0.05, imaginary=0.2)
    result = run(
        problem,
        model_of(phase, 2),
        smoothness=0.02 if estimate_coils else 0.0,
        iterations=80,
        estimate_coils=estimate_coils,
        inertia=False,
    )
    energy = result.trace.energy
    assert bool((energy[-1] < 0.95 * energy[0]).all())
    # the last step may accept 1.01 times the model's decrease
    assert bool((torch.diff(energy, dim=0) <= 1e-6 * energy[:-1]).all())


def test_a_fully_sampled_scan_without_noise_gives_back_maps_times_image():
    problem = small_problem(keep=2.0, imaginary=0.2)
    result = run(problem, model_of("soft", weight=1e-9, imaginary=1e-9), smoothness=1e-6, iterations=200)
    directions, _ = normalise_coils(result.coils)
    truth = problem.coils * problem.image
    error = torch.linalg.vector_norm(directions * result.image - truth) / torch.linalg.vector_norm(truth)
    assert error < 1e-4


def test_an_undersampled_scan_without_noise_gives_back_the_magnitude():
    problem = small_problem(grid=(24, 20), n_coils=6, keep=0.5)
    start, _ = problem.start()
    result = run(problem, model_of("soft", weight=2**-12, imaginary=2**-12), smoothness=0.01, iterations=150)
    truth = problem.image.abs()

    def error(image):
        return float(torch.linalg.vector_norm(image.abs() - truth) / torch.linalg.vector_norm(truth))

    assert error(result.image) < 0.6 * error(start)


def coil_residuals(problem: SmallProblem, image, coils, smoothness: CoilSmoothness, lipschitz: float):
    """How far maps are from a fixed point of the coil step, and from stationarity of the constrained energy.

    The second is the gradient of H + mu F without the part that the bound |S| >= 1 holds back.
    """
    directions, magnitude = normalise_coils(coils)
    pull = problem.data.gradient(directions * image)
    gradient = coil_gradient(image, directions, magnitude, pull)
    step = torch.full((1,), 1 / lipschitz, dtype=torch.float64)
    moved = at_least_unit(smoothness.prox(coils - gradient / lipschitz, step))
    of_step = lipschitz * float(torch.linalg.vector_norm(moved - coils))
    point = coils.clone().requires_grad_(True)
    (of_smoothness,) = torch.autograd.grad(smoothness.value(point).sum(), point)
    total = gradient + of_smoothness
    outward = (directions.conj() * total).real.sum(dim=1, keepdim=True)
    held = (magnitude < 1 + 1e-6) & (outward > 0)
    return of_step, float(torch.linalg.vector_norm(total - torch.where(held, outward, 0.0) * directions))


class _Pin:
    """An energy so steep that the image stays where it is."""

    temperature = 1.0

    def __init__(self, image: torch.Tensor) -> None:
        self._image = image.real

    def value(self, image: torch.Tensor, /) -> torch.Tensor:
        return (image - self._image).square().sum(dim=(1, 2, 3)) / 2

    def value_and_gradient(self, image: torch.Tensor, /) -> tuple[torch.Tensor, torch.Tensor]:
        return self.value(image), image - self._image


def run_coils_alone(problem: SmallProblem, smoothness: float, **settings) -> JointResult:
    """The joint solver with the image pinned to the truth."""
    weight = torch.full((1,), 2.0**30, dtype=torch.float64)
    result = ipalm(
        problem.data,
        ImageModel("real", _Pin(problem.image), weight, weight),
        CoilSmoothness(smoothness),
        initial_image=problem.image,
        initial_coils=problem.start()[1],
        settings=IpalmSettings(iterations=250, max_backtracks=40, coil_iterations=1_000_000, **settings),
        generator=torch.Generator().manual_seed(1),
    )
    torch.testing.assert_close(result.image, problem.image, atol=1e-6, rtol=0)
    assert float(result.trace.coil_lipschitz.max()) < 4
    return result


@pytest.mark.parametrize("smoothness", [0.02, 0.3])
@pytest.mark.parametrize(
    ("inertia", "lipschitz"),
    [
        (False, 0.5),
        (True, 1.0),
    ],
    ids=["no inertia", "inertia"],
)
def test_the_coil_block_alone_comes_to_rest(smoothness, inertia, lipschitz):
    problem = small_problem(noise=0.02)
    of_step, gradient = coil_residuals(
        problem, problem.image, problem.start()[1], CoilSmoothness(smoothness), lipschitz
    )
    assert of_step > 0.1
    result = run_coils_alone(problem, smoothness, inertia=inertia, smallest_coil_lipschitz=lipschitz)
    assert float(result.trace.coil_lipschitz[-1, 0]) == lipschitz
    end, end_gradient = coil_residuals(
        problem, result.image, result.coils, CoilSmoothness(smoothness), lipschitz
    )
    assert end < 1e-4 * of_step
    # the prox is followed by the nearest admissible point: together they are the prox of the sum only
    # where mu / L is small, so that what is left grows with mu
    assert end_gradient < (0.01 if smoothness == 0.02 else 0.1) * gradient


def test_the_maps_have_at_least_unit_magnitude_after_every_step():
    problem = small_problem(n_slices=2, noise=0.1)
    for iterations in (1, 2, 3, 10, 40):
        result = run(
            problem, model_of("soft", 2), data=problem.single(), smoothness=2.0, iterations=iterations
        )
        magnitude = torch.linalg.vector_norm(result.coils, dim=1)
        assert float(magnitude.min()) > 1 - 1e-5


def test_lifting_maps_keeps_their_direction():
    coils = torch.tensor([[0.3 + 0.4j, 3.0, 0.0], [0.0, 4.0j, 0.0]], dtype=torch.complex128)[None, :, None]
    lifted = at_least_unit(coils)
    expected = torch.tensor([[0.6 + 0.8j, 3.0, 0.0], [0.0, 4.0j, 0.0]], dtype=torch.complex128)
    torch.testing.assert_close(lifted, expected[None, :, None])


def rows_of(problem: SmallProblem, row: int) -> SmallProblem:
    rows = torch.zeros(len(problem.image), dtype=torch.bool)
    rows[row] = True
    data = DataConsistency(problem.data.fourier.select(rows), problem.data.samples[rows])
    return SmallProblem(problem.kspace, problem.image[rows], problem.coils[rows], data)


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 30},
        {"iterations": 30, "gradient_noise_std": 0.05},
        {"iterations": 300, "tolerance": 5e-3},
        {"iterations": 300, "tolerance": 5e-3, "gradient_noise_std": 0.001},
    ],
    ids=["plain", "noisy gradient", "early stop", "early stop and noisy gradient"],
)
def test_every_slice_of_a_batch_equals_the_slice_alone(settings):
    problem = small_problem(n_slices=3, noise=0.05)
    weights = torch.tensor([1 / 512, 1 / 64, 1 / 8], dtype=torch.float64)
    tv = TotalVariation(epsilon=EPSILON)
    batch = run(problem, ImageModel("soft", tv, weights, weights, tv), **settings)
    if "tolerance" in settings:
        assert len(set(batch.n_iterations)) == 3, "the slices must stop at different iterations"
    for row in range(3):
        model = ImageModel("soft", tv, weights[row : row + 1], weights[row : row + 1], tv)
        alone: JointResult = run(rows_of(problem, row), model, **settings)
        assert alone.n_iterations[0] == batch.n_iterations[row]
        assert alone.outcomes[0] == batch.outcomes[row]
        torch.testing.assert_close(batch.image[row], alone.image[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(batch.coils[row], alone.coils[0], rtol=1e-9, atol=1e-9)
        n = alone.n_iterations[0]
        torch.testing.assert_close(batch.trace.energy[:n, row], alone.trace.energy[:n, 0])
        assert bool(batch.trace.energy[n:, row].isnan().all())


def test_gradient_noise_comes_from_the_generator():
    problem = small_problem(noise=0.05)
    first, second, none = (
        run(problem, model_of("soft"), iterations=10, gradient_noise_std=std).image
        for std in (0.05, 0.05, 0.0)
    )
    assert torch.equal(first, second)
    assert not torch.allclose(first, none, atol=1e-4)


def test_the_coil_step_halves_every_10_iterations_from_where_it_is_told():
    """Without inertia, from one point: the first step of maps whose step has fallen 0, 1 and 2 times."""
    problem = small_problem()
    model = model_of("real")

    def first_change(coil_iterations: int) -> torch.Tensor:
        moved = run(
            problem, model, iterations=1, inertia=False, smoothness=1e-6, coil_iterations=coil_iterations
        )
        return moved.coils - problem.start()[1]

    full, half, quarter = (first_change(n) for n in (0, -10, -20))
    torch.testing.assert_close(half, full / 2, rtol=0, atol=0.02 * float(full.abs().max()))
    torch.testing.assert_close(quarter, full / 4, rtol=0, atol=0.02 * float(full.abs().max()))
    assert float(full.abs().max()) > 1e-3
