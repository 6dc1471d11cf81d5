"""How high the energy of real images is: the yardstick for reconstructions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy

PERCENTILES = (0.0, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0)


def energies_per_pixel(
    energy: Energy, images: Tensor, *, noise_std: float, generator: torch.Generator, batch: int = 8
) -> Tensor:
    """Return R per pixel of each image with noise on it, float32 (image,).

    ``images`` (image, y, x) are real magnitudes in the scale that the prior expects, on any device;
    ``noise_std`` is the card's ``gradient_noise_std``: the noise with which a reconstruction evaluates R.
    ``generator`` is on the energy's device.
    """
    n_y, n_x = images.shape[-2:]
    found = []
    for part in torch.split(images, batch):
        point = part.to(generator.device).float()[:, None]
        noise = torch.randn(point.shape, generator=generator, device=generator.device)
        found.append(energy.value(point + noise_std * noise).cpu() / (n_y * n_x))
    return torch.cat(found)


def energy_percentiles(
    energy: Energy,
    images: Tensor,
    *,
    noise_std: float,
    generator: torch.Generator,
    percentiles: Sequence[float] = PERCENTILES,
) -> dict[float, float]:
    """Return percentile -> R per pixel over the images; see :func:`energies_per_pixel`."""
    values = energies_per_pixel(energy, images, noise_std=noise_std, generator=generator).double()
    levels = torch.tensor(percentiles, dtype=torch.float64) / 100
    found = torch.quantile(values, levels)
    return {float(p): float(v) for p, v in zip(percentiles, found, strict=True)}
