"""Where the phase of the coil images lies at the start of a free image."""

import math

import numpy as np
import torch

from reconlib.joint.phase_start import phase_to_image


def test_coil_images_and_magnitudes_stay(generator):
    image = torch.complex(*torch.randn(2, 2, 1, 7, 6, generator=generator))
    coils = torch.complex(*torch.randn(2, 2, 3, 7, 6, generator=generator))
    moved, maps = phase_to_image(image, coils)
    torch.testing.assert_close(maps * moved, coils * image)
    torch.testing.assert_close(moved.abs(), image.abs())


def test_the_image_has_the_phase_that_the_coils_share(generator):
    """Maps of constant phase each: what is left of the phase is the image's, up to a constant."""
    phase = 40 * torch.rand(1, 1, 9, 8, generator=generator)
    weights = torch.tensor([1.0, 0.5j, -0.7])[None, :, None, None]
    profile = 1 + torch.rand(1, 3, 9, 8, generator=generator)
    magnitude = 1 + torch.rand(1, 1, 9, 8, generator=generator)
    coils = weights * profile * torch.polar(torch.ones_like(phase), phase)
    moved, maps = phase_to_image(magnitude.to(torch.complex64), coils)
    difference = (moved * torch.polar(torch.ones_like(phase), -phase)).angle()
    np.testing.assert_allclose(difference.numpy(), difference[0, 0, 0, 0].item(), atol=1e-5)
    turns = maps / weights
    np.testing.assert_allclose(turns.angle().numpy(), turns.angle()[0, 0, 0, 0].item(), atol=1e-5)


def test_the_virtual_coil_is_numpys_dominant_singular_vector(generator):
    image = torch.complex(*torch.randn(2, 1, 1, 7, 6, generator=generator))
    coils = torch.complex(*torch.randn(2, 1, 3, 7, 6, generator=generator))
    moved, _ = phase_to_image(image, coils)
    flat = (coils * image)[0].reshape(3, -1).numpy().astype(np.complex128)
    virtual = np.linalg.svd(flat)[0][:, 0].conj() @ flat
    relative = moved[0, 0].numpy().ravel() / virtual
    np.testing.assert_allclose(np.angle(relative / relative[0]), 0, atol=1e-4)


def test_zeros_and_numbers_that_are_not_finite_pass(generator):
    image = torch.ones(3, 1, 5, 4, dtype=torch.complex64)
    coils = torch.complex(*torch.randn(2, 3, 2, 5, 4, generator=generator))
    coils[0] = 0
    coils[1, 0, 2, 2] = math.nan
    moved, maps = phase_to_image(image, coils)
    assert not maps[0].any()
    torch.testing.assert_close(moved[0], image[0])
    torch.testing.assert_close(maps[1], coils[1], equal_nan=True)
    alone, _ = phase_to_image(image[2:], coils[2:])
    torch.testing.assert_close(moved[2:], alone)
