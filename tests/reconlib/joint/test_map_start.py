"""The start from rough coil maps: SENSE, and the smooth phase moved to the maps."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_problem import single_precision, smooth_maps

from reconlib.joint.map_start import has_own_calibration, start_from_maps
from reconlib.kspace import KSpace
from reconlib.operators.fourier import SampledFourier
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct

GRID = (36, 30)
SHIPPED = Path(__file__).parents[3] / "config" / "priors"


@pytest.fixture(scope="module")
def tv() -> Prior:
    return load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))


def head(grid: tuple[int, int] = GRID) -> np.ndarray:
    """Blocks on an ellipse."""
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in grid), indexing="ij")
    image = 0.6 * ((y / 0.85) ** 2 + (x / 0.7) ** 2 < 1)
    image[10:16, 8:20] += 0.4 * (image[10:16, 8:20] > 0)
    image[20:27, 17:21] -= 0.5 * (image[20:27, 17:21] > 0)
    return image


def phase(turn: float, grid: tuple[int, int] = GRID) -> np.ndarray:
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in grid), indexing="ij")
    return np.exp(1j * turn * (0.4 + 0.8 * x - 0.5 * y))


def kspace_of(coil_images: np.ndarray, mask: np.ndarray, noise: float = 0.0) -> KSpace:
    axes = (-2, -1)
    samples = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(coil_images, axes), norm="ortho"), axes)
    rng = np.random.default_rng(4)
    samples = samples + noise * (rng.normal(size=samples.shape) + 1j * rng.normal(size=samples.shape))
    return single_precision(
        KSpace(
            samples=torch.from_numpy(samples * mask)[None],
            mask=torch.from_numpy(np.broadcast_to(mask, GRID).copy())[None, None],
            noise_std=max(noise, 1e-4),
        )
    )


def every(n: int) -> np.ndarray:
    """Every n-th line, no calibration lines."""
    mask: np.ndarray = (np.arange(GRID[0]) % n == 0)[:, None]
    return mask


def scan(n: int, *, noise: float = 0.0) -> tuple[KSpace, np.ndarray, np.ndarray]:
    """Return k-space, the true magnitude and the true maps, as a calibration with another phase has them."""
    maps, image = smooth_maps(6, GRID, 0.2), head()
    return kspace_of(maps * image * phase(2.0), every(n), noise), image, maps


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array)).to(torch.complex64)


def start(kspace: KSpace, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    fourier, samples = SampledFourier.fold(kspace)
    return start_from_maps(fourier, samples, fourier.adjoint(samples), maps)


def test_the_start_is_the_sense_image_and_the_maps_carry_its_smooth_phase():
    kspace, truth, maps = scan(3)

    image, coils = start(kspace, 7 * tensor(maps)[None])

    inside = truth > 0
    found = image[0, 0].numpy()
    assert np.abs(np.abs(found) - truth)[inside].max() < 0.12
    assert np.abs(np.angle(found[inside])).max() < 0.35  # of 2 x 1.7 rad that the scan has
    expected = maps * phase(2.0)
    turned = np.abs(np.angle((coils[0].numpy() * expected.conj()).sum(axis=0)))
    assert turned[inside].max() < 0.35
    magnitude = torch.linalg.vector_norm(coils, dim=1)
    torch.testing.assert_close(magnitude, torch.ones_like(magnitude), atol=1e-4, rtol=0)


def test_with_all_lines_the_start_is_the_object_itself():
    """Fully sampled, the normal equations of normalised maps are the identity: one step is exact."""
    kspace, truth, maps = scan(1)

    image, coils = start(kspace, tensor(maps)[None])

    np.testing.assert_allclose(image.abs()[0, 0].numpy(), truth, atol=2e-3)
    np.testing.assert_allclose((coils * image)[0].numpy(), maps * truth * phase(2.0), atol=2e-3)


@pytest.mark.parametrize("n_coils", [1, 4])
def test_maps_that_do_not_tell_folded_pixels_apart_give_the_folded_image(n_coils):
    """The normal equations are singular, and are solved after one step; more steps must not blow it up."""
    maps = np.full((n_coils, *GRID), 1 / np.sqrt(n_coils)) * phase(1.0)
    kspace = kspace_of(maps * head(), every(2), 0.0)

    image, _ = start(kspace, tensor(maps)[None])

    folded = (head() * phase(1.0) + np.roll(head() * phase(1.0), GRID[0] // 2, axis=0)) / 2
    np.testing.assert_allclose(image.abs()[0, 0].numpy(), np.abs(folded), atol=2e-3)


def test_where_nothing_is_known_the_start_is_the_ordinary_one():
    kspace, _, maps = scan(2)
    both = KSpace(
        samples=kspace.samples.repeat(2, 1, 1, 1), mask=kspace.mask.repeat(2, 1, 1, 1), noise_std=1.0
    )
    known = torch.zeros(2, 6, *GRID, dtype=torch.complex64)
    known[0, :, :, :20] = tensor(maps)[:, :, :20]
    fourier, samples = SampledFourier.fold(both)
    coil_images = fourier.adjoint(samples)
    magnitude = torch.linalg.vector_norm(coil_images, dim=1, keepdim=True)

    image, coils = start_from_maps(fourier, samples, coil_images, known)

    torch.testing.assert_close(image[1], magnitude[1].to(torch.complex64))
    torch.testing.assert_close(coils[1], coil_images[1] / magnitude[1])
    part = (coil_images / magnitude)[0, :, :, 20:]
    cosine = (coils[0, :, :, 20:] * part.conj()).sum(dim=0).abs()
    torch.testing.assert_close(cosine, torch.ones_like(cosine), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("n", "expected"), [(0, True), (1, False)])
def test_a_calibration_of_its_own_is_the_middle_of_kspace(n, expected):
    mask = torch.zeros(2, 1, 21, 16, dtype=torch.bool)
    mask[:, :, 6 + n : 14 + n, 4:12] = True
    assert has_own_calibration(mask) is expected
    assert has_own_calibration(torch.ones(1, 1, 5, 3, dtype=torch.bool))


def error(image: torch.Tensor, truth: np.ndarray) -> float:
    return float(np.linalg.norm(image.abs()[0, 0].numpy() - truth) / np.linalg.norm(truth))


def test_a_third_of_the_lines_without_calibration_give_the_object_with_rough_maps_only(tv):
    """Ten iterations; the maps have the phase of another contrast."""
    kspace, truth, maps = scan(3, noise=0.004)
    settings = ReconstructionSettings(iterations=10)

    alone = reconstruct(kspace, prior=tv, settings=settings)
    helped = reconstruct(kspace, prior=tv, settings=settings, initial_coils=tensor(maps)[None])

    assert error(alone.image, truth) > 0.3
    assert error(helped.image, truth) < 0.08
    longer = reconstruct(
        kspace, prior=tv, settings=ReconstructionSettings(iterations=60), initial_coils=tensor(maps)[None]
    )
    assert error(longer.image, truth) < 0.08  # nothing in the data could improve the maps, so they stay


def test_with_own_calibration_lines_the_maps_are_a_start_that_the_estimate_leaves(tv):
    kspace, truth, maps = scan(1, noise=0.004)
    wrong = tensor(
        maps * np.linspace(0.5, 2, GRID[1])[None, None] * np.array([1, 2, 1, 2, 1, 2])[:, None, None]
    )
    result = reconstruct(
        kspace, prior=tv, settings=ReconstructionSettings(iterations=30), initial_coils=wrong[None]
    )
    inside = truth > 0
    cosine = np.abs((result.coils[0].numpy() * maps.conj()).sum(axis=0))[inside]
    before = np.abs((wrong.numpy() * maps.conj()).sum(axis=0) / np.linalg.norm(wrong.numpy(), axis=0))[inside]
    assert cosine.mean() > 0.5 + before.mean() / 2
    assert error(result.image, truth) < 0.05


def test_maps_change_no_measured_brightness(tv):
    """Ten times the maps: the same image, since maps are a direction in the space of coils."""
    kspace, _, maps = scan(2)
    settings = ReconstructionSettings(iterations=5)
    once, tenfold = (
        reconstruct(kspace, prior=tv, settings=settings, initial_coils=factor * tensor(maps)[None])
        for factor in (1.0, 10.0)
    )
    torch.testing.assert_close(tenfold.image, once.image, rtol=1e-3, atol=1e-4)


def test_a_given_peak_scales_all_slices_alike(tv):
    kspace, _, _ = scan(1)
    both = KSpace(
        samples=torch.cat([kspace.samples, kspace.samples / 5]),
        mask=kspace.mask.repeat(2, 1, 1, 1),
        noise_std=0.01,
    )
    result = reconstruct(both, prior=tv, settings=ReconstructionSettings(iterations=3), peak=4.0)
    assert result.scale == (0.25, 0.25)
    assert result.noise_level == pytest.approx((0.0025, 0.0025))
    assert result.prior_weight[0] == result.prior_weight[1]
    assert float(result.image.abs()[1].max()) == pytest.approx(
        float(result.image.abs()[0].max()) / 5, rel=0.1
    )


def test_maps_that_cannot_be_are_refused(tv):
    kspace, _, maps = scan(2)
    good = tensor(maps)[None]
    with pytest.raises(ValueError, match="coils and initial_coils are both given"):
        reconstruct(kspace, prior=tv, coils=good, initial_coils=good)
    with pytest.raises(ValueError, match="the given coil maps have shape"):
        reconstruct(kspace, prior=tv, initial_coils=good[:, :5])
    with pytest.raises(ValueError, match="infinities or NaNs"):
        reconstruct(kspace, prior=tv, initial_coils=good * torch.nan)
    with pytest.raises(ValueError, match=r"peak is 0\.0; it must be positive"):
        reconstruct(kspace, prior=tv, peak=0.0)
