"""Three hundred iterations on measured heads: nothing freezes, nothing drifts away."""

from pathlib import Path

import numpy as np
import pytest
import torch

from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.evaluation.sampling_patterns import random_cartesian_mask
from reconlib.kspace import KSpace
from reconlib.operators.fourier import ifft2c
from reconlib.priors.library import find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct, zero_filled

SHIPPED = Path(__file__).parents[3] / "config" / "priors"
LARGEST_COIL_LIPSCHITZ = 4.0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["brain_t1_8coil_full", "brain_t1_7coil_full"])
def test_three_hundred_iterations_stay_alive_and_near_their_best(name, data_folder):
    samples = torch.from_numpy(np.load(data_folder / "kspace" / f"{name}.npy"))[None]
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
    scan = KSpace(samples=samples * mask, mask=mask, noise_std=noise_std)
    reference = zero_filled(full)
    prior = load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))
    quality = []
    for iterations in (50, 100, 300):
        result = reconstruct(scan, prior=prior, settings=ReconstructionSettings(iterations=iterations))
        quality.append(float(psnr_after_scale_fit(result.image.abs(), reference)))
    trace = result.trace
    assert trace.energy.shape == (300, 1)
    assert bool(torch.isfinite(trace.energy).all())
    assert bool((trace.relative_change > 0).all())
    assert float(trace.coil_lipschitz.max()) < LARGEST_COIL_LIPSCHITZ
    assert bool((torch.diff(trace.coil_magnitude, dim=0) != 0).all()), "the coil block froze"
    assert quality[-1] > max(quality) - 0.5
    zero = float(psnr_after_scale_fit(zero_filled(scan), reference))
    assert quality[-1] > zero + 4, "the test must look at a reconstruction that works"
