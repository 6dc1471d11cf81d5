"""Trust in samples that were measured repeatedly and contradict each other."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from reconlib.joint import measured
from reconlib.joint.result import JointProgress
from reconlib.joint.sample_trust import RING, is_repeated, sample_trust
from reconlib.joint.solving import START_ITERATIONS
from reconlib.kspace import NonuniformKSpace
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.posterior.settings import PosteriorSettings
from reconlib.posterior.target import posterior_target
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct
from reconlib.simulation.nonuniform_scan import simulate_head_nonuniform
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.simulation.scan_settings import ScanSettings
from reconlib.trajectories.coordinates import transform_points
from reconlib.trajectories.density import density_weights

SHIPPED = Path(__file__).parents[3] / "config" / "priors"
MATRIX = (48, 48)
CENTRE = 3.0
"""Cycles per field of view within which the faulty scan contradicts itself."""


@pytest.fixture(scope="module")
def tv() -> Prior:
    return load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))


@pytest.fixture(scope="module")
def scan():
    return simulate_head_nonuniform(
        ScanSettings(matrix=MATRIX, n_coils=4, seed=3, noise=0.005),
        NonuniformSettings(shape="spiral", n_full=16, n_readouts=8),
    )


@pytest.fixture(scope="module")
def clean(scan) -> NonuniformKSpace:
    return NonuniformKSpace(
        samples=scan.samples.flatten(2),
        trajectory=transform_points(scan.points, MATRIX),
        weights=density_weights(scan.points, MATRIX)[None].float(),
        shape=MATRIX,
        noise_std=scan.noise_std,
    )


@pytest.fixture(scope="module")
def faulty(scan, clean) -> NonuniformKSpace:
    """Samples near the centre are wrong by a factor that differs between the interleaves, 0.7 to 1.3."""
    factors = torch.linspace(0.7, 1.3, scan.samples.shape[2])[:, None]
    near = torch.from_numpy(np.linalg.norm(scan.points, axis=-1) < CENTRE)
    return replace(clean, samples=(scan.samples * torch.where(near, factors, 1.0)).flatten(2))


def coil_images(scan) -> torch.Tensor:
    return (scan.coils * scan.truth).to(torch.complex64)


def radii(scan) -> np.ndarray:
    return np.linalg.norm(scan.points, axis=-1).reshape(-1)


def trust_of(kspace: NonuniformKSpace, images: torch.Tensor) -> torch.Tensor | None:
    return sample_trust(kspace, NonuniformFourier.plan(kspace.trajectory, kspace.shape), images)


def test_samples_that_agree_are_trusted_fully(clean):
    fourier = NonuniformFourier.plan(clean.trajectory, clean.shape)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(1, 4, *MATRIX, dtype=torch.complex64, generator=generator)
    samples = fourier.forward(images)
    noise = torch.randn(samples.shape, dtype=torch.complex64, generator=generator) * math.sqrt(2) * 0.3
    assert trust_of(replace(clean, samples=samples + noise, noise_std=0.3), images) is None


def test_trust_is_the_noise_over_the_misfit_of_samples_at_the_same_distance(scan, faulty):
    images = coil_images(scan)
    fourier = NonuniformFourier.plan(faulty.trajectory, faulty.shape)
    residual = (fourier.forward(images) - faulty.samples)[0].numpy()
    misfit = (np.abs(residual) ** 2).mean(axis=0) / (2 * faulty.noise_std**2)
    order = np.argsort(radii(scan), kind="stable")
    half, expected = RING // 2, np.empty(len(order))
    for place, sample in enumerate(order):
        ring = order[max(0, place - half) : place + half + 1]
        lower = 0.1 * float(faulty.weights[0, sample])
        expected[sample] = min(1.0, max(2 / misfit[ring].mean(), lower))

    found = trust_of(faulty, images)

    assert found is not None
    # the samples of the interleaves at one distance may come in any order
    assert np.abs(np.log(found[0].numpy() / expected)).max() < 0.35
    assert np.abs(np.log(found[0].numpy() / expected)).mean() < 0.01
    assert found[0].numpy()[radii(scan) < CENTRE].max() < 0.5
    beyond = (radii(scan) > 3 * CENTRE) & (radii(scan) < 0.8 * MATRIX[0] / 2)
    assert found[0].numpy()[beyond].min() == 1


def test_only_repeated_samples_can_contradict_each_other(clean):
    assert is_repeated(clean)
    assert not is_repeated(replace(clean, weights=torch.ones_like(clean.weights)))


def test_the_data_term_weighs_squares_by_the_trust(clean):
    """Against the sums themselves, in double precision."""
    generator = torch.Generator().manual_seed(2)
    both = clean.samples.repeat(2, 1, 1)
    trust = torch.rand(2, both.shape[-1], generator=generator)
    images = torch.randn(2, 4, *MATRIX, dtype=torch.complex64, generator=generator)
    fourier = NonuniformFourier.plan(clean.trajectory, clean.shape)
    exact = fourier.exactly(1e-10)
    residual = exact.forward(images.to(torch.complex128)) - both

    gradient, value = LeastSquares.of(fourier, both, trust).gradient_and_value(images)

    expected = exact.adjoint(residual * trust[:, None])
    assert float((gradient - expected).norm()) < 1e-4 * float(expected.norm())
    squares = (residual.abs().square() * trust[:, None]).sum(dim=(1, 2)) / 2
    torch.testing.assert_close(value, squares.double(), rtol=1e-4, atol=0)


def psnr(image: torch.Tensor, truth: torch.Tensor) -> float:
    image, truth = image.abs(), truth.abs()
    fitted = image * ((image * truth).sum() / image.square().sum())
    return 20 * math.log10(float(truth.max()) / math.sqrt(float((fitted - truth).square().mean())))


def test_a_scan_that_contradicts_itself_gives_a_better_image(scan, faulty, tv, monkeypatch):
    settings = ReconstructionSettings(iterations=20)
    seen: list[JointProgress] = []
    found = reconstruct(faulty, prior=tv, settings=settings, on_iteration=seen.append)
    total = START_ITERATIONS + 20
    assert [(one.iteration, one.iterations) for one in seen] == [(k + 1, total) for k in range(total)]
    monkeypatch.setattr(measured, "is_repeated", lambda _kspace: False)
    plain = reconstruct(faulty, prior=tv, settings=settings)
    assert found.trust is not None
    assert plain.trust is None
    assert psnr(found.image, scan.truth) > psnr(plain.image, scan.truth) + 1


def test_where_samples_agree_the_estimate_goes_on_from_the_first_steps(clean, monkeypatch):
    """So it is the estimate of a scan that nobody asked whether its samples agree, after as many steps."""
    learned = load_prior(find_prior("brain-local", [SHIPPED]), torch.device("cpu"))
    settings = ReconstructionSettings(iterations=2)
    seen: list[JointProgress] = []
    found = reconstruct(clean, prior=learned, settings=settings, on_iteration=seen.append)
    assert found.trust is None
    assert [one.iteration for one in seen] == list(range(1, START_ITERATIONS + 3))
    assert seen[-1].iterations == START_ITERATIONS + 2
    monkeypatch.setattr(measured, "is_repeated", lambda _kspace: False)
    plain = reconstruct(clean, prior=learned, settings=settings)
    assert torch.equal(found.image, plain.image)
    assert torch.equal(found.coils, plain.coils)


def test_sampling_trusts_samples_as_the_reconstruction_did(faulty, tv):
    settings = ReconstructionSettings(iterations=3)
    found = reconstruct(faulty, prior=tv, settings=settings)
    rows = torch.tensor([0])

    def energy(trust: torch.Tensor | None) -> torch.Tensor:
        target = posterior_target(
            faulty, replace(found, trust=trust), tv, settings, PosteriorSettings(chains=1), rows
        )[0]
        return target.half_data_norm

    none, half = energy(None), energy(torch.full((1, faulty.samples.shape[-1]), 0.5))
    torch.testing.assert_close(half, none / 2)
