"""Simulated multi-coil scans with a known truth: of a drawn head, of a given image or of given k-space."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reconlib.evaluation.sampling_patterns import (
    calibration_lines,
    mask_from_lines,
    n_calibration_lines,
)
from reconlib.kspace import KSpace
from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.simulation.anatomy import draw_head
from reconlib.simulation.coils import loop_coils, rough_phase, smooth_phase
from reconlib.simulation.scan_settings import ScanSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedScan:
    """A scan and what it is a scan of: ``coils * truth`` are the coil images, noise apart."""

    kspace: KSpace
    truth: Tensor
    """complex64 (slice, 1, y, x), in the units of k-space; its magnitude is the root-sum-of-squares image."""
    coils: Tensor
    """complex64 (slice, coil, y, x), divided by their root-sum-of-squares."""
    noise_covariance: Tensor
    """complex128 (coil, coil): E[n n^H] of the samples; for white noise 2 std^2 times the identity."""
    calibration_lines: NDArray[np.bool_]
    """bool (ky,): the adjacent lines round the centre that serve as calibration."""
    acceleration: float
    """As planned, for the scan's header."""
    fov_mm: tuple[float, float] = (220.0, 220.0)
    """Field of view (y, x)."""
    slice_positions_mm: tuple[float, ...] = (0.0,)
    slice_thickness_mm: float = 5.0


def simulate_head_scan(settings: ScanSettings) -> SimulatedScan:
    """Scan a head that is drawn for the purpose (see :mod:`reconlib.simulation.anatomy`)."""
    positions = settings.slice_positions_mm
    head = draw_head(
        settings.matrix,
        generator=torch.Generator().manual_seed(settings.seed),
        fov_mm=settings.fov_mm,
        slice_positions_mm=positions,
        contrast=settings.contrast,
    )
    image = head.water + head.fat * complex(
        math.cos(settings.fat_phase_rad), math.sin(settings.fat_phase_rad)
    )
    return _scan(image.to(torch.complex64), settings, positions)


def scan_from_image(image: NDArray[np.generic], settings: ScanSettings) -> SimulatedScan:
    """Scan a given image (y, x) or (slice, y, x), real or complex, with simulated coils, phase and noise.

    Its size replaces ``settings.matrix`` and ``settings.n_slices``. Simulating from images that were
    interpolated (zero-filled) flatters every reconstruction; cut such images to what was measured first.
    """
    pixels = torch.from_numpy(np.array(image, dtype=np.complex64))
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise ValueError(
            f"The image has the shape {tuple(pixels.shape)}; it must be (y, x) or (slice, y, x)."
        )
    _check_finite(pixels, "image")
    pixels = pixels.reshape(-1, 1, *pixels.shape[-2:])
    positions = tuple(settings.first_slice_mm + i * settings.slice_spacing_mm for i in range(pixels.shape[0]))
    return _scan(pixels, settings, positions)


def scan_from_kspace(
    kspace: NDArray[np.generic],
    lines: NDArray[np.bool_] | None = None,
    *,
    noise_std: float | None = None,
    acceleration: float | None = None,
    calibration: NDArray[np.bool_] | None = None,
    fov_mm: tuple[float, float] = (220.0, 220.0),
    slice_positions_mm: Sequence[float] | None = None,
    slice_thickness_mm: float = 5.0,
) -> SimulatedScan:
    """Under-sample given, fully sampled k-space (coil, ky, kx) or (slice, coil, ky, kx); no noise is added.

    ``lines`` (ky,) are the measured ones, all by default; ``calibration`` (ky,) are by default the longest
    run of measured lines that includes the centre. ``noise_std`` per real component is by default that of
    the image corners (:func:`corner_noise_std`), and is taken as white and equal in all coils. The truth is
    the root-sum-of-squares image of the full data.
    """
    samples = torch.from_numpy(np.array(kspace, dtype=np.complex64))
    if samples.ndim not in (3, 4) or 0 in samples.shape:
        raise ValueError(
            f"The k-space has the shape {tuple(samples.shape)}; it must be (coil, ky, kx) "
            "or (slice, coil, ky, kx)."
        )
    _check_finite(samples, "k-space")
    samples = samples.reshape(-1, *samples.shape[-3:])
    n_slices, n_coils, n_ky, n_kx = samples.shape
    if lines is None:
        lines = np.ones(n_ky, dtype=np.bool_)
    if lines.shape != (n_ky,) or not lines.any():
        raise ValueError(
            f"lines has the shape {lines.shape} and {int(lines.sum())} set; needs ({n_ky},) and at least 1."
        )
    if calibration is not None and calibration.shape != (n_ky,):
        raise ValueError(
            f"calibration has the shape {calibration.shape}; needs ({n_ky},), one value per line."
        )
    positions = tuple(slice_positions_mm or (slice_thickness_mm * i for i in range(n_slices)))
    if len(positions) != n_slices:
        raise ValueError(f"{len(positions)} slice positions do not fit {n_slices} slices; give one for each.")
    std = corner_noise_std(samples.numpy()) if noise_std is None else noise_std
    images = ifft2c(samples.to(torch.complex128))
    truth = images.abs().square().sum(1, keepdim=True).sqrt()
    mask = mask_from_lines(lines, n_kx).expand(n_slices, 1, n_ky, n_kx).clone()
    return SimulatedScan(
        kspace=KSpace(samples=samples * mask, mask=mask, noise_std=std),
        truth=truth.to(torch.complex64),
        coils=divided(images, truth),
        noise_covariance=2.0 * std**2 * torch.eye(n_coils, dtype=torch.complex128),
        calibration_lines=centre_run(lines) if calibration is None else calibration,
        acceleration=n_ky / int(lines.sum()) if acceleration is None else acceleration,
        fov_mm=fov_mm,
        slice_positions_mm=positions,
        slice_thickness_mm=slice_thickness_mm,
    )


def corner_noise_std(kspace: NDArray[np.generic], corner: int = 12) -> float:
    """Noise per real component of full k-space (..., ky, kx), from the four corners of the image.

    The standard deviation over all coils and slices, real and imaginary parts together, in squares of
    ``corner`` pixels. Right only where the corners show air and no artefact.
    """
    if min(kspace.shape[-2:]) < 2 * corner:
        raise ValueError(
            f"k-space of {kspace.shape[-2]} x {kspace.shape[-1]} has no four corners of {corner} x {corner}."
        )
    images = ifft2c(torch.from_numpy(np.array(kspace, dtype=np.complex128)))
    edge = [*range(corner), *range(-corner, 0)]
    corners = torch.view_as_real(images[..., edge, :][..., edge])
    std = float(corners.std(correction=0))
    if not std > 0:
        raise ValueError(
            "The corners of the image are zero, so they say nothing about noise; give noise_std."
        )
    return std


def centre_run(lines: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the adjacent measured lines that include the centre line; none where that one was not measured."""
    centre = len(lines) // 2
    run = np.zeros_like(lines)
    for step in (range(centre, len(lines)), range(centre, -1, -1)):
        for line in step:
            if not lines[line]:
                break
            run[line] = True
    return run


def draw_noise(covariance: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Complex noise (coil, *shape), complex128, with the covariance (coil, coil) between coils.

    A covariance of zeros gives zeros.
    """
    n_coils = covariance.shape[0]
    if not bool(covariance.any()):
        return torch.zeros(n_coils, *shape, dtype=torch.complex128)
    white = torch.randn(2, n_coils, *shape, generator=generator, dtype=torch.float64) * math.sqrt(0.5)
    factor = torch.linalg.cholesky(covariance.to(torch.complex128))
    noise: Tensor = torch.tensordot(factor, torch.complex(white[0], white[1]), dims=1)
    return noise


def _scan(image: Tensor, settings: ScanSettings, positions: tuple[float, ...]) -> SimulatedScan:
    """Multiply by coils and phase, transform, add noise, leave lines out."""
    n_slices, _, n_y, n_x = image.shape
    matrix = (n_y, n_x)
    lines = settings.lines(n_y)
    generator = torch.Generator().manual_seed(settings.seed + 1_000_003)
    coils = loop_coils(
        matrix, settings.n_coils, generator=generator, fov_mm=settings.fov_mm, slice_positions_mm=positions
    )
    phase = smooth_phase(
        matrix,
        generator=generator,
        fov_mm=settings.fov_mm,
        slice_positions_mm=positions,
        amplitude_rad=settings.smooth_phase_rad,
    ) + rough_phase(
        matrix,
        generator=generator,
        fov_mm=settings.fov_mm,
        slice_positions_mm=positions,
        amplitude_rad=settings.rough_phase_rad,
    )
    image = image * torch.polar(torch.ones_like(phase), phase)
    sensitivity = coils.abs().square().sum(1, keepdim=True).sqrt()
    truth = image * sensitivity
    if not float(truth.abs().max()) > 0:
        raise ValueError("The image is zero everywhere; there is nothing to scan.")
    std = settings.noise * float(truth.abs().max())
    covariance = coil_covariance(settings.n_coils, std, settings.noise_correlation, generator)
    noise_generator = torch.Generator().manual_seed(settings.noise_seed + 2_000_003)
    noise = draw_noise(covariance, (n_slices, *matrix), noise_generator).movedim(0, 1)
    samples = fft2c((image * coils).to(torch.complex128)) + noise
    mask = mask_from_lines(lines, n_x).expand(n_slices, 1, n_y, n_x).clone()
    n_centre = 0 if settings.pattern == "full" else n_calibration_lines(n_y, settings.calibration_fraction)
    return SimulatedScan(
        kspace=KSpace(samples=(samples * mask).to(torch.complex64), mask=mask, noise_std=std),
        truth=truth,
        coils=coils / sensitivity,
        noise_covariance=covariance,
        calibration_lines=calibration_lines(n_y, n_centre),
        acceleration=1.0 if settings.pattern == "full" else settings.acceleration,
        fov_mm=settings.fov_mm,
        slice_positions_mm=positions,
        slice_thickness_mm=settings.slice_spacing_mm,
    )


def coil_covariance(n_coils: int, std: float, correlation: float, generator: torch.Generator) -> Tensor:
    """Covariance of the noise between coils whose mean variance per real component is ``std ** 2``."""
    covariance = torch.eye(n_coils, dtype=torch.complex128)
    if correlation > 0:
        parts = torch.randn(2, n_coils, n_coils, generator=generator, dtype=torch.float64)
        mixing = torch.complex(parts[0], parts[1]) / math.sqrt(2.0 * n_coils)
        gains = torch.exp(correlation * torch.randn(n_coils, generator=generator, dtype=torch.float64))
        factor = gains[:, None] * ((1.0 - correlation) * covariance + correlation * mixing)
        covariance = factor @ factor.mH
    return covariance * (2.0 * std**2 * n_coils / covariance.diagonal().real.sum())


def divided(images: Tensor, root_sum_of_squares: Tensor) -> Tensor:
    """Coil images over their root-sum-of-squares; 1 in the first coil where there is no signal at all."""
    nothing = root_sum_of_squares == 0
    coils = images / torch.where(nothing, torch.ones_like(root_sum_of_squares), root_sum_of_squares)
    coils[:, :1] = torch.where(nothing, torch.ones_like(coils[:, :1]), coils[:, :1])
    return coils.to(torch.complex64)


def _check_finite(values: Tensor, name: str) -> None:
    if not bool(torch.isfinite(torch.view_as_real(values)).all()):
        raise ValueError(f"The {name} has NaN or infinite values; replace them before simulating.")
