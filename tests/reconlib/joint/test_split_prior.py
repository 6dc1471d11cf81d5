"""How the split solver asks its prior: how often, with which L, and what it makes of its noise."""

import numpy as np
import pytest
import torch
from small_problem import SmallProblem, small_problem
from written_out import EPSILON, IMAGINARY_WEIGHT, WEIGHT, LogCosh, scipy_minimum

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.protocol import Energy
from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.image_model import ImageModel
from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointResult
from reconlib.joint.split_image_step import FixedMaps, QuickTerms, split_step
from reconlib.joint.split_solver import SplitSettings, split_solve

LAST = 1e-9
"""Share of the iterations for which the image is the last iterate."""


class Parabola:
    """c |x|^2 / 2, steeper from some iteration on, with a temperature that promises a curvature."""

    temperature = 1.0

    def __init__(self, curvature: float, later: float | None = None, switch: int = 0) -> None:
        self._curvature, self._later, self._switch = curvature, later, switch
        self.n_gradients = 0

    def value(self, image: torch.Tensor, /) -> torch.Tensor:
        is_late = self._later is not None and self.n_gradients > self._switch
        curvature = self._later if is_late and self._later is not None else self._curvature
        return curvature * image.square().sum(dim=(1, 2, 3), dtype=torch.float64) / 2

    def value_and_gradient(self, image: torch.Tensor, /) -> tuple[torch.Tensor, torch.Tensor]:
        self.n_gradients += 1
        is_late = self._later is not None and self.n_gradients > self._switch
        curvature = self._later if is_late and self._later is not None else self._curvature
        return self.value(image), curvature * image


@pytest.fixture(scope="module")
def problem() -> SmallProblem:
    return small_problem(noise=0.05, imaginary=0.2, keep=0.4)


def run(
    problem: SmallProblem,
    energy: Energy,
    *,
    coils: torch.Tensor | None = None,
    out_of_time=lambda: False,
    **settings,
) -> JointResult:
    image, maps = problem.start()
    weight = torch.full((1,), WEIGHT, dtype=torch.float64)
    imaginary = torch.full_like(weight, IMAGINARY_WEIGHT)
    return split_solve(
        problem.data,
        ImageModel("soft", energy, weight, imaginary, TotalVariation(epsilon=EPSILON)),
        CoilSmoothness(0.1),
        initial_image=image,
        initial_coils=maps if coils is None else coils,
        settings=SplitSettings(estimate_coils=coils is None, **settings),
        generator=torch.Generator().manual_seed(1),
        out_of_time=out_of_time,
    )


def test_each_iteration_takes_one_gradient_of_the_prior_and_few_values(problem):
    energy = LogCosh()
    run(problem, energy, iterations=20)
    assert energy.n_gradients == 20
    # iterations 0, 1, 2, 8 and 16
    assert energy.n_values == 5


@pytest.mark.parametrize(
    ("noise", "first"), [(0.0, 1.0), (0.1, 0.5 * WEIGHT / 0.01), (2.0, 0.5 * WEIGHT / 4)]
)
def test_lipschitz_starts_at_half_the_bound_of_a_score_and_stays_where_it_holds(problem, noise, first):
    result = run(problem, Parabola(1e-3), iterations=10, gradient_noise_std=noise)
    assert result.trace.image_lipschitz[:, 0].tolist() == pytest.approx([first] * 10)


@pytest.mark.parametrize("curvature", [0.3, 5.0, 40.0])
def test_lipschitz_doubles_until_it_bounds_an_energy_that_is_more_curved(problem, curvature):
    first = 0.5 * WEIGHT / 4
    energy = Parabola(curvature)
    result = run(problem, energy, coils=problem.coils, iterations=12, gradient_noise_std=2.0)
    needed = WEIGHT * curvature / 1.01
    doubled = first * 2.0 ** np.ceil(np.log2(needed / first))
    # the first step, from the start, may be too short to tell
    assert result.trace.image_lipschitz[2:, 0].tolist() == pytest.approx([doubled] * 10)


def test_an_energy_that_gets_more_curved_later_is_noticed_in_the_next_test(problem):
    energy = Parabola(0.1, later=60.0, switch=10)
    result = run(problem, energy, coils=problem.coils, iterations=18, gradient_noise_std=1.0)
    lipschitz = result.trace.image_lipschitz[:, 0]
    assert lipschitz[:16].tolist() == pytest.approx([0.5 * WEIGHT] * 16)
    assert lipschitz[16:].tolist() == pytest.approx([2.0] * 2)
    assert WEIGHT * 60 <= 2.0


class Promising(LogCosh):
    """LogCosh, whose curvature reaches 32, with a temperature that promises 1 at a noise of 0.0001."""

    temperature = 1e-8


def test_with_a_doubled_lipschitz_the_result_is_still_the_minimum(problem):
    _, image = scipy_minimum(problem, "soft", "logcosh")
    result = run(
        problem, Promising(), coils=problem.coils, iterations=50, gradient_noise_std=1e-4, averaged=LAST
    )
    lipschitz = result.trace.image_lipschitz[-1, 0]
    assert 4 * WEIGHT < float(lipschitz) <= 32 * WEIGHT
    np.testing.assert_allclose(result.image[0, 0].numpy(), image, atol=5e-3)


def test_a_step_that_was_too_long_is_done_again_with_the_doubled_lipschitz(problem):
    result = run(problem, Promising(), coils=problem.coils, iterations=1, gradient_noise_std=1e-4)
    lipschitz = result.trace.image_lipschitz[-1]
    assert float(lipschitz) > 0.5 * WEIGHT, "the first step must be rejected"
    image, _ = problem.start()
    _, slope = LogCosh().value_and_gradient(image.real)
    imaginary = TotalVariation(epsilon=EPSILON), torch.full((1,), IMAGINARY_WEIGHT)
    expected = split_step(
        FixedMaps.of(problem.data, problem.coils, -problem.data.gradient(torch.zeros_like(problem.coils))),
        QuickTerms(None, imaginary),
        image,
        torch.complex(WEIGHT * slope, torch.zeros_like(slope)),
        lipschitz,
        phase="soft",
        n_steps=5,
    )
    torch.testing.assert_close(result.image, expected, rtol=0, atol=1e-3)


class Recording(LogCosh):
    """Keeps the gradients that it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.gradients: list[torch.Tensor] = []

    def value_and_gradient(self, image: torch.Tensor, /) -> tuple[torch.Tensor, torch.Tensor]:
        value, gradient = super().value_and_gradient(image)
        self.gradients.append(gradient)
        return value, gradient


def test_a_step_goes_by_the_mean_of_its_gradient_and_the_one_before(problem):
    """The second step from fixed maps; its extrapolated point is a quarter of the first step ahead."""
    energy = Recording()
    settings = {"coils": problem.coils, "averaged": LAST, "gradient_noise_std": 0.5}
    result = run(problem, energy, iterations=2, **settings)
    first, second = energy.gradients
    start, _ = problem.start()
    moved = run(problem, LogCosh(), iterations=1, **settings).image
    pull = WEIGHT * (0.6 * second + 0.4 * first)
    expected = split_step(
        FixedMaps.of(problem.data, problem.coils, -problem.data.gradient(torch.zeros_like(problem.coils))),
        QuickTerms(None, (TotalVariation(epsilon=EPSILON), torch.full((1,), IMAGINARY_WEIGHT))),
        torch.lerp(start, moved, 1.25),
        torch.complex(pull, torch.zeros_like(pull)),
        result.trace.image_lipschitz[-1],
        phase="soft",
        n_steps=5,
    )
    torch.testing.assert_close(result.image, expected, rtol=0, atol=1e-6)


NOISY = {"gradient_noise_std": 0.3}


@pytest.fixture(scope="module")
def iterates(problem) -> list[torch.Tensor]:
    """The images after 1 to 10 iterations of a noisy prior."""
    return [run(problem, LogCosh(), iterations=n, averaged=LAST, **NOISY).image for n in range(1, 11)]


@pytest.mark.parametrize(("averaged", "n_last"), [(0.4, 4), (1.0, 10), (0.05, 1)])
def test_the_image_is_the_mean_of_the_last_iterates(problem, iterates, averaged, n_last):
    result = run(problem, LogCosh(), iterations=10, averaged=averaged, **NOISY)
    torch.testing.assert_close(result.image, torch.stack(iterates[-n_last:]).mean(dim=0))


@pytest.mark.parametrize(("n", "n_averaged"), [(3, 0), (8, 2)])
def test_out_of_time_returns_the_iterate_or_the_mean_so_far(problem, iterates, n, n_averaged):
    """Of 10 iterations the last 4 are averaged."""
    asked = iter([False] * n + [True])
    result = run(problem, LogCosh(), iterations=10, averaged=0.4, out_of_time=lambda: next(asked), **NOISY)
    expected = torch.stack(iterates[n - max(1, n_averaged) : n]).mean(dim=0)
    assert result.outcomes == (Outcome.OUT_OF_TIME,)
    assert result.n_iterations == (n,)
    torch.testing.assert_close(result.image, expected)


def test_the_mean_has_less_noise_than_the_last_iterate(problem):
    """The noise of a parabola's gradient does not move the minimum, which is found without it."""
    common = {"coils": problem.coils, "iterations": 40}
    least = run(problem, Parabola(16.0), averaged=LAST, **common).image

    def error(averaged: float) -> float:
        found = run(problem, Parabola(16.0), averaged=averaged, gradient_noise_std=0.2, **common).image
        return float(torch.linalg.vector_norm(found - least))

    assert error(0.4) < 0.7 * error(LAST)


def test_noise_and_views_come_from_the_generator(problem):
    seeing = {"iterations": 4, "gradient_noise_std": 0.3, "symmetric_views": True}
    first, second = (run(problem, LogCosh(), **seeing).image for _ in range(2))
    assert torch.equal(first, second)
    other = run(problem, LogCosh(), **{**seeing, "gradient_noise_std": 0.0}).image
    assert not torch.allclose(first, other, atol=1e-3)
