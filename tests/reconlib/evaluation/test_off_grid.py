"""Radial and spiral samples of scans that are known on the grid: closed forms, noise, no inverse crime."""

import math

import numpy as np
import pytest
import torch

from reconlib.evaluation.multi_coil import multi_coil_scan
from reconlib.evaluation.off_grid import OFF_GRID, finer, measured_along, off_grid_cases
from reconlib.evaluation.single_coil import single_coil_scan
from reconlib.evaluation.study import Case, FullScan, MethodError, joint, zero_filling
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior, energy_of
from reconlib.reconstruction import ReconstructionSettings, reconstruct
from reconlib.simulation.nonuniform_settings import NonuniformSettings

MATRIX = (31, 24)
SPIRAL = NonuniformSettings(shape="spiral", n_readouts=3, n_full=6)
DENSE = NonuniformSettings(n_readouts=60)


def random_scan(generator, **others):
    samples = torch.randn(1, 2, *MATRIX, dtype=torch.complex64, generator=generator)
    return FullScan(name="scan", samples=samples, noise_std=0.1, noise_source="made up", **others)


def blob(matrix=MATRIX):
    """A smooth spot (1, 1, y, x) that is no round function of the pixels."""
    y, x = (np.arange(n) - n // 2 for n in matrix)
    spot = np.exp(-((y[:, None] - 2) ** 2) / 18 - (x + 1) ** 2 / 12)
    return torch.from_numpy(spot[None, None].astype(np.float32))


def test_every_second_pixel_of_the_finer_image_is_one_of_the_coarse(generator):
    scan = random_scan(generator)
    axes = (-2, -1)
    coarse = np.fft.ifft2(np.fft.ifftshift(scan.samples.numpy(), axes=axes), norm="ortho")
    coarse = np.fft.fftshift(coarse, axes=axes)
    fine = finer(scan.samples).numpy()
    assert fine.shape == (1, 2, 62, 48)
    # pixel n // 2 of either lies at the centre: 15 and 31, 12 and 24
    assert np.allclose(fine[..., 1::2, ::2], coarse, atol=1e-5)


@pytest.mark.parametrize("trajectory", [SPIRAL, DENSE], ids=["spiral", "radial"])
def test_samples_are_those_of_the_closed_form(generator, trajectory):
    scan = random_scan(generator)
    found = measured_along(scan, finer(scan.samples), trajectory)
    # Each sample of the grid is a wave over the field of view; of 2 n points it has the transform
    # D(u) = 1 / (2 n) sum_r exp(-2 pi i u r / (2 n)), r = -n ... n - 1, at the distance u in k.
    ky, kx = (found.trajectory[0] * torch.tensor(MATRIX)).numpy().T
    parts = []
    for k, n in ((ky, MATRIX[0]), (kx, MATRIX[1])):
        u = k[:, None] - (np.arange(n) - n // 2)
        safe = np.where(np.abs(u) < 1e-9, 1e-9, u)
        ratio = np.sin(np.pi * safe) / (2 * n * np.sin(np.pi * safe / (2 * n)))
        parts.append(ratio * np.exp(1j * np.pi * safe / (2 * n)))
    expected = np.einsum("py,cyx,px->cp", parts[0], scan.samples[0].numpy(), parts[1])
    assert np.abs(found.samples[0].numpy() - expected).max() < 1e-5 * np.abs(expected).max()


def test_noise_is_that_of_twice_as_many_samples_and_always_the_same():
    empty = torch.zeros(1, 4, 2 * MATRIX[0], 2 * MATRIX[1], dtype=torch.complex64)
    scan = FullScan(
        name="scan",
        samples=torch.ones(1, 4, *MATRIX, dtype=torch.complex64),
        noise_std=0.5,
        noise_source="made up",
        fine_images=lambda: empty,
        added_noise_std=0.4,
    )
    (first, second), again = (
        off_grid_cases(scan, ["true-radial-45", "true-spiral-3"]),
        measured_along(scan, empty, OFF_GRID["true-radial-45"]),
    )
    for case in (first, second):
        assert case.kspace.noise_std == pytest.approx(0.5 * math.sqrt(2))
        values = torch.view_as_real(case.kspace.samples)
        assert float(values.std()) == pytest.approx(0.4 * math.sqrt(2), rel=0.03)
        assert abs(float(values.mean())) < 0.03
    assert torch.equal(first.kspace.samples, again.samples)
    assert off_grid_cases(scan, []) == []


def test_what_is_measured_is_not_what_the_pixels_of_the_reconstruction_give(generator):
    image = blob((48, 40)) + 0.02 * torch.rand(1, 1, 48, 40, generator=generator)
    for scan in (
        multi_coil_scan("a", image, n_coils=3, noise=1e-6, noise_factor=1e-9 + 1),
        single_coil_scan("b", image, noise_factor=1),
    ):
        (case,) = off_grid_cases(scan, ["true-golden-34"])
        kspace = case.kspace
        fourier = NonuniformFourier.plan(kspace.trajectory, kspace.shape, eps=1e-6)
        model = fourier.forward(scan.coil_images())
        difference = float((model - kspace.samples).norm() / model.norm())
        # closer than a few per cent, for it is the same object, and not the same numbers
        assert 1e-3 < difference < 0.1


def test_complete_spokes_give_the_image():
    image = blob((48, 40))
    scan = multi_coil_scan("a", image, n_coils=3, noise=1e-5, noise_factor=1)
    kspace = measured_along(scan, scan.fine_images(), NonuniformSettings(n_readouts=76))
    case = Case(scan=scan, pattern="complete", at_points=kspace)
    image, reference = zero_filling(case).image, case.reference
    assert float((image - reference).norm() / reference.norm()) < 0.03


def test_patterns_reach_the_edge_of_a_matrix_that_is_not_square(generator):
    scan = random_scan(generator)
    found = {case.pattern: case for case in off_grid_cases(scan, list(OFF_GRID))}
    assert list(found) == ["true-radial-45", "true-golden-34", "true-spiral-3"]
    for case in found.values():
        radius = case.kspace.trajectory[0].norm(dim=-1)
        assert 0.48 < float(radius.max()) <= 0.5 + 1e-9
        assert case.kspace.shape == MATRIX
        assert not bool(case.cells[0, 0, 0, 0])
        assert bool(case.cells[0, 0, 15, 12])
    lines = OFF_GRID["true-spiral-3"]
    assert (lines.n_readouts, lines.full_readouts(MATRIX)) == (11, 33)
    share = found["true-spiral-3"].cells.float().mean()
    assert 0.2 < float(share) < 0.75


def test_a_case_lies_on_the_grid_or_off_it(generator):
    scan = random_scan(generator)
    mask = torch.ones(1, 1, *MATRIX, dtype=torch.bool)
    (off,) = off_grid_cases(scan, ["true-radial-45"])
    with pytest.raises(
        ValueError, match="scan, both: a case has a mask, or samples off the grid, and not both"
    ):
        Case(scan=scan, pattern="both", mask=mask, at_points=off.at_points)
    with pytest.raises(ValueError, match="a case has a mask, or samples off the grid"):
        Case(scan=scan, pattern="none")
    with pytest.raises(MethodError, match="reconstructs samples on the grid only"):
        _ = off.on_grid
    on = Case(scan=scan, pattern="all", mask=mask)
    assert torch.equal(on.cells, mask)
    assert torch.equal(on.kspace.samples, on.on_grid.samples)


def test_images_that_are_wider_than_the_reference_are_cut_to_it_about_their_centre(generator):
    scan = random_scan(generator)
    (case,) = off_grid_cases(scan, ["true-radial-45"])
    wide = torch.zeros(1, 1, 36, 28)
    wide[0, 0, 18, 14] = 1  # the centre, n // 2
    cut = case.in_view(wide)
    assert cut.shape == (1, 1, *MATRIX)
    assert float(cut[0, 0, 15, 12]) == 1


def test_the_joint_estimate_takes_samples_off_the_grid():
    scan = multi_coil_scan("a", blob((40, 36)), n_coils=3, noise=0.01)
    (case,) = off_grid_cases(scan, ["true-radial-45"])
    card = PriorCard.model_validate(
        {
            "name": "tv",
            "version": "1.0",
            "description": "for tests",
            "architecture": {"kind": "total-variation", "epsilon": 1e-3},
            "temperature": 0.03,
            "prior_weight": {"rule": "noise"},
            "anatomy": "none",
            "licence": "none",
        }
    )
    prior, settings = Prior(card, energy_of(card, None)), ReconstructionSettings(iterations=4)
    result = joint(prior, settings)(case)
    direct = reconstruct(case.kspace, prior=prior, settings=settings)
    assert torch.equal(result.image, direct.image.abs())
    assert result.facts["noise level"] == pytest.approx(case.kspace.noise_std * direct.scale[0])
