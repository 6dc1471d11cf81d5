"""Simulated radial and spiral scans with a known truth, without an inverse crime.

What is measured never comes from the grid that a reconstruction uses: the phantom's samples are those of its
closed form (:mod:`reconlib.simulation.analytic_phantom`), those of a head come from an image of twice as many
pixels along each axis, coils and phase drawn at that fineness, by a transform that is exact to 1e-9. The
truth is what complete Cartesian k-space of the same object, up to the corners of the matrix and without
noise, gives.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.simulation.analytic_phantom import coil_kspace, grid_points, wave_coils
from reconlib.simulation.anatomy import draw_head
from reconlib.simulation.coils import loop_coils, rough_phase, smooth_phase
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.simulation.scan import coil_covariance, divided, draw_noise
from reconlib.simulation.scan_settings import ScanSettings
from reconlib.trajectories.coordinates import transform_points

FINENESS = 2
"""Pixels of a head's image per pixel of the matrix, along each axis."""
ACCURACY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class NonuniformScan:
    """A non-Cartesian scan and what it is a scan of: ``coils * truth`` are the coil images, noise apart."""

    samples: Tensor
    """complex64 (slice, coil, readout, sample), scaled as by a unitary transform of the matrix."""
    points: NDArray[np.float64]
    """(readout, sample, 2): (kx, ky) in cycles per field of view, as the scanner states them."""
    truth: Tensor
    """complex64 (slice, 1, y, x); its magnitude is the root-sum-of-squares image."""
    coils: Tensor
    """complex64 (slice, coil, y, x), divided by their root-sum-of-squares."""
    noise_std: float
    """Per real component of the samples, mean over the coils."""
    noise_covariance: Tensor
    """complex128 (coil, coil): E[n n^H] of the samples."""
    trajectory: NonuniformSettings
    fov_mm: tuple[float, float]
    """Field of view (y, x)."""
    slice_positions_mm: tuple[float, ...]
    slice_thickness_mm: float

    @property
    def matrix(self) -> tuple[int, int]:
        """(y, x)."""
        n_y, n_x = self.truth.shape[-2:]
        return n_y, n_x


def simulate_phantom_scan(settings: ScanSettings, trajectory: NonuniformSettings) -> NonuniformScan:
    """Scan the analytic phantom; one slice.

    Of ``settings`` the matrix, field of view, coils, noise, smooth phase and seeds count.
    """
    generator = torch.Generator().manual_seed(settings.seed + 1_000_003)
    coils = wave_coils(
        settings.n_coils,
        generator=generator,
        fov_mm=settings.fov_mm,
        phase_rad=settings.smooth_phase_rad,
    )
    matrix = settings.matrix
    points = trajectory.points(matrix, settings.fov_mm, shifted=True)
    samples = torch.from_numpy(coil_kspace(points, coils, matrix))[None]
    full = torch.from_numpy(coil_kspace(grid_points(matrix), coils, matrix))[None]
    return _noisy(samples, ifft2c(full), settings, trajectory, generator, (0.0,))


def simulate_head_nonuniform(settings: ScanSettings, trajectory: NonuniformSettings) -> NonuniformScan:
    """Scan a drawn head, see :mod:`reconlib.simulation.anatomy`; ``settings.pattern`` does not count."""
    n_y, n_x = settings.matrix
    fine = (FINENESS * n_y, FINENESS * n_x)
    positions = settings.slice_positions_mm
    head = draw_head(
        fine,
        generator=torch.Generator().manual_seed(settings.seed),
        fov_mm=settings.fov_mm,
        slice_positions_mm=positions,
        contrast=settings.contrast,
        oversampling=2,
    )
    fat = complex(math.cos(settings.fat_phase_rad), math.sin(settings.fat_phase_rad))
    generator = torch.Generator().manual_seed(settings.seed + 1_000_003)
    coils = loop_coils(
        fine, settings.n_coils, generator=generator, fov_mm=settings.fov_mm, slice_positions_mm=positions
    )
    phase = sum(
        (
            draw(
                fine,
                generator=generator,
                fov_mm=settings.fov_mm,
                slice_positions_mm=positions,
                amplitude_rad=amplitude,
            )
            for draw, amplitude in (
                (smooth_phase, settings.smooth_phase_rad),
                (rough_phase, settings.rough_phase_rad),
            )
        ),
        torch.zeros(()),
    )
    images = ((head.water + head.fat * fat) * torch.polar(torch.ones_like(phase), phase)) * coils
    images = images.to(torch.complex128)
    points = trajectory.points(settings.matrix, settings.fov_mm, shifted=True)
    samples = transform_at(images, points) / FINENESS
    top, left = fine[0] // 2 - n_y // 2, fine[1] // 2 - n_x // 2
    full = fft2c(images)[..., top : top + n_y, left : left + n_x] / FINENESS
    return _noisy(samples, ifft2c(full), settings, trajectory, generator, positions)


def transform_at(images: Tensor, points: NDArray[np.float64]) -> Tensor:
    r"""Return the unitary transform of images (slice, coil, y, x) at points (readout, sample, 2).

    .. math:: \frac{1}{\sqrt{n_y n_x}} \sum_{y, x} I_{yx}
        e^{-2 \pi i (k_x (x - c_x) / n_x + k_y (y - c_y) / n_y)}

    with c = n // 2; complex128 (slice, coil, readout, sample), to a relative accuracy of 1e-9.
    """
    n_slices, n_coils, n_y, n_x = images.shape
    transform = NonuniformFourier.plan(
        transform_points(points, (n_y, n_x)), (n_y, n_x), eps=ACCURACY, dtype=torch.complex128
    )
    samples = transform.forward(images.to(torch.complex128))
    return samples.reshape(n_slices, n_coils, *points.shape[:-1])


def _noisy(
    samples: Tensor,
    coil_images: Tensor,
    settings: ScanSettings,
    trajectory: NonuniformSettings,
    generator: torch.Generator,
    positions: tuple[float, ...],
) -> NonuniformScan:
    """Add noise; the truth is the root-sum-of-squares image, so its phase lies in the coils.

    Noise per sample is ``settings.noise`` of the truth's maximum where samples are one cycle per field of
    view apart; twice as many samples in the same time have the square root of two times that noise.
    """
    truth = coil_images.abs().square().sum(1, keepdim=True).sqrt()
    std = settings.noise * float(truth.max()) * math.sqrt(trajectory.oversampling)
    covariance = coil_covariance(settings.n_coils, std, settings.noise_correlation, generator)
    noise_generator = torch.Generator().manual_seed(settings.noise_seed + 2_000_003)
    noise = draw_noise(covariance, (samples.shape[0], *samples.shape[2:]), noise_generator).movedim(0, 1)
    return NonuniformScan(
        samples=(samples + noise).to(torch.complex64),
        points=trajectory.points(settings.matrix, settings.fov_mm),
        truth=truth.to(torch.complex64),
        coils=divided(coil_images, truth),
        noise_std=std,
        noise_covariance=covariance,
        trajectory=trajectory,
        fov_mm=settings.fov_mm,
        slice_positions_mm=positions,
        slice_thickness_mm=float(settings.slice_spacing_mm),
    )
