"""Fourier operators against numpy's centred transform."""

import numpy as np
import pytest
import torch

from reconlib.kspace import KSpace
from reconlib.operators.fourier import SampledFourier, fft2c, ifft2c

GRIDS = [(6, 8), (5, 8), (6, 9), (7, 9)]


def centred(image: np.ndarray) -> np.ndarray:
    """Numpy's centred unitary transform of the last two axes."""
    axes = (-2, -1)
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(image, axes=axes), norm="ortho"), axes=axes)


def random_mask(grid: tuple[int, int], *, whole_lines: bool, generator: torch.Generator) -> torch.Tensor:
    """Two slices with different patterns, in centred order."""
    n_y, n_x = grid
    if whole_lines:
        return (torch.rand(2, 1, n_y, 1, generator=generator) < 0.5).expand(2, 1, n_y, n_x).clone()
    mask = torch.rand(2, 1, n_y, n_x, generator=generator) < 0.5
    mask[:, :, 0, 0], mask[:, :, 0, 1] = True, False
    return mask


def complex_normal(*shape: int, generator: torch.Generator, dtype=torch.complex64) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=generator)


def folded(grid, whole_lines, generator):
    """Operator, data and the k-space that they come from: two slices, three coils."""
    mask = random_mask(grid, whole_lines=whole_lines, generator=generator)
    kspace = KSpace(samples=complex_normal(2, 3, *grid, generator=generator) * mask, mask=mask, noise_std=1.0)
    return *SampledFourier.fold(kspace), kspace


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_centred_transform_is_numpys(grid, generator):
    image = complex_normal(2, 3, *grid, generator=generator)
    np.testing.assert_allclose(fft2c(image).numpy(), centred(image.numpy()), atol=2e-6)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_inverse_undoes_the_centred_transform(grid, generator):
    image = complex_normal(2, 3, *grid, generator=generator)
    torch.testing.assert_close(ifft2c(fft2c(image)), image, atol=2e-6, rtol=0)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_point_in_the_middle_has_constant_kspace(grid):
    image = torch.zeros(1, 1, *grid, dtype=torch.complex64)
    image[..., grid[0] // 2, grid[1] // 2] = 1
    expected = torch.full_like(image, (grid[0] * grid[1]) ** -0.5)
    torch.testing.assert_close(fft2c(image), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("whole_lines", [True, False], ids=["lines", "points"])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_folding_keeps_every_residual_of_the_centred_model(grid, whole_lines, generator):
    fourier, data, kspace = folded(grid, whole_lines, generator)
    assert fourier.axes == ((-2,) if whole_lines else (-2, -1))
    for _ in range(3):
        image = complex_normal(2, 3, *grid, generator=generator)
        difference = (centred(image.numpy()) - kspace.samples.numpy()) * kspace.mask.numpy()
        expected = np.linalg.norm(difference, axis=(2, 3))
        found = torch.linalg.vector_norm(fourier.forward(image) - data, dim=(2, 3))
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-6)


@pytest.mark.parametrize("whole_lines", [True, False], ids=["lines", "points"])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_adjoint_of_the_folded_data_is_the_centred_zero_filled_image(grid, whole_lines, generator):
    fourier, data, kspace = folded(grid, whole_lines, generator)
    torch.testing.assert_close(fourier.adjoint(data), ifft2c(kspace.samples), atol=3e-6, rtol=0)


def test_samples_off_the_mask_do_not_enter_the_folded_data(generator):
    mask = random_mask((5, 8), whole_lines=False, generator=generator)
    samples = complex_normal(2, 3, 5, 8, generator=generator)
    _, dirty = SampledFourier.fold(KSpace(samples=samples, mask=mask, noise_std=1.0))
    _, clean = SampledFourier.fold(KSpace(samples=samples * mask, mask=mask, noise_std=1.0))
    assert torch.equal(dirty, clean)


@pytest.mark.parametrize("whole_lines", [True, False], ids=["lines", "points"])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_sampled_fourier_has_an_exact_adjoint(grid, whole_lines, generator):
    fourier, _, _ = folded(grid, whole_lines, generator)
    u = complex_normal(2, 3, *grid, generator=generator, dtype=torch.complex128)
    v = complex_normal(2, 3, *grid, generator=generator, dtype=torch.complex128)
    forward, adjoint = fourier.forward(u), fourier.adjoint(v)
    assert forward.shape == v.shape
    assert adjoint.shape == u.shape
    left, right = torch.vdot(forward.flatten(), v.flatten()), torch.vdot(u.flatten(), adjoint.flatten())
    assert abs(left - right) < 1e-12 * abs(left)


@pytest.mark.parametrize("whole_lines", [True, False], ids=["lines", "points"])
def test_sampled_fourier_is_linear_and_has_norm_one(whole_lines, generator):
    fourier, _, _ = folded((7, 9), whole_lines, generator)
    u, v = (complex_normal(2, 3, 7, 9, generator=generator, dtype=torch.complex128) for _ in range(2))
    factor = 0.3 - 2.0j
    torch.testing.assert_close(
        fourier.forward(u + factor * v), fourier.forward(u) + factor * fourier.forward(v), atol=1e-12, rtol=0
    )
    projected = fourier.adjoint(fourier.forward(u))
    assert torch.linalg.vector_norm(projected) <= torch.linalg.vector_norm(u)
    torch.testing.assert_close(fourier.adjoint(fourier.forward(projected)), projected, atol=1e-12, rtol=0)


def test_forward_leaves_its_argument_alone(generator):
    fourier, _, _ = folded((5, 8), False, generator)
    image = complex_normal(2, 3, 5, 8, generator=generator)
    before = image.clone()
    fourier.adjoint(fourier.forward(image))
    assert torch.equal(image, before)


def test_selected_slices_keep_their_own_masks(generator):
    fourier, data, kspace = folded((5, 8), False, generator)
    assert not torch.equal(kspace.mask[0], kspace.mask[1])
    second = fourier.select(torch.tensor([False, True]))
    image = complex_normal(2, 3, 5, 8, generator=generator)
    assert torch.equal(second.forward(image[1:]), fourier.forward(image)[1:])
    assert torch.equal(second.adjoint(data[1:]), fourier.adjoint(data)[1:])
