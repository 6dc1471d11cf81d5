r"""What the phase of an image is relative to.

An image is reconstructed jointly with coil maps of its own, S_k, and which smooth part of the phase lies in
the maps and which in the image x_k is not determined: only the coil images S_k x_k are measured. Images of
one slice (contrasts, sets, phases, repetitions, averages) therefore get their phase from maps that they
share, the normalised ones of the **first image of that slice in the stream**, S_1:

.. math:: x'_k = |x_k| \, p / |p|, \qquad p = \sum_c \overline{S_{1c}} \, S_{kc} \, x_k

With true sensitivities C and a true image m, S_k x_k = C m up to the error of the reconstruction, and S_1 = C
up to its smooth phase, so the phase difference of two images is that of their m, whatever phase each joint
estimate gave to its maps. The magnitude stays that of the reconstruction. Contrasts may come interleaved
and in any order: which image is the reference is decided by who comes first, and is said in the meta.

"The same slice" is the same encoding, slice counter, position, directions, grid and number of coils, all
exactly. Where any differs, as after a prospective correction of motion, the sensitivities are others, and a
new reference begins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget.scan.context import ScanContext
from gadget.wire.limits import MIB

KEPT_BYTES = 1024 * MIB
"""Memory for the maps of references: 256 slices of 256 x 256 pixels and 16 coils."""


@dataclass(frozen=True, slots=True)
class PhaseReference:
    """Whose maps a phase is relative to."""

    image_index: int
    label: str
    is_shared: bool
    """False where there was no memory left to keep the maps: phase differences to others mean nothing."""

    @property
    def words(self) -> str:
        """Return a sentence for the meta."""
        of_whom = f"the coil maps estimated with image {self.image_index} ({self.label})"
        if self.is_shared:
            return f"phase relative to that of {of_whom}, the first of this slice"
        return (
            f"phase relative to that of {of_whom} alone: no memory was left for maps that images of a slice "
            "share, so phase differences to its other images are not defined"
        )


@dataclass(frozen=True, slots=True)
class _Kept:
    maps: NDArray[np.float16]
    """(coil, y, x, 2): real and imaginary part. Half precision costs less than 0.001 rad."""
    reference: PhaseReference


class PhaseReferences:
    """The references of a stream's slices, in bounded memory.

    Where ``kept_bytes`` are full, slices that are new get no shared reference; those that have one keep it.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._bytes_left = kept_bytes
        self._kept: dict[object, _Kept] = {}

    def referred(
        self,
        image: NDArray[np.complex64],
        coils: NDArray[np.complex64],
        context: ScanContext,
        image_index: int,
    ) -> tuple[NDArray[np.complex64], PhaseReference]:
        """Return an image (y, x) with the phase that it has relative to the reference of its slice.

        ``coils`` (coil, y, x) are its own normalised maps; all zero, they are no reference for others.
        """
        key = _same_slice(context, coils.shape[0])
        kept = self._kept.get(key)
        if kept is not None:
            shared = _complex(kept.maps)
            return _with_phase_of(image, np.einsum("cyx,cyx->yx", shared.conj(), coils)), kept.reference
        n_bytes = coils.nbytes // 2
        fits, has_maps = n_bytes <= self._bytes_left, bool(coils.any())
        reference = PhaseReference(image_index, context.label(), is_shared=fits)
        if fits and has_maps:
            self._bytes_left -= n_bytes
            self._kept[key] = _Kept(_halved(coils), reference)
        return image, reference


def _same_slice(context: ScanContext, n_coils: int) -> object:
    return (
        context.encoding_index,
        context.slice,
        context.position,
        context.read_dir,
        context.phase_dir,
        context.slice_dir,
        context.grid_matrix,
        context.grid_fov_mm,
        n_coils,
    )


def _with_phase_of(image: NDArray[np.complex64], turn: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """Turn each pixel by the angle of ``turn``; where that is 0 it stays."""
    size = np.abs(turn)
    unit = np.where(size > 0, turn / np.where(size > 0, size, 1), 1)
    return (image * unit).astype(np.complex64)


def _halved(coils: NDArray[np.complex64]) -> NDArray[np.float16]:
    parts = np.ascontiguousarray(coils).view(np.float32).reshape(*coils.shape, 2)
    return parts.astype(np.float16)


def _complex(maps: NDArray[np.float16]) -> NDArray[np.complex64]:
    return maps.astype(np.float32).view(np.complex64)[..., 0]
