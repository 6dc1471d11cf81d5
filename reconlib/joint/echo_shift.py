r"""Steep linear phases taken out of the maps: k-space moved until its echo lies in the centre.

Where an echo is off the centre of k-space (gradient delays, a field across the object, flow), the coil images
carry a phase that turns by the same angle from each pixel to the next. mu F takes it for roughness of the
maps, pulls it out of them into the image, and smooths what it cannot move. A shift of k-space by s samples is
exactly a factor :math:`t(r) = e^{2 \pi i s r / n}` of the coil images, so the estimate is made for the moved
samples, and its maps are multiplied by t: the data term is the same, and F measures what is left.

s is the nearest whole number to the centroid of the energy, of all coils together,

.. math:: s = \mathrm{round}\Big( \frac{n}{2\pi} \arg \sum_k |z_k|^2 e^{2 \pi i k / n} \Big),

which is 0 for what was centred well; nothing changes there.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from reconlib.kspace import KSpace, NonuniformKSpace


def echo_centred(kspace: KSpace | NonuniformKSpace) -> tuple[KSpace | NonuniformKSpace, Tensor | None]:
    """Return k-space with its echo in the centre, and t: complex64 (slice, 1, y, x); None where all are 1."""
    if isinstance(kspace, NonuniformKSpace):
        shape = kspace.shape
        energy = kspace.samples.abs().square().sum(dim=1, dtype=torch.float64) * kspace.weights
        cycles = kspace.trajectory.expand(len(energy), -1, -1).double()
        shifts = torch.stack([_centroid(energy, cycles[..., axis]) * shape[axis] for axis in (0, 1)], dim=-1)
    else:
        shape = (kspace.samples.shape[-2], kspace.samples.shape[-1])
        found = torch.where(kspace.mask, kspace.samples, torch.zeros_like(kspace.samples))
        energy = found.abs().square().sum(dim=1, dtype=torch.float64)
        profiles = energy.sum(dim=-1), energy.sum(dim=-2)
        shifts = torch.stack(
            [_centroid(one, _cycles(n, one.device)) * n for one, n in zip(profiles, shape, strict=True)],
            dim=-1,
        )
    shifts = shifts.nan_to_num(0.0, 0.0, 0.0).round()
    if not bool(shifts.any()):
        return kspace, None
    turn = _turn(shifts, shape)
    if isinstance(kspace, NonuniformKSpace):
        sizes = shifts.new_tensor(shape)
        moved = kspace.trajectory - (shifts / sizes)[:, None].to(kspace.trajectory.dtype)
        return replace(kspace, trajectory=(moved + 0.5) % 1.0 - 0.5), turn
    whole = [tuple(-int(s) for s in row) for row in shifts.tolist()]
    samples, mask = (
        torch.stack([torch.roll(one, by, (-2, -1)) for one, by in zip(all_, whole, strict=True)])
        for all_ in (kspace.samples, kspace.mask)
    )
    return replace(kspace, samples=samples, mask=mask), turn


def _centroid(energy: Tensor, cycles: Tensor) -> Tensor:
    """Return the centroid in cycles per pixel, float64 (slice,): 0 where there is no energy."""
    turned = torch.polar(torch.ones_like(cycles), 2 * math.pi * cycles)
    return torch.angle((energy * turned).sum(dim=-1)) / (2 * math.pi)


def _cycles(n: int, device: torch.device) -> Tensor:
    return (torch.arange(n, dtype=torch.float64, device=device) - n // 2) / n


def _turn(shifts: Tensor, shape: tuple[int, int]) -> Tensor:
    """t: complex64 (slice, 1, y, x)."""
    y, x = (_cycles(n, shifts.device) for n in shape)
    angle = 2 * math.pi * (shifts[:, 0, None, None] * y[:, None] + shifts[:, 1, None, None] * x)
    return torch.polar(torch.ones_like(angle), angle).to(torch.complex64)[:, None]
