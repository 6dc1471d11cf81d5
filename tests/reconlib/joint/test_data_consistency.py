"""The data term: value and gradients against the written-out model and finite differences, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_problem import small_problem
from written_out import coil_gradient

from reconlib.joint import data_consistency
from reconlib.joint.data_consistency import COIL_FLOOR, DataConsistency, image_gradient, normalise_coils
from reconlib.kspace import KSpace
from reconlib.operators.fourier import SampledFourier
from reconlib.operators.inner_product import half_square, real_dot
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.operators.toeplitz import ToeplitzNormal


@pytest.fixture
def problem():
    return small_problem(grid=(9, 10), n_slices=2, noise=0.05)


def written_out(problem, image: np.ndarray, coils: np.ndarray) -> np.ndarray:
    """H of each slice, in centred k-space with numpy."""
    axes = (-2, -1)
    maps = coils / np.sqrt(np.sum(np.abs(coils) ** 2, axis=1, keepdims=True) + COIL_FLOOR**2)
    kspace = np.fft.fft2(np.fft.ifftshift(maps * image, axes=axes), norm="ortho")
    kspace = np.fft.fftshift(kspace, axes=axes)
    residual = (kspace - problem.kspace.samples.numpy()) * problem.kspace.mask.numpy()
    return np.sum(np.abs(residual) ** 2, axis=(1, 2, 3)) / 2


def random_point(generator, *, real: bool):
    image = torch.randn(2, 1, 9, 10, dtype=torch.complex128, generator=generator)
    coils = torch.randn(2, 3, 9, 10, dtype=torch.complex128, generator=generator)
    return (torch.complex(image.real, torch.zeros_like(image.real)) if real else image), coils


def gradients(problem, image, coils):
    directions, magnitude = normalise_coils(coils)
    pull = problem.data.gradient(directions * image)
    return image_gradient(directions, pull), coil_gradient(image, directions, magnitude, pull)


def value(problem, image, coils):
    return problem.data.gradient_and_value(normalise_coils(coils)[0] * image)[1]


def test_the_value_is_that_of_the_centred_model(problem, generator):
    image, coils = random_point(generator, real=False)
    found = value(problem, image, coils)
    np.testing.assert_allclose(found.numpy(), written_out(problem, image.numpy(), coils.numpy()), rtol=1e-6)


@pytest.mark.parametrize("real", [True, False], ids=["real image", "complex image"])
@pytest.mark.parametrize("block", ["image", "coils"])
def test_the_gradients_are_the_slopes_of_the_value(problem, generator, block, real):
    image, coils = random_point(generator, real=real)
    of_image, of_coils = gradients(problem, image, coils)
    assert of_image.shape == image.shape
    assert of_coils.shape == coils.shape
    for _ in range(4):
        step_image, step_coils = random_point(generator, real=real)
        gradient, step = (of_image, step_image) if block == "image" else (of_coils, step_coils)
        h = 1e-5
        ends = []
        for sign in (1, -1):
            moved_image = image + sign * h * step_image if block == "image" else image
            moved_coils = coils + sign * h * step_coils if block == "coils" else coils
            ends.append(written_out(problem, moved_image.numpy(), moved_coils.numpy()))
        slope = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(real_dot(gradient, step).numpy(), slope, rtol=1e-5, atol=1e-6)


def test_the_data_term_does_not_see_the_scale_of_the_maps(problem, generator):
    image, coils = random_point(generator, real=False)
    scale = 1 + torch.rand(2, 1, 9, 10, dtype=torch.float64, generator=generator)
    _, of_coils = gradients(problem, image, coils)
    radial = (coils.conj() * of_coils).real.sum(dim=1)
    assert radial.abs().max() < 1e-6
    first, second = (value(problem, image, one) for one in (coils, coils * scale))
    torch.testing.assert_close(first, second, rtol=1e-6, atol=0)


def test_maps_that_vanish_give_finite_directions_and_gradients(problem, generator):
    image, coils = random_point(generator, real=False)
    coils[:, :, 2, 3] = 0
    directions, _ = normalise_coils(coils)
    assert not bool(directions[:, :, 2, 3].abs().any())
    assert all(bool(torch.isfinite(one.abs()).all()) for one in gradients(problem, image, coils))


def dense_model(problem, row: int) -> np.ndarray:
    """M F_c of one slice as a matrix, from centred transforms of unit images in numpy."""
    axes, grid = (-2, -1), problem.image.shape[-2:]
    units = np.eye(grid[0] * grid[1]).reshape(-1, *grid)
    waves = np.fft.fft2(np.fft.ifftshift(units, axes=axes), norm="ortho")
    waves = np.fft.fftshift(waves, axes=axes) * problem.kspace.mask.numpy()[row]
    return waves.reshape(len(units), -1).T


@pytest.fixture(params=["whole lines", "single samples"])
def sampled(request, problem):
    """The problem, and one whose sampling leaves out single samples, so that both axes are transformed."""
    if request.param == "whole lines":
        return problem
    mask = torch.rand(problem.kspace.mask.shape, generator=torch.Generator().manual_seed(3)) < 0.5
    kspace = KSpace(samples=problem.kspace.samples, mask=mask, noise_std=1.0)
    fourier, folded = SampledFourier.fold(kspace)
    return replace(problem, kspace=kspace, data=DataConsistency(fourier, folded))


@pytest.mark.parametrize("cached", [1, 2 * 2 * 90, 2**16], ids=["1 coil", "2 coils", "all coils"])
def test_the_normal_operator_of_the_image_is_the_dense_one(sampled, generator, monkeypatch, cached):
    monkeypatch.setattr(data_consistency, "CACHED_PIXELS", cached)
    image, coils = random_point(generator, real=False)
    found = sampled.data.combined_normal(coils, coils.conj().resolve_conj(), image)
    for row in range(2):
        model = dense_model(sampled, row)
        e = np.concatenate([model * one.numpy().ravel() for one in coils[row]])
        expected = e.conj().T @ (e @ image[row].numpy().ravel())
        np.testing.assert_allclose(found[row].numpy().ravel(), expected, atol=1e-5)


def test_several_images_of_a_slice_are_those_one_by_one(sampled, generator):
    """As the chains of a slice are, on the grid and off it."""
    n_slices, n_y, n_x = len(sampled.kspace.samples), *sampled.kspace.samples.shape[-2:]
    coils = random_point(generator, real=False)[1].to(torch.complex64)
    images = torch.complex(*torch.randn(2, n_slices, 3, n_y, n_x, generator=generator)).to(coils)
    points = torch.rand(n_slices, 40, 2, generator=generator) - 0.5
    samples = torch.zeros(n_slices, coils.shape[1], 40, dtype=torch.complex64)
    terms = [sampled.data]
    for normal in (NonuniformFourier.plan, lambda *given: ToeplitzNormal.of(NonuniformFourier.plan(*given))):
        term = LeastSquares.of(NonuniformFourier.plan(points, (n_y, n_x)), samples)
        terms.append(replace(term, operator=normal(points, (n_y, n_x))))
    for data in terms:
        conjugates = coils.conj().resolve_conj()
        together = data.combined_normal(coils, conjugates, images)
        for one in range(3):
            alone = data.combined_normal(coils, conjugates, images[:, one : one + 1].contiguous())
            torch.testing.assert_close(together[:, one : one + 1], alone, rtol=1e-5, atol=1e-5)


def test_the_normal_operator_of_coil_images_is_the_dense_one(sampled, generator):
    _, coil_images = random_point(generator, real=False)
    found = sampled.data.fourier.normal_in_place(coil_images.clone())
    for row, coil in np.ndindex(2, 3):
        model = dense_model(sampled, row)
        expected = model.conj().T @ (model @ coil_images[row, coil].numpy().ravel())
        np.testing.assert_allclose(found[row, coil].numpy().ravel(), expected, atol=1e-6)


@pytest.mark.parametrize(("cached", "widths"), [(1, [1, 1, 1]), (2 * 2 * 90, [2, 1]), (2**16, [3])])
def test_the_parts_add_up_to_the_whole(problem, generator, monkeypatch, cached, widths):
    monkeypatch.setattr(data_consistency, "CACHED_PIXELS", cached)
    _, coil_images = random_point(generator, real=False)
    parts = problem.data.parts(3)
    assert [coil_images[:, coils].shape[1] for coils, _ in parts] == widths
    found = [part.gradient_and_value(coil_images[:, coils]) for coils, part in parts]
    gradient, value = problem.data.gradient_and_value(coil_images)
    torch.testing.assert_close(torch.cat([one for one, _ in found], dim=1), gradient)
    torch.testing.assert_close(torch.stack([one for _, one in found]).sum(dim=0), value)
    halves = torch.stack([part.half_norm(coil_images[:, coils]) for coils, part in parts])
    torch.testing.assert_close(halves.sum(dim=0), problem.data.half_norm(coil_images))


def test_sums_are_per_slice_and_exact_in_single_precision():
    values = torch.full((2, 1, 1000, 1000), 1e-2)
    values[1] *= 2
    values[:, :, 0, 0] = 1e3
    squares = [float(one.double().square().sum()) / 2 for one in values]
    assert half_square(values).tolist() == pytest.approx(squares, rel=1e-7)
    assert real_dot(values, values).tolist() == pytest.approx([2 * one for one in squares], rel=1e-7)
