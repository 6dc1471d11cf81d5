"""How high the energy of real images is: the yardstick for reconstructions."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.priors.card import EnergyPercentiles, RegionPercentiles
from reconlib.priors.signal_energy import brightness, signal_energy
from reconlib.priors.typicality import unusual_share
from reconlib.training.patches import fourier_crop

PERCENTILES = (0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0)
REGION_SIDE = 32
"""In pixels: coarse enough to average over the texture, fine enough to point at a place."""


def energy_percentiles(
    energy: Energy,
    images: Tensor,
    *,
    noise_std: float,
    resolutions: Sequence[float] = (1.0,),
    device: torch.device = torch.device("cpu"),
    batch: int = 8,
) -> EnergyPercentiles:
    """Return the percentiles of the energy of images, and of their regions where the energy is local.

    Parameters
    ----------
    energy
        On ``device``.
    images
        float (image, y, x): real magnitudes in the scale that the prior expects, on any device. The median of
        their brightness becomes that to which images are scaled.
    noise_std
        The card's ``gradient_noise_std``: the noise with which a reconstruction evaluates R.
    resolutions
        Every image is also cut, in k-space, to these fractions of its matrix, as the training images were.

    Notes
    -----
    :mod:`reconlib.priors.signal_energy` says what is measured. Images without signal do not count.
    """
    parts = [part.to(device).float()[:, None] for part in torch.split(images, batch)]
    brightness_to = float(np.median(torch.cat([brightness(part) for part in parts]).cpu()))
    whole, regions = [], []
    n_y, n_x = images.shape[-2:]
    for fraction in resolutions:
        matrix = (round(fraction * n_y), round(fraction * n_x))
        for part in parts:
            found = signal_energy(
                energy,
                part if fraction == 1 else fourier_crop(part, matrix),
                brightness_to=brightness_to,
                noise_std=noise_std,
                region_side=REGION_SIDE,
            )
            whole.append(found.per_pixel.cpu())
            if found.regions is not None:
                regions += list(found.regions.cpu())
    return EnergyPercentiles(
        per_pixel=_percentiles(torch.cat(whole).numpy()),
        noise_std=noise_std,
        n_images=len(images),
        brightness=brightness_to,
        resolutions=tuple(resolutions),
        regions=_of_regions(regions),
    )


def _of_regions(regions: Sequence[Tensor]) -> RegionPercentiles | None:
    with_signal = [one[~one.isnan()] for one in regions]
    with_signal = [one for one in with_signal if len(one)]
    if not with_signal:
        return None
    per_pixel = _percentiles(torch.cat(with_signal).numpy())
    shares = np.array([unusual_share(one, per_pixel) for one in with_signal])
    return RegionPercentiles(side=REGION_SIDE, per_pixel=per_pixel, unusual_share=_percentiles(shares))


def _percentiles(values: NDArray[np.float64]) -> dict[float, float]:
    found = np.nanpercentile(values, PERCENTILES)
    return {percent: float(f"{value:.5g}") for percent, value in zip(PERCENTILES, found, strict=True)}
