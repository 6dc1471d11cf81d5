"""Whether a scan's slices are what its prior was made for: orientation and pixel spacing against the card.

* **Orientation.** The card says in words which planes the prior knows. A plane counts as known where its word
  stands in that text: axial (also transverse, transversal, transaxial), sagittal or coronal; a text without
  such a word, or with "any", says nothing about planes. A slice belongs to a plane where their normals make
  an angle of at most 45 degrees, so an oblique slice may belong to two. Only planes are compared, not what
  rows and columns are in the patient.
* **Pixel spacing.** The card gives the range of its training images. Both sides of the pixels that the prior
  sees (those of the assembled grid, before the image is interpolated) have to lie in it, to 1 %.

Where card or scan say nothing, nothing is compared and nothing is warned of. A mismatch never stops a
reconstruction.
"""

import math
import re
from dataclasses import dataclass

from gadget.scan.context import ScanContext, Vector
from reconlib.priors.card import InputCard, PriorCard

PLANES = {"sagittal": 0, "coronal": 1, "axial": 2}
"""The patient's axis (left-right, back-front, feet-head) along the normal of each plane."""
_NAMES = {"transverse": "axial", "transversal": "axial", "transaxial": "axial"}
LARGEST_TILT_DEGREES = 45.0
SPACING_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One way in which a scan is not what its prior was made for."""

    sentence: str
    """For the log and the meta; no final stop."""
    remark: str
    """A few words for the image's comment."""


def mismatches(card: PriorCard, context: ScanContext) -> tuple[Mismatch, ...]:
    """Compare a slice with the card of the prior that it is reconstructed with."""
    name = f"{card.name} {card.version}"
    found = (
        _orientation_mismatch(name, card.input, context.slice_dir),
        _spacing_mismatch(name, card.input, context),
    )
    return tuple(one for one in found if one is not None)


def known_planes(orientation: str | None) -> frozenset[str]:
    """Return the planes that a card's text names; none where it says nothing about them."""
    words = set(re.findall(r"[a-z]+", (orientation or "").lower()))
    if "any" in words:
        return frozenset()
    return frozenset(_NAMES.get(word, word) for word in words if _NAMES.get(word, word) in PLANES)


def tilts(normal: Vector) -> dict[str, float] | None:
    """Return the angle in degrees between a slice and each plane; None where the normal is not known."""
    length = math.hypot(*normal)
    if not 0 < length < math.inf:
        return None
    return {
        plane: math.degrees(math.acos(min(abs(normal[axis]) / length, 1.0))) for plane, axis in PLANES.items()
    }


def _orientation_mismatch(name: str, card: InputCard, normal: Vector) -> Mismatch | None:
    known, angles = known_planes(card.orientation), tilts(normal)
    if not known or angles is None or min(angles[plane] for plane in known) <= LARGEST_TILT_DEGREES:
        return None
    plane = min(angles, key=lambda one: angles[one])
    tilt = f", tilted by {angles[plane]:.0f} degrees" if round(angles[plane]) else ""
    return Mismatch(
        f"the slice is {plane}{tilt}, but the prior {name} was made for {' and '.join(sorted(known))} ones",
        f"the prior does not know {plane} slices",
    )


def _spacing_mismatch(name: str, card: InputCard, context: ScanContext) -> Mismatch | None:
    if card.pixel_spacing_mm is None:
        return None
    smallest, largest = card.pixel_spacing_mm
    sides = [fov / n for fov, n in zip(context.grid_fov_mm, context.grid_matrix, strict=True)]
    fits = [smallest / (1 + SPACING_TOLERANCE) <= side <= largest * (1 + SPACING_TOLERANCE) for side in sides]
    if all(fits):
        return None
    found, meant = f"{sides[0]:.3g} x {sides[1]:.3g} mm", f"{smallest:g} to {largest:g} mm"
    return Mismatch(
        f"the pixels are {found}, but the prior {name} was made for {meant}",
        f"the prior does not know pixels of {found}",
    )
