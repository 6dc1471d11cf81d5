r"""The energy of what is in an image: of its signal, at a common brightness, without that of the noise.

The energy of an image with noise on it is mostly that of the noise, and that of a reconstruction depends on
its units, on the shading of the coils and on how much air there is. What is compared between images is
therefore

.. math:: \frac{R(m v + n) - R(n)}{\#\{r : r \text{ is signal}\}}

* v is the image, levelled: divided by its smooth brightness and multiplied by that of the images that it is
  compared with. The brightness of a neighbourhood is :math:`\overline{x^2} / \overline{|x|}`, a mean in which
  bright pixels count more: neither the air nor a few very bright pixels rule it, as the latter would rule a
  high percentile. Where it is below a quarter of that of the whole image it counts as a quarter: air stays
  dark.
* Signal are the cells of 8 x 8 pixels in which the mean of v exceeds a tenth of the brightness; m is 1 there
  and 0 elsewhere.
* n is one seeded field of the noise with which the prior is used, the same in both terms, so that its own
  energy cancels.

For a local energy the same is said of each region of the image.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from reconlib.energies.local import LocalEnergy
from reconlib.energies.protocol import Energy
from reconlib.energies.replayed import plain

CELL = 8
"""Side in pixels of the cells that are signal or air."""
DARK = 0.1
"""Cells whose mean is below this times the brightness are air."""
NEIGHBOURHOOD = 0.1
"""Standard deviation of the Gaussian window of the local brightness, over the image's side."""
DIMMEST = 0.25
"""Smallest local brightness, over that of the whole image."""
SEED = 20231


@dataclass(frozen=True, slots=True)
class SignalEnergy:
    """Energies of a batch of images over the pixels of their signal."""

    per_pixel: Tensor
    """float64 (slice,); NaN where there is no signal"""
    regions: Tensor | None
    """float64 (slice, rows, columns); NaN where less than half of a region is signal. None where the energy
    is not local."""


def brightness(image: Tensor) -> Tensor:
    r"""Return :math:`\sum x^2 / \sum |x|` of images (slice, 1, y, x): float64 (slice,); 0 where x is 0."""
    x = image.double().abs().flatten(1)
    return x.square().sum(1) / x.sum(1).clamp_min(torch.finfo(torch.float64).tiny)


def levelled(image: Tensor, brightness_to: float) -> Tensor:
    """Return images (slice, 1, y, x) without shading, at the given brightness everywhere: float64."""
    x = image.double()
    window_y, window_x = (_gaussian(size, x.device) for size in x.shape[-2:])
    total, weighted = window_y @ x.abs() @ window_x, window_y @ x.square() @ window_x
    tiny = torch.finfo(torch.float64).tiny
    local = torch.maximum(weighted / total.clamp_min(tiny), DIMMEST * brightness(x)[:, None, None, None])
    return brightness_to * x / local.clamp_min(tiny)


def signal_energy(
    energy: Energy, image: Tensor, *, brightness_to: float, noise_std: float, region_side: int
) -> SignalEnergy:
    """Return the energy of the signal of real images (slice, 1, y, x), in any units; see the module's text.

    The image is on the energy's device. ``noise_std`` is that of n, in units in which the brightness is
    ``brightness_to``. Regions are squares of ``region_side`` pixels, counted from the image's first pixel;
    the last ones may be cut.
    """
    level = levelled(image, brightness_to).float()
    signal = _signal(level, DARK * brightness_to)
    generator = torch.Generator().manual_seed(SEED)
    noise = noise_std * torch.randn((1, 1, *image.shape[-2:]), generator=generator).to(level)
    noisy = level * signal + noise
    n_signal = signal.sum(dim=(1, 2, 3)).double()
    local = plain(energy)
    if not isinstance(local, LocalEnergy):
        excess = energy.value(noisy).double() - energy.value(noise).double()
        return SignalEnergy(_per_pixel(excess, n_signal), None)
    excess_map = local.energy_map(noisy).double() - local.energy_map(noise).double()
    counts = _region_sums(signal.double(), region_side)
    sizes = _region_sums(torch.ones_like(excess_map[:1]), region_side)
    per_region = _per_pixel(_region_sums(excess_map, region_side), counts)
    regions = torch.where(2 * counts >= sizes, per_region, torch.nan)
    return SignalEnergy(_per_pixel(excess_map.sum(dim=(1, 2, 3)), n_signal), regions)


def _gaussian(size: int, device: torch.device) -> Tensor:
    place = torch.arange(size, dtype=torch.float64, device=device)
    return torch.exp(-0.5 * ((place[:, None] - place) / (NEIGHBOURHOOD * size)).square())


def _signal(image: Tensor, threshold: float) -> Tensor:
    """Where the cells are brighter than the threshold: bool, shaped as the image."""
    n_y, n_x = image.shape[-2:]
    means = functional.avg_pool2d(image, CELL, ceil_mode=True, count_include_pad=False)
    cells = means.abs() > threshold
    return cells.repeat_interleave(CELL, dim=-2).repeat_interleave(CELL, dim=-1)[..., :n_y, :n_x]


def _region_sums(values: Tensor, side: int) -> Tensor:
    """Sums over regions: (slice, 1, y, x) to (slice, rows, columns)."""
    n_y, n_x = values.shape[-2:]
    padded = functional.pad(values, (0, -n_x % side, 0, -n_y % side))
    return functional.avg_pool2d(padded, side)[:, 0] * side**2


def _per_pixel(total: Tensor, n_pixels: Tensor) -> Tensor:
    return torch.where(n_pixels > 0, total / n_pixels.clamp_min(1), torch.nan)
