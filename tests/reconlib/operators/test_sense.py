"""The SENSE operator: formula, adjoint, norm, gradient."""

import numpy as np
import pytest
import torch

from reconlib.kspace import KSpace
from reconlib.operators.fourier import SampledFourier
from reconlib.operators.protocol import ForwardOperator
from reconlib.operators.sense import SenseInImage

GRIDS = [(6, 8), (5, 8), (7, 9)]


def sense(grid, generator) -> SenseInImage:
    """Two slices, four coils, random maps and a random mask of points."""
    mask = torch.rand(2, 1, *grid, generator=generator) < 0.4
    mask[:, :, 0, 0], mask[:, :, 0, 1] = True, False
    kspace = KSpace(samples=torch.zeros(2, 4, *grid, dtype=torch.complex64), mask=mask, noise_std=1.0)
    coils = torch.randn(2, 4, *grid, dtype=torch.complex128, generator=generator)
    return SenseInImage(coils, SampledFourier.fold(kspace)[0])


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_sense_has_an_exact_adjoint(grid, generator):
    operator = sense(grid, generator)
    assert isinstance(operator, ForwardOperator)
    u = torch.randn(2, 1, *grid, dtype=torch.complex128, generator=generator)
    v = torch.randn(2, 4, *grid, dtype=torch.complex128, generator=generator)
    forward, adjoint = operator.forward(u), operator.adjoint(v)
    assert forward.shape == v.shape
    assert adjoint.shape == u.shape
    left, right = torch.vdot(forward.flatten(), v.flatten()), torch.vdot(u.flatten(), adjoint.flatten())
    assert abs(left - right) < 1e-12 * abs(left)


def test_sense_multiplies_maps_transforms_and_samples(generator):
    operator = sense((5, 8), generator)
    image = torch.randn(2, 1, 5, 8, dtype=torch.complex128, generator=generator)
    expected = np.fft.fft2(operator.coils.numpy() * image.numpy(), norm="ortho")
    expected *= operator.fourier.mask.numpy()
    np.testing.assert_allclose(operator.forward(image).numpy(), expected, atol=1e-12)


def test_sense_is_linear(generator):
    operator = sense((7, 9), generator)
    u, v = (torch.randn(2, 1, 7, 9, dtype=torch.complex128, generator=generator) for _ in range(2))
    together = operator.forward(u + (1.5 - 0.5j) * v)
    torch.testing.assert_close(together, operator.forward(u) + (1.5 - 0.5j) * operator.forward(v))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_norm_stays_below_the_stated_bound(grid, generator):
    operator = sense(grid, generator)
    bound = operator.coils.abs().square().sum(dim=1).amax(dim=(1, 2))
    x = torch.randn(2, 1, *grid, dtype=torch.complex128, generator=generator)
    for _ in range(60):
        x = x / torch.linalg.vector_norm(x, dim=(1, 2, 3), keepdim=True)
        x = operator.adjoint(operator.forward(x))
    largest = torch.linalg.vector_norm(x, dim=(1, 2, 3))
    assert bool((largest <= bound).all())
    assert bool((largest > 0.2 * bound).all())


def test_autograd_through_sense_gives_the_normal_equations(generator):
    operator = sense((5, 8), generator)
    data = torch.randn(2, 4, 5, 8, dtype=torch.complex128, generator=generator)
    image = torch.randn(2, 1, 5, 8, dtype=torch.complex128, generator=generator, requires_grad=True)
    residual = operator.forward(image) - data
    (gradient,) = torch.autograd.grad(residual.abs().square().sum() / 2, image)
    torch.testing.assert_close(gradient, operator.adjoint(residual.detach()))
