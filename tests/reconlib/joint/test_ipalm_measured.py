"""Measured heads: 300 iterations neither freeze nor drift away; both solvers make the same image."""

from pathlib import Path

import numpy as np
import pytest
import torch

from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.evaluation.sampling_patterns import random_cartesian_mask
from reconlib.joint import ipalm
from reconlib.joint.axis_order import exchanged_axes
from reconlib.kspace import KSpace
from reconlib.operators.fourier import ifft2c
from reconlib.priors.library import find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct, zero_filled

SHIPPED = Path(__file__).parents[3] / "config" / "priors"
LARGEST_COIL_LIPSCHITZ = 4.0


def measured(folder: Path, name: str) -> tuple[KSpace, torch.Tensor]:
    """4-fold random lines of a scan, and the root-sum-of-squares image of all of them."""
    samples = torch.from_numpy(np.load(folder / "kspace" / f"{name}.npy"))[None]
    mask = random_cartesian_mask((samples.shape[2], samples.shape[3]), acceleration=4.0)
    corners = torch.cat(
        [
            ifft2c(samples)[..., y, x]
            for y in (slice(12), slice(-12, None))
            for x in (slice(12), slice(-12, None))
        ],
        dim=-1,
    )
    noise_std = float(torch.view_as_real(corners).std())
    full = KSpace(samples=samples, mask=torch.ones_like(mask), noise_std=noise_std)
    return KSpace(samples=samples * mask, mask=mask, noise_std=noise_std), zero_filled(full)


def psnr_inside(image: torch.Tensor, reference: torch.Tensor) -> float:
    """PSNR in dB of the pixels above a tenth of the maximum, after one scale fit.

    In the background the reference is the rectified noise of all coils, which no estimate should have.
    """
    inside = reference > 0.1 * reference.max()
    image, reference = image[inside].double(), reference[inside].double()
    error = image * (image @ reference) / (image @ image) - reference
    return float(10 * torch.log10(reference.max().square() / error.square().mean()))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["brain_t1_8coil_full", "brain_t1_7coil_full"])
def test_the_fast_solver_is_as_near_to_the_measured_head_as_algorithm_1(name, data_folder):
    scan, reference = measured(data_folder, name)
    prior = load_prior(find_prior("brain-local", [SHIPPED]), torch.device("cpu"))
    fast, paper = (
        psnr_inside(
            reconstruct(scan, prior=prior, settings=ReconstructionSettings(solver=solver)).image.abs(),
            reference,
        )
        for solver in ("fast", "paper")
    )
    print(f"{name}: fast {fast:.2f} dB, paper {paper:.2f} dB")  # noqa: T201
    assert fast > paper - 0.05
    assert fast > 33


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("prior_name", ["brain-local", "tv"])
@pytest.mark.parametrize("name", ["brain_t1_8coil_full", "brain_t1_7coil_full"])
def test_three_hundred_iterations_stay_alive_and_near_their_best(name, prior_name, data_folder, monkeypatch):
    scan, reference = measured(data_folder, name)
    prior = load_prior(find_prior(prior_name, [SHIPPED]), torch.device("cpu"))
    quality: list[float] = []
    coil_step = ipalm._coil_block

    def watched(data, coil_energy, state, *others):
        quality.append(float(psnr_after_scale_fit(exchanged_axes(state.image.abs()), reference)))
        return coil_step(data, coil_energy, state, *others)

    monkeypatch.setattr(ipalm, "_coil_block", watched)
    result = reconstruct(scan, prior=prior, settings=ReconstructionSettings(solver="paper", iterations=300))
    trace = result.trace
    assert len(quality) == 300
    assert trace.energy.shape == (300, 1)
    assert bool(torch.isfinite(trace.energy).all())
    assert bool((trace.relative_change > 0).all())
    assert float(trace.coil_lipschitz.max()) < LARGEST_COIL_LIPSCHITZ
    assert bool((torch.diff(trace.coil_magnitude, dim=0) != 0).all()), "the coil block froze"
    after_the_best = quality[quality.index(max(quality)) :]
    assert min(after_the_best) > max(quality) - 0.5, "the image drifts away from its best iterate"
    zero = float(psnr_after_scale_fit(zero_filled(scan), reference))
    assert quality[-1] > zero + 4, "the test must look at a reconstruction that works"
