"""A scan of an object whose phase is not smooth: a free image finds it, the others do not."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from reconlib.kspace import KSpace
from reconlib.operators.fourier import fft2c
from reconlib.posterior.run import sample_posterior
from reconlib.posterior.settings import PosteriorSettings
from reconlib.posterior.target import posterior_target
from reconlib.priors.library import find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct
from reconlib.simulation.coils import loop_coils

sys.path.insert(0, str(Path(__file__).parent / "posterior"))
from gaussian_scans import Quadratic, prior_of, reconstruction_of, scan

SHIPPED = Path(__file__).parents[2] / "config" / "priors"
MATRIX = (48, 44)


@pytest.fixture(scope="module")
def coil_images():
    """A disc with a bright spot; its phase turns once in six pixels, to either side of the middle."""
    y, x = np.mgrid[: MATRIX[0], : MATRIX[1]] - np.array([MATRIX[0] // 2, MATRIX[1] // 2])[:, None, None]
    magnitude = 0.7 * (y**2 / 19**2 + x**2 / 17**2 < 1) + 0.3 * ((y - 5) ** 2 + (x + 4) ** 2 < 30)
    maps = loop_coils(
        MATRIX,
        6,
        generator=torch.Generator().manual_seed(3),
        fov_mm=(192.0, 176.0),
        slice_positions_mm=(0.0,),
    )
    tent = np.abs(x)  # no shift of k-space takes it out
    return maps * torch.from_numpy(magnitude * np.exp(2j * np.pi * tent / 6))


@pytest.fixture(scope="module")
def kspace(coil_images):
    """Every second line and twelve in the centre, noise 2 % of the brightest."""
    full = fft2c(coil_images.to(torch.complex128))
    noise = 0.02 * float(torch.linalg.vector_norm(coil_images, dim=1).max())
    generator = torch.Generator().manual_seed(1)
    full = full + noise * torch.complex(
        *torch.randn(2, *full.shape, generator=generator, dtype=torch.float64)
    )
    mask = torch.zeros(1, 1, *MATRIX, dtype=torch.bool)
    mask[:, :, ::2] = True
    mask[:, :, 18:30] = True
    return KSpace(samples=(full * mask).to(torch.complex64), mask=mask, noise_std=noise)


@pytest.fixture(scope="module")
def tv():
    return load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))


def test_a_free_image_finds_a_steep_phase_where_the_others_fail(kspace, coil_images, tv):
    errors = {}
    for phase in ("real", "soft", "free"):
        result = reconstruct(
            kspace, prior=tv, settings=ReconstructionSettings(image_phase=phase, iterations=30)
        )
        assert result.image_phase == phase
        difference = torch.linalg.vector_norm(result.coils * result.image - coil_images)
        errors[phase] = float(difference / torch.linalg.vector_norm(coil_images))
    assert errors["free"] < 0.13
    assert min(errors["real"], errors["soft"]) > 0.2


def test_a_free_start_changes_neither_given_maps_nor_slices_of_zeros(kspace, tv):
    settings = ReconstructionSettings(image_phase="free", iterations=2)
    given = torch.polar(torch.ones(1, 6, *MATRIX), torch.rand(1, 6, *MATRIX))
    result = reconstruct(kspace, prior=tv, settings=settings, coils=given)
    torch.testing.assert_close(result.coils, given / 6**0.5)
    nothing = KSpace(samples=torch.zeros_like(kspace.samples), mask=kspace.mask, noise_std=1.0)
    assert not reconstruct(nothing, prior=tv, settings=settings).image.any()


def test_the_posterior_of_a_free_image_is_the_gaussian_of_its_model(generator):
    """R = |x|^2 / 2 on both parts, fully sampled: about numpy's combined image over 1 + lambda."""
    weight, sigma = 0.5, 0.05
    kspace, coils, image = scan(generator, n_coils=3, grid=(7, 9), noise=sigma, keep=2.0)
    axes = (-2, -1)
    coil_images = np.fft.fftshift(
        np.fft.ifft2(np.fft.ifftshift(kspace.samples.numpy(), axes), norm="ortho"), axes
    )
    mean = torch.from_numpy((coils.numpy().conj() * coil_images).sum(axis=1, keepdims=True) / (1 + weight))
    reconstruction = reconstruction_of(kspace, coils, image, weight=weight, phase="free")
    target, _, _ = posterior_target(
        kspace,
        reconstruction,
        prior_of(Quadratic()),
        ReconstructionSettings(),
        PosteriorSettings(chains=2),
        torch.arange(1),
    )
    away = target.noise(generator)
    assert bool(away.imag.any())
    assert not target.reflecting
    found = target.evaluate(mean.to(torch.complex64) + away)
    torch.testing.assert_close(found.gradient, away * (1 + weight) / sigma**2, rtol=1e-4, atol=1e-2)
    run = sample_posterior(
        kspace,
        reconstruction,
        prior=prior_of(Quadratic()),
        settings=PosteriorSettings(chains=2, warmup=2, draws=20),
    )
    assert bool((run.std > 0).all())
