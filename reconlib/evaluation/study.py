"""Compare methods on fully sampled scans from which samples are left out.

A :class:`Case` is one slice and one pattern. A :class:`Method` turns it into an image; :func:`measure` puts
numbers beside that. Methods at their best weight are told the reference ("oracle"): what they reach is an
upper bound for what a user gets, and is called so in tables.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from reconlib.evaluation.bart import Bart, BartError, BartImage
from reconlib.evaluation.metrics import fit_scale, nmse, psnr, psnr_after_scale_fit, ssim
from reconlib.evaluation.null_space import null_space_residual
from reconlib.kspace import KSpace
from reconlib.operators.fourier import ifft2c
from reconlib.operators.sense import root_sum_of_squares
from reconlib.priors.library import Prior
from reconlib.reconstruction import Progress, ReconstructionSettings, reconstruct, zero_filled

FACTORS = tuple(2.0**power for power in range(-3, 4))
"""Multiples of a weight that are tried: seven, a factor 2 apart."""
MOST_EXTENSIONS = 6
"""Further factors that are tried while the best one is the last on its side."""
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
    on_iteration: Callable[[Progress], None] | None = None,
) -> Method:
    """Return the joint estimate with a prior, at the weight that the settings and the card give.

    The facts hold the weight and, for a learned prior, the energy per pixel of the image and of the
    reference, both at the scale of the reconstruction and with the prior's noise on them.
    """

    def method(case: Case) -> MethodImage:
        kspace = case.kspace
        result = reconstruct(
            kspace,
            prior=prior,
            settings=settings,
            coils=case.scan.coils,
            seed=seed,
            on_iteration=on_iteration,
        )
        facts: dict[str, float | str] = {
            "weight": result.prior_weight[0],
            "outcome": result.outcomes[0].value,
        }
        if prior.card.architecture.kind != "total-variation":
            scaled, real_part = result.scale[0], result.image.real
            seen = real_part if prior.card.input.values == "signed" else real_part.abs()
            reference = case.reference / fit_scale(result.image.abs(), case.reference).to(
                case.reference.dtype
            )
            facts["R per pixel"] = energy_per_pixel(prior, seen * scaled)
            facts["R of reference"] = energy_per_pixel(prior, reference * scaled)
        return MethodImage(image=result.image.abs(), coils=result.coils, facts=facts)

    return method


def energy_per_pixel(prior: Prior, image: Tensor) -> float:
    """R of an image float32 (1, 1, y, x) with the prior's gradient noise (seeded) on it, over its pixels."""
    generator = torch.Generator().manual_seed(ENERGY_NOISE_SEED)
    noise = prior.card.gradient_noise_std * torch.randn(image.shape, generator=generator)
    return float(prior.energy.value(image + noise.to(image.device))) / image.numel()


def at_best_weight(method_with: Callable[[float], Method]) -> Method:
    """Return the method at the factor on its weight that is best against the reference (oracle).

    ``method_with`` makes the method for a factor. Seven factors, 2 apart, and further ones while the best is
    the last on its side, so that it lies inside the grid.
    """

    def method(case: Case) -> MethodImage:
        reference, tried = case.reference, dict[float, tuple[float, MethodImage]]()

        def attempt(factor: float) -> None:
            result = method_with(factor)(case)
            tried[factor] = (float(psnr_after_scale_fit(result.image, reference)), result)

        for factor in FACTORS:
            attempt(factor)
        for _ in range(MOST_EXTENSIONS):
            best = max(tried, key=lambda factor: tried[factor][0])
            if best == min(tried):
                attempt(best / 2)
            elif best == max(tried):
                attempt(best * 2)
            else:
                break
        best = max(tried, key=lambda factor: tried[factor][0])
        inside = min(tried) < best < max(tried)
        result = tried[best][1]
        return replace(result, facts={**result.facts, "factor": best, "inside grid": str(inside)})

    return method


def best_of_newton_steps(bart: Bart) -> Method:
    """NLINV at the number of Newton steps that is best against the reference (oracle), from 6 on."""

    def method(case: Case) -> MethodImage:
        best: tuple[float, int, BartImage] | None = None
        for steps in range(6, 15):
            result = bart.nlinv(case.kspace.samples, steps)
            quality = float(psnr_after_scale_fit(result.image, case.reference))
            if best is not None and quality < best[0]:
                break  # from there on it only fits noise
            best = (quality, steps, result)
        if best is None:
            raise BartError("bart nlinv gave no image.")
        return MethodImage(image=best[2].image, coils=best[2].coils, facts={"Newton steps": float(best[1])})

    return method


def espirit_with(bart: Bart, regulariser: str) -> Method:
    """ESPIRiT maps and ``pics``; ``regulariser`` has the weight left open, as in ``W:3:0:{}``."""

    def method_with(maps: Tensor) -> Callable[[float], Method]:
        def with_factor(factor: float) -> Method:
            def method(case: Case) -> MethodImage:
                weight = 0.01 * factor
                result = bart.pics(case.kspace.samples, maps, regulariser.format(f"{weight:g}"))
                return MethodImage(image=result.image, coils=result.coils, facts={"weight": weight})

            return method

        return with_factor

    def method(case: Case) -> MethodImage:
        return at_best_weight(method_with(bart.espirit_maps(case.kspace.samples)))(case)

    return method


def bart_methods(bart: Bart) -> dict[str, Method]:
    """BART's methods, each at its best weight (oracle)."""
    return {
        "BART ESPIRiT + l1-wavelet (oracle)": espirit_with(bart, "W:3:0:{}"),
        "BART ESPIRiT + TV (oracle)": espirit_with(bart, "T:3:0:{}"),
        "BART NLINV (oracle)": best_of_newton_steps(bart),
    }
