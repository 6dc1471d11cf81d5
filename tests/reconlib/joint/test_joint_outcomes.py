"""Each way in which a slice can end, reached on purpose, by both solvers."""

import pytest
import torch
from small_problem import small_problem

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.image_model import ImageModel
from reconlib.joint.ipalm import IpalmSettings, ipalm
from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointProgress
from reconlib.joint.split_solver import SplitSettings, split_solve


class _Breaks(TotalVariation):
    """Total variation that is NaN in the slices whose image is bright."""

    def value(self, image: torch.Tensor, /) -> torch.Tensor:
        value = TotalVariation.value(self, image)
        return torch.where(image.mean(dim=(1, 2, 3)) > 3, torch.nan, value)

    def value_and_gradient(self, image: torch.Tensor, /) -> tuple[torch.Tensor, torch.Tensor]:
        _, gradient = TotalVariation.value_and_gradient(self, image)
        return self.value(image), gradient


@pytest.fixture(params=["split", "ipalm"])
def solver(request):
    return {"split": (split_solve, SplitSettings), "ipalm": (ipalm, IpalmSettings)}[request.param]


@pytest.fixture
def run(solver):
    """Run a batch of two slices and collect the progress reports."""

    def run(energy=TotalVariation(epsilon=0.05), out_of_time=lambda: False, brightness=1.0, **settings):
        problem = small_problem(n_slices=2, noise=0.02)
        image, coils = problem.start()
        weight = torch.full((2,), 1 / 32, dtype=torch.float64)
        scale = torch.tensor([1.0, brightness], dtype=torch.float64)[:, None, None, None]
        data = type(problem.data)(problem.data.fourier, problem.data.samples * scale)
        seen: list[JointProgress] = []
        solve, settings_of = solver
        result = solve(
            data,
            ImageModel("soft", energy, weight, weight),
            CoilSmoothness(0.1),
            initial_image=image * scale,
            initial_coils=coils,
            settings=settings_of(**settings),
            generator=torch.Generator().manual_seed(1),
            out_of_time=out_of_time,
            on_iteration=seen.append,
        )
        return result, seen

    return run


def test_a_loose_tolerance_converges(run):
    result, seen = run(iterations=200, tolerance=0.02)
    assert result.outcomes == (Outcome.CONVERGED, Outcome.CONVERGED)
    assert max(result.n_iterations) < 200
    assert seen[-1].n_active == 0
    assert len(result.trace.energy) == len(seen) == max(result.n_iterations)
    for row, n in enumerate(result.n_iterations):
        calm = (result.trace.relative_change[:n, row] < 0.02).tolist()
        assert next(k for k in range(3, n + 1) if all(calm[k - 3 : k])) == n


def test_without_tolerance_all_iterations_run(run):
    result, seen = run(iterations=7)
    assert result.outcomes == (Outcome.OUT_OF_ITERATIONS,) * 2
    assert result.n_iterations == (7, 7)
    assert [(one.iteration, one.iterations, one.n_active) for one in seen] == [(k, 7, 2) for k in range(1, 8)]


def test_the_time_limit_ends_after_a_whole_iteration(run, solver):
    """Of 50 iterations the first three are no part of a mean yet, so nor are they to be of 3."""
    asked = iter([False, False, False, True])
    result, seen = run(iterations=50, out_of_time=lambda: next(asked))
    assert result.outcomes == (Outcome.OUT_OF_TIME,) * 2
    assert result.n_iterations == (3, 3)
    assert len(seen) == 3
    same, _ = run(iterations=3, **({"averaged": 1e-9} if solver[0] is split_solve else {}))
    assert torch.equal(result.image, same.image)


def test_no_time_at_all_returns_the_start(run):
    result, _ = run(iterations=50, out_of_time=lambda: True)
    assert result.outcomes == (Outcome.OUT_OF_TIME,) * 2
    assert torch.equal(result.image, small_problem(n_slices=2, noise=0.02).start()[0])
    assert result.trace.energy.shape == (0, 2)


def test_a_slice_that_is_not_finite_ends_and_its_neighbour_goes_on(run):
    result, seen = run(energy=_Breaks(epsilon=0.05), brightness=100.0, iterations=12)
    assert result.outcomes == (Outcome.OUT_OF_ITERATIONS, Outcome.NOT_FINITE)
    assert result.n_iterations == (12, 1)
    assert seen[0].n_active == 1
    whole, _ = run(iterations=12)
    torch.testing.assert_close(result.image[0], whole.image[0], rtol=1e-9, atol=1e-9)


def test_every_outcome_is_a_sentence():
    assert {outcome.name for outcome in Outcome} == {
        "CONVERGED",
        "OUT_OF_ITERATIONS",
        "OUT_OF_TIME",
        "NOT_FINITE",
        "ALL_ZERO",
    }
    assert all(" " in outcome.value or outcome is Outcome.CONVERGED for outcome in Outcome)
