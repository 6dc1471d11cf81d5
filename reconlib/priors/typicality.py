"""How typical an image is under a prior, compared with the validation images of the prior's card.

The energy says how much structure, texture and noise an image has, relative to its brightness, beyond what
the prior takes for granted. Too little of it: blurred, too smooth, a phantom of flat parts. Too much: noise,
something that the prior does not know. :data:`CANNOT_SEE` says what a usual energy does not show.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from reconlib.priors.card import EnergyPercentiles, PriorCard
from reconlib.priors.library import Prior
from reconlib.priors.signal_energy import SignalEnergy, signal_energy

Word = Literal["typical", "unusual", "outside", "unknown"]

USUAL = (5.0, 95.0)
"""Percentiles of validation images between which an image is typical."""
MARGIN = 0.1
"""An image is outside where its energy leaves the range of all validation images by this times its width."""
USUAL_REGION = (1.0, 99.0)
"""Percentiles of the regions of validation images between which a region is usual."""
CANNOT_SEE = (
    "A typical energy does not prove that an image is right: a false or missing detail that is drawn as "
    "anatomy would be, weak aliasing and stripes, and a true image of something else with as much structure "
    "can all look typical."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Typicality:
    """What the prior makes of one image."""

    word: Word
    """Typical; unusual: as few validation images are; outside: as none is, by a margin; or unknown."""
    sentence: str
    """For the log and the image's meta; no final stop."""
    energy_per_pixel: float = math.nan
    """As :mod:`reconlib.priors.signal_energy` defines it; NaN where it is not known."""
    percentile: float = math.nan
    """Of the energy among the validation images; 0 and 100 also beyond them."""
    among_validation_images: bool | None = None
    """Whether the energy lies between the lowest and the highest of the validation images."""
    unusual_share: float | None = None
    """Share of the regions with signal that are unusual; for local energies."""
    region_map: Tensor | None = None
    """Percentile of each region's energy among those of validation images, float32 (rows, columns); NaN in
    air. For local energies."""
    region_side: int | None = None
    """In pixels; the regions are counted from the image's first pixel."""


def typicality(prior: Prior, image: Tensor) -> Typicality:
    """Compare the energy of a reconstruction with the percentiles in the card of its prior.

    The image (1, 1, y, x), complex or real, is on the prior's device and in any units: neither its scale nor
    the shading of the coils matters. Of a complex image, relative to the phase of the maps, the real part
    counts, as in the reconstruction. The cost is two evaluations of the energy.
    """
    known = prior.card.energy_percentiles
    if known is None or known.brightness is None:
        why = "no energies of validation images" if known is None else "only energies of an older kind"
        return _unknown(f"the card of {_named(prior.card)} has {why} to compare with")
    seen = image.real if image.is_complex() else image
    if not bool(torch.isfinite(seen).all()):
        return _unknown("the image has infinities or NaNs")
    if prior.card.input.values == "magnitude":
        seen = seen.abs()
    found = signal_energy(
        prior.energy,
        seen,
        brightness_to=known.brightness,
        noise_std=known.noise_std,
        region_side=known.regions.side if known.regions else 1,
    )
    if not bool(torch.isfinite(found.per_pixel).all()):
        return _unknown("the image has no signal, or its energy is not finite")
    return _judged(prior.card, known, found)


def unusual_share(regions: Tensor, per_pixel: Mapping[float, float]) -> float:
    """Return the share of regions whose energies are not usual; 0 where there are none. NaNs do not count."""
    energies = regions[~regions.isnan()]
    low, high = (_value_at(per_pixel, percent) for percent in USUAL_REGION)
    return float(((energies < low) | (energies > high)).double().sum()) / max(energies.numel(), 1)


def _judged(card: PriorCard, known: EnergyPercentiles, found: SignalEnergy) -> Typicality:
    energy = float(found.per_pixel)
    lowest, highest = min(known.per_pixel.values()), max(known.per_pixel.values())
    margin = MARGIN * (highest - lowest)
    word: Word = "unusual"
    if energy < lowest - margin or energy > highest + margin:
        word = "outside"
    elif _value_at(known.per_pixel, USUAL[0]) <= energy <= _value_at(known.per_pixel, USUAL[1]):
        word = "typical"
    percentile = float(_percentiles_of(known.per_pixel, found.per_pixel.cpu()))
    sentence = (
        f"the energy of its signal under {_named(card)} is {energy:.3g} per pixel, "
        f"{_place(energy, percentile, lowest, highest)} {known.n_images} validation images "
        f"({lowest:.3g} to {highest:.3g})"
    )
    share: float | None = None
    region_map: Tensor | None = None
    if known.regions is not None and found.regions is not None:
        per_pixel, regions = known.regions.per_pixel, found.regions[0].cpu()
        share = unusual_share(regions, per_pixel)
        if word == "typical" and share > _value_at(known.regions.unusual_share, USUAL[1]):
            word = "unusual"
        region_map = _percentiles_of(per_pixel, regions).float()
        sentence += f"; {100 * share:.0f} % of its regions are unusual"
    return Typicality(
        word=word,
        sentence=f"{word}: {sentence}",
        energy_per_pixel=energy,
        percentile=percentile,
        among_validation_images=lowest <= energy <= highest,
        unusual_share=share,
        region_map=region_map,
        region_side=None if region_map is None or known.regions is None else known.regions.side,
    )


def _place(energy: float, percentile: float, lowest: float, highest: float) -> str:
    if energy < lowest:
        return "below that of all"
    if energy > highest:
        return "above that of all"
    return f"at percentile {percentile:.0f} of"


def _unknown(why: str) -> Typicality:
    return Typicality(word="unknown", sentence=f"unknown: {why}")


def _named(card: PriorCard) -> str:
    return f"{card.name} {card.version}"


def _value_at(percentiles: Mapping[float, float], percent: float) -> float:
    levels = sorted(percentiles)
    return float(np.interp(percent, levels, [percentiles[level] for level in levels]))


def _percentiles_of(percentiles: Mapping[float, float], values: Tensor) -> Tensor:
    levels = sorted(percentiles)
    found = np.interp(values.numpy(), [percentiles[level] for level in levels], levels)
    return torch.where(values.isnan(), torch.nan, torch.from_numpy(found))
