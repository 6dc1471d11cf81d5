r"""Samples off the grid, radial and spiral, of scans that are completely known on it.

What is measured comes from coil images of twice as many pixels along each axis, by a transform that is exact
to 1e-9, and never from the pixels that a reconstruction solves for. Where a scan is measured k-space, these
are its coil images, interpolated by zeros round their k-space; where it is simulated, they are drawn at that
fineness (:attr:`reconlib.evaluation.study.FullScan.fine_images`).

Readouts have two samples per cycle per field of view, as scanners take them; twice as many samples in the
same time have the square root of two times the noise. The noise that a simulated scan adds is drawn anew for
each sample. The noise of measured k-space cannot be: it comes along in the images, so it is alike in
neighbouring samples, each of which has the standard deviation s of the k-space. Two that are alike tell as
much as two independent ones of :math:`\sqrt 2\, s`, which is the level that is stated. Where readouts are
dense (the centre) no level is right; noise that is added, beyond that of the k-space, helps.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from reconlib.evaluation.study import Case, FullScan
from reconlib.kspace import NonuniformKSpace
from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.simulation.nonuniform_scan import FINENESS, transform_at
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.trajectories.coordinates import transform_points
from reconlib.trajectories.density import density_weights
from reconlib.trajectories.radial import spoke_geometry

OFF_GRID: dict[str, NonuniformSettings] = {
    "true-radial-45": NonuniformSettings(n_readouts=45),
    "true-golden-34": NonuniformSettings(n_readouts=34, order="golden"),
    "true-spiral-3": NonuniformSettings(shape="spiral", n_readouts=11, n_full=33),
}
"""Pattern by name: 45 spokes at equal angles, 34 at golden angles, every third interleave of a spiral.

They fill the disc that touches the edges of a matrix with square pixels."""


def off_grid_cases(scan: FullScan, patterns: Sequence[str]) -> list[Case]:
    """Return what a scanner would have measured along some of the patterns :data:`OFF_GRID`."""
    if not patterns:
        return []
    images = finer(scan.samples) if scan.fine_images is None else scan.fine_images()
    return [
        Case(scan=scan, pattern=name, at_points=measured_along(scan, images, OFF_GRID[name]))
        for name in patterns
    ]


def measured_along(scan: FullScan, images: Tensor, trajectory: NonuniformSettings) -> NonuniformKSpace:
    """Return samples of a scan's fine images (1, coil, 2 y, 2 x) along a trajectory; pixels are square.

    The noise that is added is seeded by the scan's samples, so a scan always gets the same.
    """
    matrix = scan.matrix
    points = trajectory.points(matrix, (float(matrix[0]), float(matrix[1])))
    samples = transform_at(images, points).flatten(2) / FINENESS
    denser = math.sqrt(trajectory.oversampling)
    if scan.added_noise_std > 0:
        seed = int.from_bytes(hashlib.sha256(scan.samples.numpy().tobytes()).digest()[:7], "little")
        generator = torch.Generator().manual_seed(seed)
        noise = torch.complex(*torch.randn(2, *samples.shape, generator=generator, dtype=torch.float64))
        samples = samples + denser * scan.added_noise_std * noise
    square = points * np.array([1.0, matrix[1] / matrix[0]])
    return NonuniformKSpace(
        samples=samples.to(torch.complex64),
        trajectory=transform_points(points, matrix),
        weights=density_weights(points, matrix, geometry=spoke_geometry(square))[None].float(),
        shape=matrix,
        noise_std=denser * scan.noise_std,
    )


def finer(samples: Tensor) -> Tensor:
    """Return the images of k-space (..., ky, kx) on twice as many pixels along each axis; complex64.

    Pixel 2 j of the finer grid, counted from the centre, has the value of pixel j.
    """
    n_y, n_x = samples.shape[-2:]
    wide = samples.new_zeros((*samples.shape[:-2], FINENESS * n_y, FINENESS * n_x))
    top, left = (FINENESS * n // 2 - n // 2 for n in (n_y, n_x))
    wide[..., top : top + n_y, left : left + n_x] = samples
    images: Tensor = FINENESS * ifft2c(wide)
    return images


def finer_magnitude(image: Tensor) -> Tensor:
    """Return a real image (..., y, x) on twice as many pixels along each axis, float32."""
    return finer(fft2c(image.to(torch.complex64))).real
