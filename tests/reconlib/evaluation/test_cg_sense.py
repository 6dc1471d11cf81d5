"""CG-SENSE against least squares by numpy, and its best number of iterations."""

from itertools import islice

import numpy as np
import pytest
import torch

from reconlib.evaluation.cg_sense import (
    best_of_cg_sense,
    cg_sense,
    cg_sense_image,
    smooth_centre,
)
from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.evaluation.multi_coil import multi_coil_scan
from reconlib.evaluation.off_grid import off_grid_cases
from reconlib.evaluation.study import Case, FullScan
from reconlib.kspace import KSpace, NonuniformKSpace

SHAPE = (7, 6)


@pytest.fixture
def problem(generator):
    """Random samples at random points of a small grid, and maps of root-sum-of-squares 1."""
    n_points = 40
    samples = torch.randn(1, 3, n_points, dtype=torch.complex64, generator=generator)
    points = torch.rand(1, n_points, 2, generator=generator, dtype=torch.float64) - 0.5
    weights = 0.5 + torch.rand(1, n_points, generator=generator)
    maps = torch.randn(1, 3, *SHAPE, dtype=torch.complex64, generator=generator)
    kspace = NonuniformKSpace(samples=samples, trajectory=points, weights=weights, shape=SHAPE, noise_std=0.1)
    return kspace, maps


@pytest.fixture(scope="module")
def case():
    y, x = (np.arange(n) - n // 2 for n in (48, 40))
    head = ((y[:, None] / 18) ** 2 + (x / 15) ** 2 < 1) * (1 + 0.5 * np.cos(y[:, None] / 3) * np.cos(x / 2))
    image = torch.from_numpy(head[None, None].astype(np.float32))
    scan = multi_coil_scan("a", image, n_coils=4, noise=0.03)
    (one,) = off_grid_cases(scan, ["true-golden-34"])
    return one


def test_it_converges_to_weighted_least_squares(problem):
    kspace, maps = problem
    (image, used) = list(islice(cg_sense(kspace, maps), 60))[-1]
    e = maps[0].numpy().astype(np.complex128)
    e /= np.sqrt((np.abs(e) ** 2).sum(axis=0))
    assert np.allclose(used[0].numpy(), e, atol=1e-6)
    y, x = (np.arange(n) - n // 2 for n in SHAPE)
    ky, kx = kspace.trajectory[0].numpy().T
    phase = np.exp(-2j * np.pi * (ky[:, None, None] * y[:, None] + kx[:, None, None] * x))
    matrix = phase.reshape(len(ky), -1) / np.sqrt(np.prod(SHAPE))
    root = np.sqrt(kspace.weights[0].numpy())[:, None]
    whole = np.concatenate([root * matrix * one.reshape(-1) for one in e])
    right = np.concatenate([root[:, 0] * z for z in kspace.samples[0].numpy()])
    expected = np.linalg.lstsq(whole, right, rcond=None)[0].reshape(SHAPE)
    found = image[0, 0].numpy()
    assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)


def test_complete_samples_on_the_grid_need_one_iteration(generator):
    samples = torch.randn(1, 2, 9, 8, dtype=torch.complex64, generator=generator)
    maps = torch.randn(1, 2, 9, 8, dtype=torch.complex64, generator=generator)
    kspace = KSpace(samples=samples, mask=torch.ones(1, 1, 9, 8, dtype=torch.bool), noise_std=0.1)
    image, _ = next(cg_sense(kspace, maps))
    e = maps[0].numpy() / np.sqrt((np.abs(maps[0].numpy()) ** 2).sum(axis=0))
    images = np.fft.fftshift(
        np.fft.ifft2(np.fft.ifftshift(samples[0].numpy(), axes=(-2, -1)), norm="ortho"), axes=(-2, -1)
    )
    assert np.allclose(image[0, 0].numpy(), (e.conj() * images).sum(axis=0), atol=1e-5)


def test_maps_are_made_of_the_centre_of_k_space():
    k = torch.zeros(1, 1, 48, 40, dtype=torch.complex64)
    k[0, 0, 24, 20], k[0, 0, 24, 26], k[0, 0, 37, 20] = 1, 1, 1  # 0, 6 and 13 cycles from the centre
    images = torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(k, dim=(-2, -1))), dim=(-2, -1))
    low = smooth_centre(images)
    back = torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(low, dim=(-2, -1))), dim=(-2, -1)).abs()
    # a Hann window of 12 cycles
    assert [float(back[0, 0, 24, 20]), float(back[0, 0, 24, 26])] == pytest.approx([1, 0.5], abs=1e-5)
    assert float(back[0, 0, 37, 20]) == pytest.approx(0, abs=1e-5)


def test_the_oracle_stops_at_the_best_number_of_iterations(case):
    found = best_of_cg_sense(case)
    qualities = [
        float(psnr_after_scale_fit(image.abs(), case.reference))
        for image, _ in islice(cg_sense(case.kspace), 20)
    ]
    best = int(np.argmax(qualities))
    assert 0 < best < 19  # it gets better first, and then noise comes up
    assert found.facts == {"iterations": best + 1}
    assert float(psnr_after_scale_fit(found.image, case.reference)) == qualities[best]
    assert torch.equal(found.image, cg_sense_image(case.kspace, best + 1))
    assert found.coils is not None
    assert found.coils.shape == case.scan.samples.shape


def test_given_maps_are_used(case):
    scan = case.scan
    given = FullScan(
        name="given",
        samples=scan.samples,
        noise_std=scan.noise_std,
        noise_source="made up",
        reference=scan.reference,
        coils=torch.ones_like(scan.samples),
    )
    found = best_of_cg_sense(Case(scan=given, pattern="p", at_points=case.at_points))
    assert found.coils is not None
    assert torch.allclose(found.coils, torch.full_like(scan.samples, 0.5))  # four alike


def test_no_signal_gives_no_iteration(problem):
    kspace, _ = problem
    empty = NonuniformKSpace(
        samples=torch.zeros_like(kspace.samples),
        trajectory=kspace.trajectory,
        weights=kspace.weights,
        shape=SHAPE,
        noise_std=0.1,
    )
    assert list(cg_sense(empty)) == []
    assert float(cg_sense_image(empty, 5).abs().max()) == 0
