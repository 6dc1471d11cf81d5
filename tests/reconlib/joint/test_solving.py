"""The start of total variation: what it asks, when it is left out, and what it is good for."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_problem import SmallProblem, small_problem
from written_out import WEIGHT, LogCosh

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.protocol import Energy
from reconlib.energies.total_variation import TotalVariation
from reconlib.joint.image_model import ImageModel
from reconlib.joint.outcome import Outcome
from reconlib.joint.prior_weight import prior_weight
from reconlib.joint.result import JointProgress
from reconlib.joint.solving import START_COIL_STEPS, START_ITERATIONS, START_WEIGHT, JointProblem
from reconlib.joint.split_solver import SplitSettings, split_solve
from reconlib.priors.library import find_prior, load_prior

NOISE = 0.05
PRIORS = Path(__file__).parents[3] / "config" / "priors"


@pytest.fixture(scope="module")
def small() -> SmallProblem:
    return small_problem(noise=NOISE, imaginary=0.2, keep=0.5)


def joint_problem(small: SmallProblem, energy: Energy, **changes) -> JointProblem:
    image, coils = small.start()
    weight = torch.full((1,), WEIGHT, dtype=torch.float64)
    problem = JointProblem(
        solver="fast",
        model=ImageModel("soft", energy, weight, 0.2 * torch.full_like(weight, NOISE)),
        smoothness=CoilSmoothness(0.1),
        noise_level=torch.full_like(weight, NOISE),
        image=image,
        coils=coils,
        is_close=False,
        estimate_coils=True,
        gradient_noise_std=0.0,
        symmetric_views=False,
        tolerance=0.0,
        seed=1,
        out_of_time=lambda: False,
    )
    return replace(problem, **changes)


def test_the_start_asks_the_prior_nothing(small):
    energy = LogCosh()
    result = joint_problem(small, energy).solve(small.data, 4)
    assert energy.n_gradients == 4
    assert result.n_iterations == (4,)
    assert result.trace.energy.shape == (4, 1)


def test_the_start_is_the_joint_estimate_of_total_variation_at_its_priors_weight(small):
    """No iteration follows: what comes back is the start."""
    result = joint_problem(small, LogCosh()).solve(small.data, 0)
    tv = load_prior(find_prior("tv", [PRIORS]), torch.device("cpu"))
    weight, _ = prior_weight(tv.card, NOISE, rule=None, value=None, factor=1.0)
    assert weight == pytest.approx(START_WEIGHT * NOISE)
    assert replace(tv.energy, temperature=1.0) == TotalVariation()
    weights = torch.full((1,), weight, dtype=torch.float64)
    image, coils = small.start()
    expected = split_solve(
        small.data,
        ImageModel("soft", tv.energy, weights, 0.2 * torch.full_like(weights, NOISE)),
        CoilSmoothness(0.1),
        initial_image=image,
        initial_coils=coils,
        settings=SplitSettings(iterations=START_ITERATIONS, coil_steps=START_COIL_STEPS, averaged=0.0),
        generator=torch.Generator(),
    )
    assert torch.equal(result.image, expected.image)
    assert torch.equal(result.coils, expected.coils)


@pytest.mark.parametrize(
    ("energy", "changes"),
    [(TotalVariation(), {}), (LogCosh(), {"is_close": True}), (LogCosh(), {"solver": "paper"})],
    ids=["total variation itself", "close already", "paper"],
)
def test_where_it_is_of_no_use_there_is_no_start(small, energy, changes):
    image, coils = small.start()
    result = joint_problem(small, energy, **changes).solve(small.data, 0)
    assert torch.equal(result.image, image)
    assert torch.equal(result.coils, coils)


def test_maps_that_are_given_stay_in_the_start(small):
    problem = joint_problem(small, LogCosh(), coils=small.coils, estimate_coils=False)
    assert torch.equal(problem.solve(small.data, 0).coils, small.coils)


def test_progress_counts_the_start_and_what_follows_it(small):
    seen: list[JointProgress] = []
    joint_problem(small, LogCosh()).solve(small.data, 4, seen.append)
    total = START_ITERATIONS + 4
    assert [(one.iteration, one.iterations) for one in seen] == [(k + 1, total) for k in range(total)]


@pytest.mark.parametrize("calls", [0, 1, START_ITERATIONS - 1])
def test_out_of_time_in_the_start_is_out_of_time_before_the_first_iteration(small, calls):
    asked = iter([False] * calls)
    energy = LogCosh()
    result = joint_problem(small, energy, out_of_time=lambda: next(asked, True)).solve(small.data, 4)
    assert result.outcomes == (Outcome.OUT_OF_TIME,)
    assert result.n_iterations == (0,)
    assert energy.n_gradients == 0
    assert bool(torch.isfinite(torch.view_as_real(result.image)).all())
