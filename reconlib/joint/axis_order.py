"""Cartesian problems with x and y exchanged, where that lets all transforms run along memory.

Where every measured line is complete along kx, the solver transforms along ky only
(:mod:`~reconlib.operators.fourier`). That is the second axis of a stack of images: an FFT along it returns
its result in another order of memory than that of the maps, and all products of both run at half speed or
less. So the whole problem is exchanged once, and its result back.
"""

from dataclasses import replace

import torch
from torch import Tensor

from reconlib.energies.orientation import OrientedEnergy
from reconlib.energies.protocol import Energy
from reconlib.energies.total_variation import TotalVariation
from reconlib.kspace import KSpace


def is_better_exchanged(kspace: KSpace) -> bool:
    """Whether lines are complete along kx, and not along ky."""
    mask = kspace.mask
    return bool((mask == mask[..., :1]).all()) and not bool((mask == mask[..., :1, :]).all())


def exchanged(kspace: KSpace) -> KSpace:
    """Return k-space with kx and ky exchanged."""
    return replace(kspace, samples=exchanged_axes(kspace.samples), mask=exchanged_axes(kspace.mask))


def exchanged_axes(images: Tensor) -> Tensor:
    """Exchange the last two axes, in memory, too."""
    return images.mT.clone(memory_format=torch.contiguous_format)


def seeing_exchanged(energy: Energy) -> Energy:
    """Return an energy that gives exchanged images the energy of the images."""
    return energy if isinstance(energy, TotalVariation) else OrientedEnergy(energy, transpose=True)
