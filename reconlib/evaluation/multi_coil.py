"""Scans of several coils, simulated from magnitude images, whose truth is known.

As in :mod:`.single_coil` the images are cut to what was measured and noise well above their own is added;
coils and phase are smooth, but for patches of rough phase (:mod:`reconlib.simulation.scan`). What a method
reaches shows how it compares with others, and how honest its standard deviations are, not how good it is on a
scanner. For samples off the grid image, coils and phase are drawn on twice as many pixels along each axis.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from reconlib.evaluation.band_limit import cut_to_measured, own_noise_std
from reconlib.evaluation.off_grid import finer_magnitude
from reconlib.evaluation.single_coil import refuse_other_than_magnitude, seed_of
from reconlib.evaluation.study import FullScan
from reconlib.simulation.scan import scan_from_image
from reconlib.simulation.scan_settings import ScanSettings

LONGER_SIDE_MM = 220.0
"""Field of view of the simulated scan along the longer side of the image; pixels are square."""


def multi_coil_scan(
    name: str, image: Tensor, *, n_coils: int = 8, noise: float | int = 0.01, noise_factor: float | int = 2.0
) -> FullScan:
    """Measure a magnitude image, real (1, 1, y, x), completely with several coils.

    The noise per real component is ``noise`` times the maximum of the noise-free root-sum-of-squares image,
    which is the reference; but at least ``noise_factor`` times the image's own. Coils, phase and noise are
    drawn from generators that are seeded by the image, so an image always gets the same.

    Raises
    ------
    ValueError
        The image is no magnitude, or empty, or the noise is not positive.
    """
    refuse_other_than_magnitude(name, image)
    object_ = cut_to_measured(image.float())
    own = own_noise_std(object_) / float(object_.max())
    share = max(noise, noise_factor * own)
    n_y, n_x = object_.shape[-2:]
    pixel_mm = LONGER_SIDE_MM / max(n_y, n_x)
    seed = seed_of(image.float()) % 2**48
    settings = ScanSettings(
        matrix=(n_y, n_x),
        fov_mm=(n_y * pixel_mm, n_x * pixel_mm),
        n_coils=n_coils,
        pattern="full",
        noise=share,
        seed=seed,
        noise_seed=seed,
    )
    scan = scan_from_image(object_[0, 0].numpy(), settings)
    cut = f", cut from {image.shape[-2]} x {image.shape[-1]} to {n_y} x {n_x}"
    return FullScan(
        name=name,
        samples=scan.kspace.samples,
        noise_std=scan.kspace.noise_std,
        noise_source=f"added, {share:.4f} of the maximum (the image's own is about {own:.4f})"
        f"{cut if object_.shape != image.shape else ''}; {n_coils} simulated coils",
        reference=scan.truth.abs().to(torch.float32),
        fine_images=partial(_fine_coil_images, object_, settings),
        added_noise_std=scan.kspace.noise_std,
    )


def _fine_coil_images(image: Tensor, settings: ScanSettings) -> Tensor:
    """Return noise-free coil images on twice as many pixels: the same coils and phase, drawn that finely."""
    fine = finer_magnitude(image)
    n_y, n_x = fine.shape[-2:]
    scan = scan_from_image(fine[0, 0].numpy(), replace(settings, matrix=(n_y, n_x)))
    return scan.truth * scan.coils
