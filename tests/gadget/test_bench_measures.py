"""What ``bench`` measures: evaluations, objective, iterations to it, time and memory."""

import math

import numpy as np
import pytest
import torch
from tiny_bench import CPU, TINY, plan, total_variation

from gadget.benchmark import solvers
from gadget.benchmark.cases import head, simulated_case
from gadget.benchmark.counting import counted
from gadget.benchmark.objective import Objective
from gadget.benchmark.parts import PROX, TRANSFORM, sum_of_iteration, time_parts
from gadget.benchmark.scaling import side_by_side
from gadget.benchmark.solvers import FAST, REFERENCE, compare_solvers, fewest_that
from gadget.benchmark.timing import Spent, least_spent, peak_mib, spent_on
from reconlib.operators.fourier import fft2c


@pytest.fixture(scope="module")
def brain():
    return plan("brain").problems["brain"]


def test_the_reference_takes_one_network_gradient_an_iteration(brain):
    prior, count = counted(brain.case.prior)

    found = brain.solve(REFERENCE, prior=prior)

    assert count.gradients == found.n_iterations[0] == TINY.iterations
    assert count.values >= TINY.iterations


def test_counting_changes_nothing(brain):
    prior, _ = counted(brain.case.prior)

    assert torch.equal(brain.solve(FAST, prior=prior).image, brain.solve(FAST).image)
    assert prior.energy.temperature == total_variation().energy.temperature


def test_what_an_energy_has_besides_is_passed_on():
    prior, _ = counted(total_variation())

    assert prior.energy.epsilon == total_variation().energy.epsilon
    with pytest.raises(AttributeError, match="missing"):
        _ = prior.energy.missing


def mu_of(problem):
    """The default, which is for 160 x 160 pixels."""
    n_y, n_x = problem.case.case.scan.matrix
    return 0.3 * (n_y * n_x) ** 0.5 / 160


def test_the_objective_is_the_one_of_the_method(brain):
    """By numpy: data, total variation of both parts, and differences of maps that are zero outside."""
    found = brain.solve(REFERENCE)
    objective = Objective.like(found, brain.kspace, prior=brain.case.prior, settings=brain.settings)
    scale, epsilon = found.scale[0], brain.case.prior.energy.epsilon
    image, maps = (found.image * scale)[0].numpy().astype(complex), found.coils[0].numpy().astype(complex)
    mask, samples = brain.kspace.mask[0].numpy(), brain.kspace.samples[0].numpy() * scale

    axes = (-2, -1)
    of_coils = np.fft.ifftshift(maps * image, axes=axes)
    transformed = np.fft.fftshift(np.fft.fft2(of_coils, norm="ortho"), axes=axes)
    data = 0.5 * (np.abs(mask * transformed - samples) ** 2).sum()

    def variation(part):
        d_y, d_x = np.diff(part, axis=0, append=part[-1:]), np.diff(part, axis=1, append=part[:, -1:])
        return (np.sqrt(d_y**2 + d_x**2 + epsilon**2) - epsilon).sum()

    sigma, prior_weight = found.noise_level[0], found.prior_weight[0]
    energy = prior_weight * variation(image[0].real) + 0.2 * sigma * variation(image[0].imag)
    smoothness = (
        mu_of(brain)
        / 2
        * sum((np.abs(np.diff(maps, axis=axis, prepend=0, append=0)) ** 2).sum() for axis in (-2, -1))
    )
    assert objective.of(found)[0] == pytest.approx(data + energy + smoothness, rel=1e-4)


def test_the_objective_sees_all_results_at_the_same_views():
    prior = total_variation()
    noisy = prior.card.model_copy(update={"gradient_noise_std": 0.05, "symmetric_views": True})
    problem = plan("brain", prior=type(prior)(noisy, prior.energy)).problems["brain"]
    short, long = problem.solve(REFERENCE, iterations=1), problem.solve(REFERENCE)
    objectives = [
        Objective.like(short, problem.kspace, prior=problem.case.prior, settings=problem.settings)
        for _ in range(2)
    ]

    assert len({objective.of(short)[0] for objective in objectives}) == 1
    assert len(objectives[0].views) == 8
    assert len({view.shift for view in objectives[0].views}) > 1
    assert objectives[0].of(long)[0] < objectives[0].of(short)[0]


@pytest.mark.parametrize("most", range(1, 9))
def test_the_fewest_iterations_are_found(most):
    for goal in range(1, most + 2):
        asked = []

        def reaches(k, goal=goal, asked=asked):
            asked.append(k)
            return k >= goal

        assert fewest_that(reaches, most) == (goal if goal <= most else None)
        assert len(asked) <= 2 + math.ceil(math.log2(most))


def test_both_solvers_are_measured_by_the_same_measures(brain):
    row = compare_solvers(brain, repeats=1)

    for name in ("seconds", "objective", "PSNR", "SSIM", "network gradients", "iterations"):
        assert {f"{REFERENCE}: {name}", f"{FAST}: {name}"} <= row.keys()
    assert row[f"{FAST}: times faster (seconds)"] == pytest.approx(
        row[f"{REFERENCE}: seconds"] / row[f"{FAST}: seconds"]
    )


def test_iterations_to_the_objective_count_the_gradients_up_to_there(brain):
    """A solver that needs a third of the reference's iterations."""

    class Thrice(solvers.Problem):
        def solve(self, solver, *, iterations=None, prior=None):
            n = iterations or self.settings.iterations
            return super().solve(REFERENCE, iterations=3 * n if solver == FAST else n, prior=prior)

    problem = Thrice(brain.case, brain.kspace, solvers.replace(brain.settings, iterations=6))
    row = compare_solvers(problem, repeats=1)

    assert row[f"{FAST}: iterations to paper's objective"] == 2
    assert row[f"{FAST}: gradients to paper's objective"] == 6


def test_an_objective_that_is_not_reached_is_said(brain, monkeypatch):
    monkeypatch.setattr(solvers, "ROUNDING", -1.0)

    row = compare_solvers(brain, repeats=1)

    assert row[f"{FAST}: iterations to paper's objective"] == "not reached"


def test_parts_are_timed_and_added_up(brain):
    row = time_parts(brain, repeats=1)
    least = {
        name: Spent(k, 10.0 * k)
        for k, name in enumerate(
            ("network gradient", "network value", TRANSFORM, PROX, "line search"), start=1
        )
    }

    assert all(row[f"{name}, ms"] > 0 for name in least)
    assert sum_of_iteration(least) == Spent(1 + 2 + 6 * 3 + 4, 10 * (1 + 2 + 6 * 3 + 4))
    assert "to the device, ms" not in row


def test_runs_take_turns_and_the_first_of_each_warms_up():
    order = []

    least = least_spent({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, CPU, repeats=2)

    assert order == ["a", "b"] * 3
    assert least.keys() == {"a", "b"}
    assert all(0 <= spent.seconds < 1 for spent in least.values())


def test_the_time_of_programs_counts_as_time_of_the_processor():
    import subprocess
    import sys

    burn = "import time\nwhile time.process_time() < 0.3: pass"

    spent = spent_on(lambda: subprocess.run([sys.executable, "-c", burn], check=True), CPU)

    assert spent.cpu_seconds > 0.25


def test_peak_memory_is_that_on_top():
    mib = peak_mib(lambda: torch.ones(64, 2**18).sum(), CPU)
    if mib is None:
        pytest.skip("the system does not tell")

    assert 60 < mib < 90


def test_copies_side_by_side_have_the_image_of_one(brain):
    many = solvers.replace(brain, kspace=side_by_side(brain.kspace, 3))

    images = many.solve(REFERENCE).image

    torch.testing.assert_close(images, brain.solve(REFERENCE).image.expand_as(images), rtol=1e-3, atol=1e-5)


def test_copies_of_samples_off_the_grid_have_the_image_of_one():
    radial = plan("radial").problems["radial"]
    many = solvers.replace(radial, kspace=side_by_side(radial.kspace, 2))

    images = many.solve(REFERENCE, iterations=2).image

    one = radial.solve(REFERENCE, iterations=2).image
    torch.testing.assert_close(images, one.expand_as(images), rtol=1e-3, atol=1e-4 * one.abs().max().item())


def test_the_head_is_a_scan_of_its_truth():
    scan = head((40, 36), 3)
    noise = scan.coil_images().abs().square().sum(dim=1, keepdim=True).sqrt() - scan.reference

    assert float(noise.abs().mean()) < 3 * scan.noise_std
    assert scan.noise_std == pytest.approx(0.007 * float(scan.reference.max()), rel=1e-3)
    torch.testing.assert_close(fft2c(scan.coil_images()), scan.samples)


def test_the_mu_of_the_objective_is_the_default(brain):
    found = brain.solve(REFERENCE, iterations=1)
    objective = Objective.like(found, brain.kspace, prior=brain.case.prior, settings=brain.settings)

    assert objective.coil_energy.weight == pytest.approx(mu_of(brain))


@pytest.mark.slow
def test_the_case_of_the_paper_has_its_network_and_no_quality():
    case = simulated_case("paper", TINY, total_variation(), CPU)
    problem = solvers.Problem.of(case, plan("brain").settings, CPU)

    row = compare_solvers(problem, repeats=1)

    assert sum(weight.numel() for weight in case.prior.network.parameters()) == 21_350_640
    assert f"{FAST}: PSNR" not in row
    assert row[f"{REFERENCE}: network gradients"] == 1
