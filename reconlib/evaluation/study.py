"""Compare methods on fully sampled scans from which samples are left out.

A :class:`Case` is one slice and one pattern, on the grid or off it (:mod:`.off_grid`). A :data:`Method` turns
it into an image; :func:`measure` puts numbers beside that. A method that does not need the reference must not
look at it; those that do are in :mod:`.best_weight` and :mod:`.cg_sense`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from reconlib.evaluation.coverage import pixel_errors, uncertainty_measures
from reconlib.evaluation.metrics import fit_scale, nmse, psnr, ssim
from reconlib.evaluation.null_space import null_space_residual
from reconlib.joint.outcome import Outcome
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.fourier import ifft2c
from reconlib.operators.sense import root_sum_of_squares
from reconlib.priors.library import Prior
from reconlib.priors.typicality import typicality
from reconlib.reconstruction import (
    Progress,
    Reconstruction,
    ReconstructionSettings,
    reconstruct,
    zero_filled,
)

CPU = torch.device("cpu")
ENERGY_NOISE_SEED = 20231


class MethodError(Exception):
    """A method has no image for a case; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullScan:
    """One fully sampled slice."""

    name: str
    samples: Tensor
    """complex64 (1, coil, ky, kx); of a scan that was measured off the grid: those of its gridded images."""
    noise_std: float
    """Per real component of the samples."""
    noise_source: str
    """Where the noise level comes from, in words."""
    reference: Tensor | None = None
    """float32 (1, 1, y, x), where the truth is known better than by the samples."""
    reference_noise_std: float = 0.0
    """Of the reference's own noise, in its units; the root sum of squares has that of the samples."""
    caution: str = ""
    """Why the reference may be no good one, in words; empty where nothing speaks against it."""
    coils: Tensor | None = None
    """complex64 (1, coil, y, x), given maps that stay fixed."""
    fine_images: Callable[[], Tensor] | None = None
    """Makes coil images, complex64 (1, coil, 2 y, 2 x), without the noise that was added: what samples off
    the grid are measured of. None: the interpolated images of ``samples``."""
    added_noise_std: float = 0.0
    """Of the noise that ``fine_images`` lack, per real component of ``samples``."""

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
    mask: Tensor | None = None
    """bool (1, 1, ky, kx): which samples of the scan were measured; None off the grid."""
    at_points: NonuniformKSpace | None = None
    """What was measured off the grid; its images may be wider than the reference."""

    def __post_init__(self) -> None:
        if (self.mask is None) == (self.at_points is None):
            raise ValueError(
                f"{self.scan.name}, {self.pattern}: a case has a mask, or samples off the grid, and not both."
            )

    @property
    def kspace(self) -> KSpace | NonuniformKSpace:
        """What a scanner with this pattern would have measured."""
        if self.at_points is not None:
            return self.at_points
        return self.on_grid

    @property
    def on_grid(self) -> KSpace:
        """The same, for methods that know the grid only.

        Raises
        ------
        MethodError
            The samples lie off the grid.
        """
        if self.mask is None:
            raise MethodError("this method reconstructs samples on the grid only")
        return KSpace(samples=self.scan.samples * self.mask, mask=self.mask, noise_std=self.scan.noise_std)

    @property
    def cells(self) -> Tensor:
        """The mask, or which cells of the grid have a sample in them: bool (1, 1, ky, kx)."""
        if self.mask is not None:
            return self.mask
        n_y, n_x = self.scan.matrix
        cells = torch.zeros(1, 1, n_y, n_x, dtype=torch.bool)
        if self.at_points is not None:
            y, x = (
                ((axis * n).round().long() + n // 2).clamp(0, n - 1)
                for axis, n in zip(self.at_points.trajectory[0].T, (n_y, n_x), strict=True)
            )
            cells[0, 0, y, x] = True
        return cells

    def in_view(self, image: Tensor) -> Tensor:
        """Return the middle (..., y, x) of an image or maps, as large as the reference."""
        for axis, n in zip((-2, -1), self.scan.matrix, strict=True):
            image = image.narrow(axis, image.shape[axis] // 2 - n // 2, n)
        return image

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
    std: Tensor | None = None
    """float32 (1, 1, y, x), where the method says how uncertain the image is, in the image's units"""
    std_factor: float = 1.0
    """The factor of the prior's card that ``std`` contains."""


Method = Callable[[Case], MethodImage]


def measure(case: Case, result: MethodImage, seconds: float) -> dict[str, float | str]:
    """Return the row of a table: metrics after one least-squares scale fit, and the method's own facts.

    PSNR in dB (peak of the reference), NMSE times 100, SSIM, the null-space residual of the maps in percent
    (:mod:`reconlib.evaluation.null_space`), and where there are standard deviations their coverage
    (:mod:`reconlib.evaluation.coverage`).
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
    if result.std is not None:
        errors = pixel_errors(
            result.image, result.std, reference, reference_noise_std=case.scan.reference_noise_std
        )
        row |= uncertainty_measures(errors, result.std_factor) | {"std factor": result.std_factor}
    return row | dict(result.facts) | {"seconds": seconds}


def run_method(method: Method, case: Case) -> tuple[MethodImage, dict[str, float | str]]:
    """Run a method and measure it."""
    started = time.monotonic()
    result = method(case)
    return result, measure(case, result, time.monotonic() - started)


def zero_filling(case: Case) -> MethodImage:
    """Root-sum-of-squares of the zero-filled coil images; off the grid of those of the weighted adjoint."""
    return MethodImage(image=case.in_view(zero_filled(case.kspace)))


def reconstruct_case(
    case: Case,
    prior: Prior,
    settings: ReconstructionSettings,
    *,
    seed: int = 0,
    device: torch.device = CPU,
    on_iteration: Callable[[Progress], None] | None = None,
) -> tuple[KSpace | NonuniformKSpace, Reconstruction]:
    """Return what was measured, on the device, and its reconstruction; the prior is on the device."""
    given = case.scan.coils
    kspace = case.kspace.to(device)
    result = reconstruct(
        kspace,
        prior=prior,
        settings=settings,
        coils=None if given is None else given.to(device),
        seed=seed,
        on_iteration=on_iteration,
    )
    return kspace, result


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
        _, result = reconstruct_case(
            case, prior, settings, seed=seed, device=device, on_iteration=on_iteration
        )
        facts: dict[str, float | str] = {
            "weight": result.prior_weight[0],
            "noise level": result.noise_level[0],
        }
        if result.outcomes[0] not in (Outcome.OUT_OF_ITERATIONS, Outcome.CONVERGED):
            facts["outcome"] = result.outcomes[0].value
        seen_image = case.in_view(result.image)
        image = seen_image.abs().cpu()
        if prior.card.architecture.kind != "total-variation":
            real_part = seen_image.real
            seen = real_part if prior.card.input.values == "signed" else real_part.abs()
            reference = case.reference / fit_scale(image, case.reference).to(case.reference.dtype)
            facts["R per pixel"] = energy_per_pixel(prior, seen * result.scale[0])
            facts["R of reference"] = energy_per_pixel(prior, reference.to(device) * result.scale[0])
            found = typicality(prior, result.image)
            facts["typical"] = found.word
            if found.among_validation_images is not None:
                facts["R among validation images"] = "yes" if found.among_validation_images else "no"
        return MethodImage(image=image, coils=case.in_view(result.coils).cpu(), facts=facts)

    return method


def energy_per_pixel(prior: Prior, image: Tensor) -> float:
    """R of an image float32 (1, 1, y, x) with the prior's gradient noise (seeded) on it, over its pixels."""
    generator = torch.Generator().manual_seed(ENERGY_NOISE_SEED)
    noise = prior.card.gradient_noise_std * torch.randn(image.shape, generator=generator)
    return float(prior.energy.value(image + noise.to(image.device))) / image.numel()
