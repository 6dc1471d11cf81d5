"""From k-space to image: scales, all-zero slices, and what is reported."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import (
    ReconstructionSettings,
    coil_smoothness,
    iterations_of,
    reconstruct,
    zero_filled,
)

sys.path.insert(0, str(Path(__file__).parent / "joint"))
from small_problem import single_precision, small_problem

SHIPPED = Path(__file__).parents[2] / "config" / "priors"


@pytest.fixture(scope="module")
def tv() -> Prior:
    return load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))


@pytest.fixture(scope="module")
def kspace() -> KSpace:
    return single_precision(small_problem(grid=(15, 12), n_slices=3, noise=0.02).kspace)


def without_slice(kspace: KSpace, row: int) -> KSpace:
    samples = kspace.samples.clone()
    samples[row] = 0
    return KSpace(samples=samples, mask=kspace.mask, noise_std=kspace.noise_std)


def test_zero_filled_is_the_root_sum_of_squares_of_numpys_images(kspace):
    axes = (-2, -1)
    shifted = np.fft.ifftshift(kspace.samples.numpy(), axes=axes)
    images = np.fft.fftshift(np.fft.ifft2(shifted, norm="ortho"), axes=axes)
    expected = np.sqrt(np.sum(np.abs(images) ** 2, axis=1, keepdims=True))
    found = zero_filled(kspace)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_the_image_comes_closer_to_the_truth(tv):
    problem = small_problem(grid=(24, 20), n_coils=6, keep=0.5, noise=0.005)
    kspace = single_precision(problem.kspace)
    result = reconstruct(kspace, prior=tv)
    truth = problem.image.abs()

    def error(image):
        return float(torch.linalg.vector_norm(image - truth) / torch.linalg.vector_norm(truth))

    assert error(result.image.abs()) < 0.6 * error(zero_filled(kspace))
    assert result.image.dtype == result.coils.dtype == torch.complex64
    assert result.outcomes == (Outcome.OUT_OF_ITERATIONS,)
    magnitude = torch.linalg.vector_norm(result.coils, dim=1)
    torch.testing.assert_close(magnitude, torch.ones_like(magnitude))


@pytest.mark.parametrize("phase", ["real", "soft"])
@pytest.mark.parametrize("factor", [1e-9, 1e6])
def test_scaling_the_samples_scales_the_image_and_nothing_else(kspace, tv, factor, phase):
    settings = ReconstructionSettings(iterations=10, image_phase=phase)
    plain = reconstruct(kspace, prior=tv, settings=settings)
    scaled_kspace = KSpace(
        samples=kspace.samples * factor, mask=kspace.mask, noise_std=kspace.noise_std * factor
    )
    scaled = reconstruct(scaled_kspace, prior=tv, settings=settings)
    torch.testing.assert_close(scaled.image / factor, plain.image, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(scaled.coils, plain.coils, rtol=1e-3, atol=1e-3)
    assert scaled.noise_level == pytest.approx(plain.noise_level, rel=1e-5)
    assert scaled.prior_weight == pytest.approx(plain.prior_weight, rel=1e-5)
    assert scaled.scale == pytest.approx([one / factor for one in plain.scale], rel=1e-5)
    assert scaled.outcomes == plain.outcomes


def test_an_all_zero_slice_is_an_image_of_zeros_and_leaves_its_neighbours_alone(kspace, tv):
    settings = ReconstructionSettings(iterations=10)
    whole = reconstruct(kspace, prior=tv, settings=settings)
    result = reconstruct(without_slice(kspace, 1), prior=tv, settings=settings)
    assert result.outcomes == (Outcome.OUT_OF_ITERATIONS, Outcome.ALL_ZERO, Outcome.OUT_OF_ITERATIONS)
    assert result.n_iterations == (10, 0, 10)
    assert not bool(result.image[1].any())
    assert not bool(result.coils[1].any())
    torch.testing.assert_close(result.image[[0, 2]], whole.image[[0, 2]], rtol=1e-4, atol=1e-5)
    assert result.trace.energy.shape == (10, 2)


def test_a_scan_of_zeros_is_no_error(kspace, tv):
    empty = KSpace(samples=torch.zeros_like(kspace.samples), mask=kspace.mask, noise_std=1.0)
    result = reconstruct(empty, prior=tv)
    assert result.outcomes == (Outcome.ALL_ZERO,) * 3
    assert result.image.shape == (3, 1, 15, 12)
    assert not bool(result.image.any())


def test_samples_that_are_not_finite_are_not_called_zero(kspace, tv):
    samples = kspace.samples.clone()
    samples[1, 0, 7, 3] = float("nan")
    broken = KSpace(samples=samples, mask=torch.ones_like(kspace.mask), noise_std=kspace.noise_std)
    result = reconstruct(broken, prior=tv, settings=ReconstructionSettings(iterations=3))
    assert result.outcomes[1] is Outcome.NOT_FINITE
    assert result.outcomes[0] is result.outcomes[2] is Outcome.OUT_OF_ITERATIONS


def test_the_settings_reach_the_solver(kspace, tv):
    seen = []
    result = reconstruct(
        kspace,
        prior=tv,
        settings=ReconstructionSettings(
            iterations=4,
            image_phase="real",
            prior_weight_rule="fixed",
            prior_weight=0.01,
            prior_weight_factor=2.0,
        ),
        on_iteration=seen.append,
    )
    assert len(seen) == 4
    assert result.image_phase == "real"
    assert not bool(result.image.imag.any())
    assert float(result.image.real.min()) >= 0
    assert result.prior_weight == (0.02,) * 3
    assert result.prior_weight_rule == "fixed"
    loose = reconstruct(kspace, prior=tv, settings=ReconstructionSettings(tolerance=0.1))
    assert loose.outcomes == (Outcome.CONVERGED,) * 3
    late = reconstruct(kspace, prior=tv, out_of_time=lambda: True)
    assert late.outcomes == (Outcome.OUT_OF_TIME,) * 3


@pytest.mark.parametrize(
    ("settings", "used", "iterations"),
    [
        (ReconstructionSettings(), "fast", 24),
        (ReconstructionSettings(image_phase="free"), "fast", 24),
        (ReconstructionSettings(image_phase="real"), "fast", 24),
        (ReconstructionSettings(solver="paper"), "paper", 100),
        (ReconstructionSettings(solver="fast", iterations=3), "fast", 3),
        (ReconstructionSettings(solver="fast", iterations=0), "fast", 0),
        (ReconstructionSettings(solver="paper", iterations=3), "paper", 3),
    ],
    ids=str,
)
def test_the_solver_that_is_used_is_told_and_has_its_own_number_of_iterations(tv, settings, used, iterations):
    kspace = single_precision(small_problem(grid=(8, 6), n_coils=2, noise=0.02).kspace)
    result = reconstruct(kspace, prior=tv, settings=settings)
    assert (settings.solver, iterations_of(settings)) == (used, iterations)
    assert (result.solver, result.n_iterations) == (used, (iterations,))


def test_both_solvers_end_about_equally_far(tv):
    """With their own numbers of iterations: the images differ by far less than they have moved."""
    problem = small_problem(grid=(24, 20), n_coils=6, keep=0.5, noise=0.02)
    kspace = single_precision(problem.kspace)
    fast, paper = (
        reconstruct(kspace, prior=tv, settings=ReconstructionSettings(solver=solver)).image.abs()
        for solver in ("fast", "paper")
    )
    moved = torch.linalg.vector_norm(paper - zero_filled(kspace))
    assert float(torch.linalg.vector_norm(fast - paper)) < 0.2 * float(moved)


def test_the_scale_and_noise_level_are_those_of_the_start(kspace, tv):
    result = reconstruct(kspace, prior=tv, settings=ReconstructionSettings(iterations=1))
    peaks = zero_filled(kspace).amax(dim=(1, 2, 3)).tolist()
    assert result.scale == pytest.approx([1 / peak for peak in peaks], rel=1e-5)
    assert result.noise_level == pytest.approx([0.02 / peak for peak in peaks], rel=1e-5)


def test_given_maps_stay_and_the_image_solves_the_sense_problem(tv):
    """Fully sampled, prior switched off: the image is numpy's own SENSE combination with the given maps."""
    generator = np.random.default_rng(5)
    maps = generator.normal(size=(1, 3, 9, 8)) + 1j * generator.normal(size=(1, 3, 9, 8))
    maps /= np.sqrt((abs(maps) ** 2).sum(axis=1, keepdims=True))
    truth = generator.normal(size=(1, 1, 9, 8)) + 1j * generator.normal(size=(1, 1, 9, 8))
    axes = (-2, -1)
    shifted = np.fft.fft2(np.fft.ifftshift(maps * truth, axes), norm="ortho")
    kspace = KSpace(
        samples=torch.from_numpy(np.fft.fftshift(shifted, axes)).to(torch.complex64),
        mask=torch.ones(1, 1, 9, 8, dtype=torch.bool),
        noise_std=1e-3,
    )
    settings = ReconstructionSettings(
        prior_weight_rule="fixed",
        prior_weight=1e-12,
        imaginary_weight=1e-9,
        image_phase="soft",
        iterations=60,
    )
    given = torch.from_numpy(2 * maps).to(torch.complex64)
    result = reconstruct(kspace, prior=tv, settings=settings, coils=given)
    np.testing.assert_allclose(result.image.numpy(), truth, atol=2e-4)
    np.testing.assert_allclose(result.coils.numpy(), maps, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda maps: maps[:, :1].repeat(1, 9, 1, 1), "both need"),
        (lambda maps: maps * torch.nan, "infinities or NaNs"),
        (lambda maps: maps * 0, "zero everywhere"),
    ],
)
def test_maps_that_cannot_be_are_refused(kspace, tv, change, says):
    with pytest.raises(ValueError, match=says):
        reconstruct(kspace, prior=tv, coils=change(torch.ones_like(kspace.samples)))


def test_the_smoothness_of_the_maps_is_the_settings_else_the_cards_else_the_default(tv):
    told = tv.card.model_copy(
        update={"prior_weight": tv.card.prior_weight.model_copy(update={"coil_smoothness": 2.0})}
    )
    assert coil_smoothness(ReconstructionSettings(coil_smoothness=5.0), told, (200, 160)) == 5
    assert coil_smoothness(ReconstructionSettings(), told, (200, 160)) == 2
    assert coil_smoothness(ReconstructionSettings(), tv.card, (200, 160)) == 0.3
    for coils in ((1, 8, 40, 40), (1, 3, 20, 80)):
        assert coil_smoothness(ReconstructionSettings(), tv.card, coils) == pytest.approx(0.3 / 4)
