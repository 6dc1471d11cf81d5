"""Compare methods on fully sampled scans from which samples are left out.

A :class:`Case` is one slice and one pattern. A :data:`Method` turns it into an image; :func:`measure` puts
numbers beside that. A method that does not need the reference must not look at it; those that do are in
:mod:`.best_weight`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from reconlib.evaluation.metrics import fit_scale, nmse, psnr, ssim
from reconlib.evaluation.null_space import null_space_residual
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace
from reconlib.operators.fourier import ifft2c
from reconlib.operators.sense import root_sum_of_squares
from reconlib.priors.library import Prior
from reconlib.reconstruction import Progress, ReconstructionSettings, reconstruct, zero_filled

CPU = torch.device("cpu")
ENERGY_NOISE_SEED = 20231


@dataclass(frozen=True, slots=True, kw_only=True)
class FullScan:
    """One fully sampled slice."""

    name: str
    samples: Tensor
    """complex64 (1, coil, ky, kx)"""
    noise_std: float
    """Per real component of the samples."""
    noise_source: str
    """Where the noise level comes from, in words."""
    reference: Tensor | None = None
    """float32 (1, 1, y, x), where the truth is known better than by the samples."""
    coils: Tensor | None = None
    """complex64 (1, coil, y, x), given maps that stay fixed."""

    @property
    def matrix(self) -> tuple[int, int]:
        """(ky, kx)."""
        n_ky, n_kx = self.samples.shape[-2:]
        return n_ky, n_kx

    def coil_images(self) -> Tensor:
        """Return the fully sampled coil images, complex64 (1, coil, y, x)."""
        return ifft2c(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One slice, one pattern."""

    scan: FullScan
    pattern: str
    mask: Tensor
    """bool (1, 1, ky, kx)"""

    @property
    def kspace(self) -> KSpace:
        """What a scanner with this pattern would have measured."""
        return KSpace(samples=self.scan.samples * self.mask, mask=self.mask, noise_std=self.scan.noise_std)

    @property
    def reference(self) -> Tensor:
        """float32 (1, 1, y, x): the given one, else the root sum of squares of all samples."""
        if self.scan.reference is not None:
            return self.scan.reference
        return root_sum_of_squares(self.scan.coil_images())


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodImage:
    """What a method made of a case."""

    image: Tensor
    """float32 (1, 1, y, x), not negative"""
    coils: Tensor | None = None
    """complex64 (1, coil, y, x), where the method has maps"""
    facts: Mapping[str, float | str] = field(default_factory=dict)
    """Such as the weight that was used."""


Method = Callable[[Case], MethodImage]


def measure(case: Case, result: MethodImage, seconds: float) -> dict[str, float | str]:
    """Return the row of a table: metrics after one least-squares scale fit, and the method's own facts.

    PSNR in dB (peak of the reference), NMSE times 100, SSIM, and the null-space residual of the maps in
    percent (:mod:`reconlib.evaluation.null_space`).
    """
    reference = case.reference
    image = result.image.double() * fit_scale(result.image, reference)
    row: dict[str, float | str] = {
        "PSNR": float(psnr(image, reference)),
        "NMSE x 100": 100 * float(nmse(image, reference)),
        "SSIM": float(ssim(image, reference)),
    }
    if result.coils is not None and result.coils.shape[1] > 1:
        row["null space %"] = float(null_space_residual(case.scan.coil_images(), result.coils))
    return row | dict(result.facts) | {"seconds": seconds}


def run_method(method: Method, case: Case) -> tuple[MethodImage, dict[str, float | str]]:
    """Run a method and measure it."""
    started = time.monotonic()
    result = method(case)
    return result, measure(case, result, time.monotonic() - started)


def zero_filling(case: Case) -> MethodImage:
    """Root-sum-of-squares of the zero-filled coil images."""
    return MethodImage(image=zero_filled(case.kspace))


def joint(
    prior: Prior,
    settings: ReconstructionSettings,
    *,
    seed: int = 0,
    device: torch.device = CPU,
    on_iteration: Callable[[Progress], None] | None = None,
) -> Method:
    """Return the joint estimate with a prior, at the weight that the settings and the card give.

    The prior is on the device. The facts hold the weight, lambda, and, for a learned prior, the energy per
    pixel of the image and of the reference, both at the scale of the reconstruction and with the prior's
    noise on them; where the card has percentiles of validation images, whether the image's energy lies in
    their range.
    """

    def method(case: Case) -> MethodImage:
        kspace, given = case.kspace, case.scan.coils
        on_device = KSpace(
            samples=kspace.samples.to(device), mask=kspace.mask.to(device), noise_std=kspace.noise_std
        )
        result = reconstruct(
            on_device,
            prior=prior,
            settings=settings,
            coils=None if given is None else given.to(device),
            seed=seed,
            on_iteration=on_iteration,
        )
        facts: dict[str, float | str] = {
            "weight": result.prior_weight[0],
            "noise level": result.noise_level[0],
        }
        if result.outcomes[0] not in (Outcome.OUT_OF_ITERATIONS, Outcome.CONVERGED):
            facts["outcome"] = result.outcomes[0].value
        image = result.image.abs().cpu()
        if prior.card.architecture.kind != "total-variation":
            real_part = result.image.real
            seen = real_part if prior.card.input.values == "signed" else real_part.abs()
            reference = case.reference / fit_scale(image, case.reference).to(case.reference.dtype)
            facts["R per pixel"] = energy_per_pixel(prior, seen * result.scale[0])
            facts["R of reference"] = energy_per_pixel(prior, reference.to(device) * result.scale[0])
            among = among_validation_images(prior, seen)
            if among is not None:
                facts["R among validation images"] = "yes" if among else "no"
        return MethodImage(image=image, coils=result.coils.cpu(), facts=facts)

    return method


def energy_per_pixel(prior: Prior, image: Tensor) -> float:
    """R of an image float32 (1, 1, y, x) with the prior's gradient noise (seeded) on it, over its pixels."""
    generator = torch.Generator().manual_seed(ENERGY_NOISE_SEED)
    noise = prior.card.gradient_noise_std * torch.randn(image.shape, generator=generator)
    return float(prior.energy.value(image + noise.to(image.device))) / image.numel()


def among_validation_images(prior: Prior, image: Tensor) -> bool | None:
    """Say whether R of an image lies in the range of the card's validation images; None without a range.

    The image float32 (1, 1, y, x) is first scaled as the training images were.
    """
    percentiles, convention = prior.card.energy_percentiles, prior.card.input
    if percentiles is None:
        return None
    brightness = {
        "percentile": float(np.percentile(image.abs().cpu().numpy(), convention.percentile)),
        "maximum": float(image.abs().max()),
        "as-is": 1.0,
    }[convention.scaling]
    energy = energy_per_pixel(prior, image / max(brightness, 1e-30))
    known = percentiles.per_pixel.values()
    return min(known) <= energy <= max(known)
