"""The convolution against the exact sum and the pair, the data term against a residual, and the norm."""

import math

import numpy as np
import pytest
import torch

from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.operators.power_iteration import largest_eigenvalue
from reconlib.operators.toeplitz import PIXELS_PER_POINT, ToeplitzNormal, normal_operator
from tests.reconlib.operators.exact_sum import exact_adjoint, exact_forward, phases, relative_error

SHAPES = [(6, 8), (17, 24), (33, 20), (21, 15)]


def trajectory(generator, n_slices=1, n_points=211):
    return torch.rand(n_slices, n_points, 2, generator=generator, dtype=torch.float64) - 0.5


def spokes(n_spokes, n_samples):
    angle = torch.arange(n_spokes, dtype=torch.float64)[:, None] * (math.pi / n_spokes)
    radius = (torch.arange(n_samples, dtype=torch.float64) - n_samples // 2) / n_samples
    return torch.stack([angle.sin() * radius, angle.cos() * radius], dim=-1).reshape(1, -1, 2)


def complex_normal(*shape, generator, dtype=torch.complex128):
    return torch.randn(shape, dtype=dtype, generator=generator)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_convolution_is_the_exact_sum_and_its_adjoint(shape, generator):
    points = trajectory(generator)
    normal = ToeplitzNormal.of(NonuniformFourier.plan(points, shape, dtype=torch.complex128)).normal
    images = complex_normal(2, 3, *shape, generator=generator)
    samples = exact_forward(images.numpy(), points[0].numpy())
    expected = exact_adjoint(samples, points[0].numpy(), shape)
    assert relative_error(normal(images).numpy(), expected) < 1e-11


@pytest.mark.parametrize("method", ["finufft", "gridding"])
def test_in_double_precision_it_is_the_pair_to_1e8(method, generator):
    fourier = NonuniformFourier.plan(
        spokes(21, 96), (48, 45), eps=1e-10, dtype=torch.complex128, method=method
    )
    images = complex_normal(1, 2, 48, 45, generator=generator)
    found, expected = ToeplitzNormal.of(fourier).normal(images), fourier.normal(images)
    assert relative_error(found.numpy(), expected.numpy()) < 1e-8


def test_in_single_precision_it_is_the_pair_to_5e5(generator):
    fourier = NonuniformFourier.plan(spokes(200, 640), (320, 320), eps=1e-6)
    images = complex_normal(1, 1, 320, 320, generator=generator, dtype=torch.complex64)
    found, expected = ToeplitzNormal.of(fourier).normal(images), fourier.normal(images)
    assert relative_error(found.numpy(), expected.numpy()) < 5e-5


def test_a_complete_cartesian_grid_gives_the_image_back(generator):
    axes = [(torch.arange(n, dtype=torch.float64) - n // 2) / n for n in (9, 8)]
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(1, -1, 2)
    images = complex_normal(1, 2, 9, 8, generator=generator)
    found = ToeplitzNormal.of(NonuniformFourier.plan(points, (9, 8), dtype=torch.complex128)).normal(images)
    torch.testing.assert_close(found, images, atol=1e-11, rtol=0)


def test_derivatives_of_the_convolution_are_right(generator):
    operator = ToeplitzNormal.of(
        NonuniformFourier.plan(trajectory(generator, 2, 9), (3, 2), dtype=torch.complex128)
    )
    image = complex_normal(2, 1, 3, 2, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(operator.normal, (image,))
    assert torch.autograd.gradgradcheck(lambda w: operator.normal(w).abs().square(), (image,))


def test_slices_with_kernels_of_their_own(generator):
    fourier = NonuniformFourier.plan(trajectory(generator, 2), (9, 8), eps=1e-10, dtype=torch.complex128)
    operator = ToeplitzNormal.of(fourier)
    images = complex_normal(2, 3, 2, 9, 8, generator=generator)
    expected = fourier.normal(images)
    torch.testing.assert_close(operator.normal(images), expected, atol=1e-8, rtol=0)
    only = operator.select(torch.tensor([False, True])).normal(images[1:])
    torch.testing.assert_close(only, expected[1:], atol=1e-8, rtol=0)


@pytest.mark.parametrize("method", ["finufft", "gridding"])
def test_half_norms_are_those_of_the_samples(method, generator):
    points = trajectory(generator)
    fourier = NonuniformFourier.plan(points, (9, 8), eps=1e-10, dtype=torch.complex128, method=method)
    step = complex_normal(2, 3, 9, 8, generator=generator)
    samples = exact_forward(step.numpy(), points[0].numpy())
    expected = (np.abs(samples) ** 2).sum(axis=(1, 2)) / 2
    np.testing.assert_allclose(fourier.half_norm(step).numpy(), expected, rtol=1e-8)
    np.testing.assert_allclose(ToeplitzNormal.of(fourier).half_norm(step).numpy(), expected, rtol=1e-8)


def test_the_convolution_is_chosen_where_there_are_enough_points(generator):
    n_pixels = 16 * 24
    enough = trajectory(generator, 1, n_pixels // PIXELS_PER_POINT)
    assert isinstance(normal_operator(NonuniformFourier.plan(enough, (16, 24))), ToeplitzNormal)
    few = NonuniformFourier.plan(enough[:, 1:], (16, 24))
    assert normal_operator(few) is few


@pytest.mark.parametrize("n_spokes", [2, 40], ids=["pair", "convolution"])
def test_the_data_term_is_that_of_the_residual(n_spokes, generator):
    """Samples with noise of 1 % of their norm, in single precision, near the true coil images."""
    shape, points = (64, 60), spokes(n_spokes, 120)
    truth = complex_normal(1, 4, *shape, generator=generator).numpy()
    samples = exact_forward(truth, points[0].numpy())
    noise = complex_normal(*samples.shape, generator=generator).numpy()
    data = samples + noise * (0.01 * np.linalg.norm(samples) / np.linalg.norm(noise))
    fourier = NonuniformFourier.plan(points, shape)
    term = LeastSquares.of(fourier, torch.from_numpy(data).to(torch.complex64))
    assert isinstance(term.operator, ToeplitzNormal) == (n_spokes == 40)
    images = torch.from_numpy(truth).to(torch.complex64)
    residual = samples - data
    gradient = term.gradient(images)
    expected = exact_adjoint(residual, points[0].numpy(), shape)
    # relative to the parts that cancel, as 1e-4 of them is what the pair is exact to
    scale = np.linalg.norm(exact_adjoint(data, points[0].numpy(), shape))
    assert np.linalg.norm(gradient.numpy() - expected) < (2e-6 if n_spokes == 40 else 3e-4) * scale
    value = float(term.gradient_and_value(images)[1])
    assert value == pytest.approx(np.linalg.norm(residual) ** 2 / 2, rel=1e-3 if n_spokes == 40 else 3e-2)
    step = complex_normal(1, 4, *shape, generator=generator, dtype=torch.complex64) * 0.01
    moved = np.linalg.norm(exact_forward(step.numpy(), points[0].numpy())) ** 2 / 2
    assert float(term.half_norm(step)) == pytest.approx(moved, rel=1e-4)


def test_a_data_term_of_some_slices(generator):
    fourier = NonuniformFourier.plan(trajectory(generator, 3), (9, 8))
    samples = complex_normal(3, 2, 211, generator=generator, dtype=torch.complex64)
    images = complex_normal(3, 2, 9, 8, generator=generator, dtype=torch.complex64)
    term = LeastSquares.of(fourier, samples)
    rows = torch.tensor([True, False, True])
    some = term.select(rows)
    for found, expected in zip(
        some.gradient_and_value(images[rows]), term.gradient_and_value(images), strict=True
    ):
        torch.testing.assert_close(found, expected[rows])


def test_the_power_iteration_finds_the_square_of_the_norm(generator):
    points = torch.cat([trajectory(generator), spokes(9, 211 // 9 + 1)[:, :211]])
    fourier = NonuniformFourier.plan(points, (9, 8), eps=1e-9, dtype=torch.complex128)
    found = largest_eigenvalue(
        fourier.normal, (2, 1, 9, 8), generator=generator, dtype=torch.complex128, iterations=100
    )
    for value, own in zip(found.tolist(), points.numpy(), strict=True):
        along_y, along_x = phases(own[:, 0], 9), phases(own[:, 1], 8)
        matrix = (along_y[:, :, None] * along_x[:, None, :]).reshape(len(own), -1) / math.sqrt(72)
        assert value == pytest.approx(np.linalg.norm(matrix, 2) ** 2, rel=1e-2)


def test_the_norm_of_nothing_is_zero(generator):
    found = largest_eigenvalue(torch.zeros_like, (2, 1, 5, 4), generator=generator)
    assert found.tolist() == [0.0, 0.0]


def test_images_of_another_shape_or_type_are_refused(generator):
    operator = ToeplitzNormal.of(NonuniformFourier.plan(trajectory(generator, 2), (9, 8)))
    with pytest.raises(ValueError, match=r"shape \(2, 1, 8, 9\); .* 2 slices of \(9, 8\) pixels"):
        operator.normal(torch.zeros(2, 1, 8, 9, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"images are torch.complex128; the kernel is torch.complex64"):
        operator.normal(torch.zeros(2, 1, 9, 8, dtype=torch.complex128))
