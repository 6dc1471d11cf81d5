"""The non-uniform Fourier transform against the exact sum, by every method that a CPU has."""

import math
import sys

import numpy as np
import pytest
import torch

from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.operators.nonuniform import DEFAULT_EPS, NonuniformFourier, default_method
from tests.reconlib.operators.exact_sum import exact_adjoint, exact_forward, relative_error

SHAPES = [(6, 8), (17, 24), (33, 20), (21, 15)]
METHODS = ["finufft", "gridding"]
N_POINTS = 211


@pytest.fixture(params=METHODS)
def method(request):
    if request.param == "finufft":
        pytest.importorskip("finufft")
    return request.param


def trajectory(generator, n_slices=1, n_points=N_POINTS):
    return torch.rand(n_slices, n_points, 2, generator=generator, dtype=torch.float64) - 0.5


def cartesian(shape):
    """The points of a complete grid, (1, point, 2)."""
    axes = [(torch.arange(n, dtype=torch.float64) - n // 2) / n for n in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(1, -1, 2)


@pytest.mark.parametrize(
    ("dtype", "eps"),
    [
        (torch.complex64, DEFAULT_EPS),
        (torch.complex128, DEFAULT_EPS),
        (torch.complex128, 1e-6),
        (torch.complex128, 1e-10),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_directions_are_the_exact_sum_to_three_times_eps(shape, dtype, eps, method, generator):
    points = trajectory(generator)
    fourier = NonuniformFourier.plan(points, shape, eps=eps, dtype=dtype, method=method)
    images = torch.randn(2, 3, *shape, dtype=dtype, generator=generator)
    samples = torch.randn(2, 3, N_POINTS, dtype=dtype, generator=generator)
    expected = exact_forward(images.numpy(), points[0].numpy())
    assert relative_error(fourier.forward(images).numpy(), expected) < 3 * eps
    expected = exact_adjoint(samples.numpy(), points[0].numpy(), shape)
    assert relative_error(fourier.adjoint(samples).numpy(), expected) < 3 * eps


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_adjoint_is_that_of_what_forward_does(shape, method, generator):
    # at an eps of 1e-3 both are wrong in the third digit, but wrong alike
    fourier = NonuniformFourier.plan(
        trajectory(generator), shape, eps=1e-3, dtype=torch.complex128, method=method
    )
    u = torch.randn(2, 3, *shape, dtype=torch.complex128, generator=generator)
    v = torch.randn(2, 3, N_POINTS, dtype=torch.complex128, generator=generator)
    left = torch.vdot(v.flatten(), fourier.forward(u).flatten())
    right = torch.vdot(fourier.adjoint(v).flatten(), u.flatten())
    assert abs(left - right) < 1e-12 * u.norm() * v.norm()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_complete_cartesian_grid_is_the_centred_unitary_transform(shape, method, generator):
    fourier = NonuniformFourier.plan(
        cartesian(shape), shape, eps=1e-10, dtype=torch.complex128, method=method
    )
    images = torch.randn(1, 2, *shape, dtype=torch.complex128, generator=generator)
    kspace = fft2c(images)
    torch.testing.assert_close(fourier.forward(images), kspace.flatten(2), atol=1e-9, rtol=0)
    torch.testing.assert_close(fourier.adjoint(kspace.flatten(2)), ifft2c(kspace), atol=1e-9, rtol=0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_origin_is_the_pixel_n_half(shape, method, generator):
    image = torch.zeros(1, 1, *shape, dtype=torch.complex64)
    image[..., shape[0] // 2, shape[1] // 2] = 1
    samples = NonuniformFourier.plan(trajectory(generator), shape, method=method).forward(image)
    expected = torch.full_like(samples, math.prod(shape) ** -0.5)
    torch.testing.assert_close(samples, expected, atol=3e-4, rtol=0)


def test_the_first_coordinate_is_that_of_y(method):
    image = torch.zeros(1, 1, 8, 10, dtype=torch.complex64)
    image[0, 0, 8 // 2 + 1, 10 // 2] = math.sqrt(80)
    points = torch.tensor([[[0.25, 0.0], [0.0, 0.25]]])
    samples = NonuniformFourier.plan(points, (8, 10), method=method).forward(image)
    torch.testing.assert_close(samples[0, 0], torch.tensor([-1j, 1.0]).to(torch.complex64), atol=3e-4, rtol=0)


def test_derivatives_are_right(method, generator):
    fourier = NonuniformFourier.plan(
        trajectory(generator, 2, 3), (3, 4), dtype=torch.complex128, method=method
    )
    image = torch.randn(2, 1, 3, 4, dtype=torch.complex128, generator=generator, requires_grad=True)
    samples = torch.randn(2, 1, 3, dtype=torch.complex128, generator=generator, requires_grad=True)
    for function, point in ((fourier.forward, image), (fourier.adjoint, samples)):
        assert torch.autograd.gradcheck(function, (point,))
        # a linear map's own second derivative is zero: square it
        assert torch.autograd.gradgradcheck(lambda w, f=function: f(w).abs().square(), (point,))


def test_slices_with_trajectories_of_their_own(method, generator):
    points = trajectory(generator, 3)
    points[2] = points[0]
    fourier = NonuniformFourier.plan(points, (9, 8), eps=1e-10, dtype=torch.complex128, method=method)
    assert len(fourier.plans) == 2
    images = torch.randn(3, 2, 9, 8, dtype=torch.complex128, generator=generator)
    expected = np.stack(
        [exact_forward(w, own) for w, own in zip(images.numpy(), points.numpy(), strict=True)]
    )
    np.testing.assert_allclose(fourier.forward(images).numpy(), expected, atol=1e-8)
    rows = torch.tensor([False, True, True])
    np.testing.assert_allclose(fourier.select(rows).forward(images[rows]).numpy(), expected[1:], atol=1e-8)
    images = images.flip(0)
    order = torch.tensor([2, 1, 0])
    np.testing.assert_allclose(fourier.select(order).forward(images).numpy(), expected[::-1], atol=1e-8)


def test_a_shared_trajectory_serves_any_batch(method, generator):
    fourier = NonuniformFourier.plan(trajectory(generator), (9, 8), method=method)
    images = torch.randn(4, 3, 2, 9, 8, dtype=torch.complex64, generator=generator)
    together = fourier.forward(images)
    assert together.shape == (4, 3, 2, N_POINTS)
    one = fourier.select(torch.tensor([2])).forward(images[2:3])
    torch.testing.assert_close(one, together[2:3], atol=1e-6, rtol=1e-6)


def test_views_and_conjugates_are_transformed_as_they_are_meant(method, generator):
    fourier = NonuniformFourier.plan(trajectory(generator), (9, 9), method=method)
    images = torch.randn(1, 2, 9, 9, dtype=torch.complex64, generator=generator)
    view = images.mT.conj()
    torch.testing.assert_close(fourier.forward(view), fourier.forward(view.resolve_conj().clone()))
    samples = torch.randn(1, N_POINTS, 2, dtype=torch.complex64, generator=generator).mT.conj()
    torch.testing.assert_close(fourier.adjoint(samples), fourier.adjoint(samples.resolve_conj().clone()))


def test_points_that_are_whole_turns_apart_are_the_same(method, generator):
    points = trajectory(generator)
    images = torch.randn(1, 1, 9, 8, dtype=torch.complex64, generator=generator)
    found, turned = (
        NonuniformFourier.plan(where, (9, 8), method=method).forward(images) for where in (points, points + 1)
    )
    torch.testing.assert_close(found, turned, atol=1e-5, rtol=0)


def test_torch_alone_serves_where_no_library_is_installed(monkeypatch, generator):
    monkeypatch.setitem(sys.modules, "finufft", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert default_method(torch.device("cpu")) == "gridding"
    assert default_method(torch.device("cuda")) == "gridding"
    points = trajectory(generator)
    images = torch.randn(1, 2, 9, 8, dtype=torch.complex64, generator=generator)
    found = NonuniformFourier.plan(points, (9, 8)).forward(images)
    assert relative_error(found.numpy(), exact_forward(images.numpy(), points[0].numpy())) < 3e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trajectory": torch.zeros(1, 5, 3)}, r"shape \(1, 5, 3\); it needs \(slice, point, 2\)"),
        ({"trajectory": torch.zeros(5, 2)}, r"shape \(5, 2\); it needs \(slice, point, 2\)"),
        ({"trajectory": torch.zeros(1, 0, 2)}, r"shape \(1, 0, 2\)"),
        ({"trajectory": torch.zeros(1, 5, 2, dtype=torch.int64)}, r"torch.int64; give float32 or float64"),
        (
            {"trajectory": torch.tensor([[[0, torch.nan], [torch.inf, 0], [0, 0]]])},
            "2 points .* infinite or NaN",
        ),
        ({"shape": (1, 8)}, r"shape is \(1, 8\); it needs at least 2"),
        ({"dtype": torch.float32}, "dtype is torch.float32; it must be torch.complex64"),
        ({"eps": 0.0}, "eps is 0.0; .* between 0 and 1"),
    ],
)
def test_what_cannot_be_planned_is_refused(change, message):
    given = {"trajectory": torch.zeros(1, 5, 2), "shape": (8, 8), **change}
    with pytest.raises(ValueError, match=message):
        NonuniformFourier.plan(given.pop("trajectory"), given.pop("shape"), **given)


def test_batches_that_do_not_fit_are_refused(generator):
    fourier = NonuniformFourier.plan(trajectory(generator, 2, 5), (8, 9))
    with pytest.raises(ValueError, match=r"coil images have shape \(2, 1, 9, 8\); .* 2 slices and \(8, 9\)"):
        fourier.forward(torch.zeros(2, 1, 9, 8, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"samples have shape \(1, 1, 5\); .* 2 slices and \(5,\)"):
        fourier.adjoint(torch.zeros(1, 1, 5, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"samples are torch.complex128; .* planned for torch.complex64"):
        fourier.adjoint(torch.zeros(2, 1, 5, dtype=torch.complex128))


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["cufinufft", "gridding"])
def test_a_cuda_device_gives_the_exact_sum(method, generator):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if method == "cufinufft":
        pytest.importorskip("cufinufft")
    points = trajectory(generator)
    fourier = NonuniformFourier.plan(points.cuda(), (17, 24), method=method)
    images = torch.randn(2, 3, 17, 24, dtype=torch.complex64, generator=generator)
    found = fourier.forward(images.cuda()).cpu().numpy()
    assert relative_error(found, exact_forward(images.numpy(), points[0].numpy())) < 3 * DEFAULT_EPS
    samples = torch.randn(2, 3, N_POINTS, dtype=torch.complex64, generator=generator)
    found = fourier.adjoint(samples.cuda()).cpu().numpy()
    expected = exact_adjoint(samples.numpy(), points[0].numpy(), (17, 24))
    assert relative_error(found, expected) < 3 * DEFAULT_EPS
