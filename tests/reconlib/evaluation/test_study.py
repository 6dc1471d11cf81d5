"""Cases, what is measured of a result, and the joint estimate as a method."""

import math

import numpy as np
import pytest
import torch

from reconlib.evaluation.grid_patterns import pseudo_radial_mask
from reconlib.evaluation.study import (
    Case,
    FullScan,
    MethodImage,
    energy_per_pixel,
    joint,
    measure,
    run_method,
    zero_filling,
)
from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior, energy_of
from reconlib.reconstruction import ReconstructionSettings, reconstruct

MATRIX = (19, 16)


class HalfSquare:
    """R = |x|^2 / 2: its value per pixel can be written down."""

    temperature = 1.0

    def value(self, image):
        return image.square().sum(dim=(1, 2, 3)) / 2

    def value_and_gradient(self, image):
        return self.value(image), image


def card(**changes):
    values = {
        "name": "half-square",
        "version": "1.0",
        "description": "for tests",
        "architecture": {"kind": "local", "widths": [4, 4], "input_gain": 1.0, "noise_level": 0.01},
        "temperature": 1.0,
        "prior_weight": {"rule": "noise"},
        "anatomy": "none",
        "licence": "none",
    }
    return PriorCard.model_validate(values | changes)


def prior(**changes):
    return Prior(card(**changes), HalfSquare())


@pytest.fixture
def case(generator):
    samples = torch.randn(1, 3, *MATRIX, dtype=torch.complex64, generator=generator)
    scan = FullScan(name="scan", samples=samples, noise_std=0.1, noise_source="made up")
    return Case(scan=scan, pattern="radial", mask=pseudo_radial_mask(MATRIX, n_spokes=5))


def numpy_images(samples):
    axes = (-2, -1)
    shifted = np.fft.ifftshift(samples.numpy(), axes=axes)
    return np.fft.fftshift(np.fft.ifft2(shifted, norm="ortho"), axes=axes)


def test_a_method_sees_the_measured_samples_and_nothing_else(case):
    kspace = case.kspace
    assert torch.equal(kspace.mask, case.mask)
    assert float(kspace.samples[~case.mask.expand_as(kspace.samples)].abs().max()) == 0.0
    measured = case.mask.expand_as(kspace.samples)
    assert torch.equal(kspace.samples[measured], case.scan.samples[measured])
    assert kspace.noise_std == 0.1


def test_the_reference_is_the_root_sum_of_squares_of_all_samples_or_what_is_given(case):
    expected = np.sqrt((np.abs(numpy_images(case.scan.samples)) ** 2).sum(axis=1, keepdims=True))
    assert np.allclose(case.reference.numpy(), expected, rtol=1e-5)
    truth = torch.ones(1, 1, *MATRIX)
    given = FullScan(
        name="s", samples=case.scan.samples, noise_std=0.1, noise_source="made up", reference=truth
    )
    assert torch.equal(Case(scan=given, pattern="radial", mask=case.mask).reference, truth)


def test_measures_are_taken_after_one_scale_fit(case, generator):
    reference = case.reference.double().numpy()
    error = torch.randn(reference.shape, generator=generator, dtype=torch.float64).numpy()
    error -= reference * (error * reference).sum() / (reference**2).sum()  # the fitted scale is known then
    error *= 0.1
    image = torch.from_numpy(7.0 * (reference + error)).float()
    row = measure(case, MethodImage(image=image, facts={"weight": 0.5}), 1.25)
    # the factor on (r + e) that is closest to r, for e orthogonal to r
    factor = (reference**2).sum() / ((reference**2).sum() + (error**2).sum())
    left = factor * (reference + error) - reference
    assert row["PSNR"] == pytest.approx(
        20 * math.log10(reference.max() / math.sqrt((left**2).mean())), abs=1e-4
    )
    assert row["NMSE x 100"] == pytest.approx(100 * (left**2).sum() / (reference**2).sum(), rel=1e-4)
    assert (row["weight"], row["seconds"]) == (0.5, 1.25)
    assert "null space %" not in row


def test_maps_are_measured_where_there_are_several(case):
    image = zero_filling(case).image
    own = MethodImage(image=image, coils=case.scan.coil_images())
    assert float(measure(case, own, 0.0)["null space %"]) < 1e-9
    shifted = MethodImage(image=image, coils=case.scan.coil_images().roll(1, dims=-1))
    assert float(measure(case, shifted, 0.0)["null space %"]) > 1.0


def test_zero_filling_is_that_of_numpy(case):
    result, row = run_method(zero_filling, case)
    expected = np.sqrt((np.abs(numpy_images(case.scan.samples * case.mask)) ** 2).sum(axis=1, keepdims=True))
    assert np.allclose(result.image.numpy(), expected, rtol=1e-5)
    assert float(row["seconds"]) >= 0


def test_the_joint_estimate_is_that_of_reconstruct_with_energies_at_its_scale(case):
    settings = ReconstructionSettings(iterations=3)
    chosen = prior()
    result = joint(chosen, settings, seed=4)(case)
    direct = reconstruct(case.kspace, prior=chosen, settings=settings, seed=4)
    assert torch.equal(result.image, direct.image.abs())
    assert result.facts["weight"] == direct.prior_weight[0]
    assert result.facts["noise level"] == direct.noise_level[0]
    scaled = direct.image.real.numpy() * direct.scale[0]
    assert result.facts["R per pixel"] == pytest.approx((scaled**2).mean() / 2, rel=1e-5)
    image, reference = direct.image.abs().double().numpy(), case.reference.double().numpy()
    # the fit goes from image to reference; its inverse brings the reference to the image
    to_image = (image**2).sum() / (image * reference).sum()
    like_image = reference * to_image * direct.scale[0]
    assert result.facts["R of reference"] == pytest.approx((like_image**2).mean() / 2, rel=1e-4)


def test_the_seed_is_that_of_the_noise_in_the_priors_gradient(case):
    noisy, settings = prior(gradient_noise_std=0.1), ReconstructionSettings(iterations=3)
    images = [joint(noisy, settings, seed=seed)(case).image for seed in (4, 4, 5)]
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])
    direct = reconstruct(case.kspace, prior=noisy, settings=settings, seed=5)
    assert torch.equal(images[2], direct.image.abs())


def test_total_variation_has_no_energies_in_its_facts(case):
    tv = card(architecture={"kind": "total-variation", "epsilon": 1e-3})
    facts = joint(Prior(tv, energy_of(tv, None)), ReconstructionSettings(iterations=2))(case).facts
    assert set(facts) == {"weight", "noise level"}


def test_given_maps_stay_as_they_are(case):
    maps = torch.zeros_like(case.scan.samples)
    maps[:, 1] = 1
    scan = FullScan(name="s", samples=case.scan.samples, noise_std=0.1, noise_source="made up", coils=maps)
    result = joint(prior(), ReconstructionSettings(iterations=2))(
        Case(scan=scan, pattern="radial", mask=case.mask)
    )
    assert result.coils is not None
    assert torch.allclose(result.coils, maps)


def test_energy_per_pixel_is_taken_with_the_noise_of_the_prior():
    zeros = torch.zeros(1, 1, 200, 200)
    assert energy_per_pixel(prior(), zeros) == 0.0
    noisy = energy_per_pixel(prior(gradient_noise_std=0.3), zeros)
    assert noisy == pytest.approx(0.3**2 / 2, rel=0.05)
    assert energy_per_pixel(prior(gradient_noise_std=0.3), zeros) == noisy
