"""The paper's simulation study: one coil, fixed at 1, and a real image.

The images are magnitudes that somebody else reconstructed. They are cut to what was measured
(:mod:`.band_limit`), and noise well above their own is added; what a method reaches says how it compares
with other methods on the same samples, not how good it is on a scanner.
"""

import hashlib
from functools import partial

import torch
from torch import Tensor

from reconlib.evaluation.band_limit import cut_to_measured, own_noise_std
from reconlib.evaluation.off_grid import finer
from reconlib.evaluation.study import FullScan
from reconlib.operators.fourier import fft2c

LEAST_NOISE = 0.002
"""Least noise per real component, as a share of the image's maximum: an archive may have no noise left."""


def single_coil_scan(name: str, image: Tensor, *, noise_factor: float | int = 2.0) -> FullScan:
    """Measure a magnitude image, real (1, 1, y, x), completely with one coil of sensitivity 1.

    The noise per real component is ``noise_factor`` times the image's own, at least 0.002 of its maximum. It
    is drawn from a generator that is seeded by the image, so an image always gets the same.

    Raises
    ------
    ValueError
        The image is no magnitude, or empty.
    """
    refuse_other_than_magnitude(name, image)
    truth = cut_to_measured(image.float())
    own = own_noise_std(truth)
    std = max(noise_factor * own, LEAST_NOISE * float(truth.max()))
    generator = torch.Generator().manual_seed(seed_of(image.float()))
    noise = std * torch.complex(*torch.randn(2, *truth.shape, generator=generator))
    cut = f"cut from {image.shape[-2]} x {image.shape[-1]} to {truth.shape[-2]} x {truth.shape[-1]}, "
    kspace = fft2c(truth.to(torch.complex64))
    times = f"{std / own:.1f} times" if own > 0 else "many times"
    return FullScan(
        name=name,
        samples=kspace + noise,
        noise_std=std,
        noise_source=f"added, {times} the image's own (about {own / float(truth.max()):.4f} of its maximum); "
        f"{cut if truth.shape != image.shape else ''}one coil of sensitivity 1",
        reference=truth,
        coils=torch.ones_like(truth, dtype=torch.complex64),
        fine_images=partial(finer, kspace),
        added_noise_std=std,
    )


def refuse_other_than_magnitude(name: str, image: Tensor) -> None:
    """Raise ValueError where an image is not real (1, 1, y, x), finite, not negative, and not empty."""
    if image.ndim != 4 or image.shape[:2] != (1, 1) or image.is_complex():
        raise ValueError(f"{name} is {image.dtype} of shape {tuple(image.shape)}; needs real (1, 1, y, x).")
    if not bool(torch.isfinite(image).all()) or bool((image < 0).any()) or not bool((image > 0).any()):
        raise ValueError(f"{name} is no magnitude image: it has to be finite, not negative, and not empty.")


def seed_of(image: Tensor) -> int:
    """Return a seed below 2^56 that changes with the image.

    Of an image as it was given: what a transform makes of it is rounded otherwise on another processor.
    """
    return int.from_bytes(hashlib.sha256(image.numpy().tobytes()).digest()[:7], "little")
