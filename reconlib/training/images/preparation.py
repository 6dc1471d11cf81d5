"""From volumes to images of one size and scale: checks, slices, scaling, empty images."""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from reconlib.training.images.errors import DataError, reading
from reconlib.training.images.settings import ImageSettings
from reconlib.training.images.volume import Notes, Volume, listed

_SMALLEST_SIDE = 8
_HIGHEST = 100.0
"""a pixel that is brighter, in the scale of its image, is a fault; float16 ends at 65504"""


@dataclass(slots=True)
class _Size:
    n_images: int = 0
    files: dict[str, None] = field(default_factory=dict)
    """a set that keeps its order"""


@dataclass(slots=True)
class Collection:
    """The images so far, in float16, with what is known about them."""

    settings: ImageSettings
    notes: Notes
    format_name: str = ""
    read_from: str = ""
    """how many files of which format"""
    images: list[NDArray[np.float16]] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    """of each image"""
    files: dict[str, set[str]] = field(default_factory=dict)
    """of each subject with images"""
    marks: dict[str, set[bool | None]] = field(default_factory=dict)
    """of each subject: whether its files say that it validates"""
    spacings: set[tuple[float, float]] = field(default_factory=set)
    n_without_spacing: int = 0
    orientations: set[str] = field(default_factory=set)
    sizes: dict[tuple[int, int], _Size] = field(default_factory=dict)
    _owners: dict[bytes, str] = field(default_factory=dict)

    def add(self, volume: Volume) -> None:
        """Take the images of a volume that pass. Once two sizes were seen only sizes are collected."""
        chosen = self._chosen(volume)
        if not chosen:
            return
        size = self.sizes.setdefault(volume.matrix, _Size())
        size.n_images += len(chosen)
        size.files.update(dict.fromkeys(volume.files))
        if min(volume.matrix) < _SMALLEST_SIDE:
            raise DataError(
                f"{volume.name} has images of {volume.matrix[0]} x {volume.matrix[1]} pixels (y, x), too "
                "small to be images. Is it an image? Are its axes (image, y, x)?"
            )
        if len(self.sizes) > 1:
            self.images.clear()
            return
        kept = self._scaled(volume, chosen)
        if not kept:
            return
        self.images += kept
        self.subjects += [volume.subject] * len(kept)
        self.files.setdefault(volume.subject, set()).update(volume.files)
        self.marks.setdefault(volume.subject, set()).add(volume.validation)
        if volume.orientation is not None:
            self.orientations.add(volume.orientation)
        spacing = volume.spacing_mm
        if spacing is not None and min(spacing) > 0 and np.isfinite(spacing).all():
            self.spacings.add(spacing)
        else:
            self.n_without_spacing += len(kept)

    def check_sizes(self) -> None:
        """Refuse images of several sizes, saying which files have which."""
        if len(self.sizes) < 2:
            return
        ranked = sorted(self.sizes.items(), key=lambda item: -item[1].n_images)
        each = [
            f"{y} x {x} ({s.n_images} image{'s' * (s.n_images != 1)}: {listed(list(s.files), len(s.files))})"
            for (y, x), s in ranked
        ]
        most = list(ranked[0][0])
        raise DataError(
            f"The images have {len(each)} sizes (y, x): {'; '.join(each)}. Training needs one. Choose "
            f"one by matrix, e.g. {most}, leave files out (files, exclude), or bring the images to one size."
        )

    def _chosen(self, volume: Volume) -> list[int]:
        """Number the images that the settings ask for: of one size, from the middle slices."""
        settings = self.settings
        if settings.matrix is not None and volume.matrix != settings.matrix:
            size = f"{volume.matrix[0]} x {volume.matrix[1]}"
            self.notes.count(f"images of {size}, by matrix", volume.name, volume.n_images)
            return []
        places = volume.places or tuple(range(volume.n_images))
        n_places = places[-1] + 1 if places else 0
        n_kept = min(max(round(settings.central_fraction * n_places), 1), n_places)
        if settings.central_count is not None:
            n_kept = min(n_kept, settings.central_count)
        first = (n_places - n_kept) // 2
        return [i for i, place in enumerate(places) if first <= place < first + n_kept]

    def _scaled(self, volume: Volume, chosen: list[int]) -> list[NDArray[np.float16]]:
        """Scale the images of a volume and drop those that cannot be used."""
        settings = self.settings
        whole = settings.scale_per == "volume"
        waiting: list[NDArray[np.float32]] = []  # a volume's images wait for the scale of all
        ready: list[NDArray[np.float16]] = []
        levels: list[float] = []
        scales: list[float] = []
        for i in chosen:
            image = self._checked(volume, i)
            low, high = float(image.min()), float(image.max())
            level = float(np.percentile(image, settings.percentile)) if high > low else 0.0
            scale = {"percentile": level, "maximum": high, "as-is": 1.0}[settings.scaling]
            levels.append(level)
            scales.append(scale)
            if whole:
                waiting.append(image)
            else:
                ready.append(_in_float16(image, scale))
        brightest = max(levels, default=0.0)
        if whole:
            ready = [_in_float16(image, max(scales)) for image in waiting]
        kept: list[NDArray[np.float16]] = []
        for i, image16, level in zip(chosen, ready, levels, strict=True):
            if level == 0 or level < settings.empty_below * brightest:
                self.notes.count("empty images (no signal, or nearly none)", volume.label(i))
            elif self._may_stay(image16, volume.label(i), volume.subject):
                kept.append(image16)
        return kept

    def _may_stay(self, image: NDArray[np.float16], where: str, subject: str) -> bool:
        highest = float(image.max())
        if highest > _HIGHEST:
            if self.settings.scaling == "as-is":
                raise DataError(
                    f"{where} has values up to {highest:.6g}, but scaling: as-is needs images scaled to "
                    "about 1. Use percentile or maximum."
                )
            self.notes.count(f"images with a pixel over {_HIGHEST:g} times their percentile", where)
            return False
        digest = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
        if self._owners.setdefault(digest, subject) != subject:
            self.notes.count("copies of an image of another subject", where)
            return False
        return True

    def _checked(self, volume: Volume, index: int) -> NDArray[np.float32]:
        """Read an image as float32 and refuse what is no magnitude."""
        with reading(volume.name, "images"):
            stored = volume.load(index)
        where = volume.label(index)
        kind = stored.dtype.kind
        if kind not in "uif":
            what = {"c": "complex", "b": "boolean (a mask?)"}.get(kind, f"of the type {stored.dtype}")
            remedy = "Store numpy.abs of them" if kind == "c" else "Convert them"
            raise DataError(
                f"{volume.name}: the images are {what}; training needs magnitudes, real numbers. "
                f"{remedy}, or leave the file out (exclude)."
            )
        if stored.shape != volume.matrix:
            raise DataError(
                f"{where} has the shape {stored.shape}, though the file announces {volume.matrix}."
            )
        with np.errstate(over="ignore"):
            image = np.ascontiguousarray(stored, dtype=np.float32)
        if not np.isfinite(image).all():
            n_nan = int(np.isnan(image).sum())
            if n_nan and self.settings.nan == "zero":
                image = np.where(np.isnan(image), np.float32(0), image)
            if not np.isfinite(image).all():
                n_infinite = int(np.isinf(image).sum())
                raise DataError(
                    f"{where} has {n_nan} NaN and {n_infinite} infinite (or beyond 3e38) of {image.size} "
                    "pixels; training needs finite magnitudes. Where NaN means background, set nan: zero."
                )
        low = float(image.min())
        if low < 0:
            if self.settings.negatives == "refuse":
                share = float((image < 0).mean())
                raise DataError(
                    f"{where} has negative values (down to {low:.6g}, {share:.1%} of the pixels); training "
                    "needs magnitudes. Real parts and phase images are none; where they are ringing of an "
                    "interpolation, set negatives: zero."
                )
            image = np.maximum(image, np.float32(0))
        return image


def _in_float16(image: NDArray[np.float32], scale: float) -> NDArray[np.float16]:
    """Divide by ``scale``; what float16 cannot hold becomes its largest value (it is dropped as a fault)."""
    # a scale of zero is that of an empty image, which is dropped
    scaled = image / np.float32(scale) if scale > 0 else image
    # torch converts several times as fast as numpy, and rounds alike
    half: NDArray[np.float16] = torch.from_numpy(np.minimum(scaled, np.float32(65504))).half().numpy()
    return half
