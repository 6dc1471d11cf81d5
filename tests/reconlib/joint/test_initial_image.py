"""The joint estimate starts from image and maps of another one, as frames of real-time series do."""

import math
from pathlib import Path

import pytest
import torch

from reconlib.kspace import NonuniformKSpace
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import Reconstruction, ReconstructionSettings, reconstruct
from reconlib.simulation.nonuniform_scan import simulate_head_nonuniform
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.simulation.scan_settings import ScanSettings
from reconlib.trajectories.coordinates import transform_points
from reconlib.trajectories.density import density_weights

SHIPPED = Path(__file__).parents[3] / "config" / "priors"
MATRIX = (48, 48)
N_SPOKES = 17


@pytest.fixture(scope="module")
def tv() -> Prior:
    return load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))


@pytest.fixture(scope="module")
def scan():
    """34 golden-angle spokes of a head: two frames of 17."""
    return simulate_head_nonuniform(
        ScanSettings(matrix=MATRIX, n_coils=4, seed=3, noise=0.005),
        NonuniformSettings(order="golden", n_readouts=2 * N_SPOKES),
    )


def frame(scan, number: int) -> NonuniformKSpace:
    part = slice(number * N_SPOKES, (number + 1) * N_SPOKES)
    points = scan.points[part]
    return NonuniformKSpace(
        samples=scan.samples[:, :, part].flatten(2),
        trajectory=transform_points(points, MATRIX),
        weights=density_weights(points, MATRIX)[None].float(),
        shape=MATRIX,
        noise_std=scan.noise_std,
    )


def psnr(found: Reconstruction, truth: torch.Tensor) -> float:
    image, truth = found.image.abs(), truth.abs()
    fitted = image * ((image * truth).sum() / image.square().sum())
    return 20 * math.log10(float(truth.max()) / math.sqrt(float((fitted - truth).square().mean())))


def test_a_frame_that_starts_from_the_one_before_needs_fewer_iterations(scan, tv):
    """5 iterations from image and maps of the frame before beat 15 without, and 5 from the maps alone."""

    def solved(number: int, iterations: int, **start: torch.Tensor) -> Reconstruction:
        settings = ReconstructionSettings(iterations=iterations)
        return reconstruct(frame(scan, number), prior=tv, settings=settings, **start)

    before = solved(0, 20)
    warm = solved(1, 5, initial_coils=before.coils, initial_image=before.image)
    maps_only = solved(1, 5, initial_coils=before.coils)
    cold = solved(1, 15)

    assert psnr(warm, scan.truth) > psnr(cold, scan.truth)
    assert psnr(warm, scan.truth) > psnr(maps_only, scan.truth) + 0.5


def test_without_iterations_the_image_is_the_one_given(scan, tv):
    one = frame(scan, 0)
    before = reconstruct(one, prior=tv, settings=ReconstructionSettings(iterations=5))

    same = reconstruct(
        one,
        prior=tv,
        settings=ReconstructionSettings(iterations=0),
        initial_coils=before.coils,
        initial_image=before.image,
    )

    torch.testing.assert_close(same.image, before.image, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(same.coils, before.coils, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("image", "with_maps", "words"),
    [
        (torch.ones(1, 1, 48, 48), False, "initial_image is given without initial_coils"),
        (torch.ones(1, 1, 48, 47), True, r"initial_image has shape \(1, 1, 48, 47\); these samples need"),
        (torch.full((1, 1, 48, 48), torch.nan), True, "initial_image holds infinities or NaNs"),
    ],
)
def test_an_image_that_cannot_be_a_start_is_refused(scan, tv, image, with_maps, words):
    maps = torch.ones(1, 4, 48, 48, dtype=torch.complex64) if with_maps else None
    with pytest.raises(ValueError, match=words):
        reconstruct(frame(scan, 0), prior=tv, initial_coils=maps, initial_image=image.to(torch.complex64))
