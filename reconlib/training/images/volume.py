"""What the readers hand over: volumes of slices that are not read yet, and notes of what was left out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from reconlib.training.images.settings import Format


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One file and what it is called in messages: its path below the folder that is read."""

    path: Path
    name: str
    format: Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Images of one subject that were taken together: slices in order along the patient."""

    files: tuple[str, ...]
    """their names, sorted"""
    part: str = ""
    """of the file, where it has several"""
    labels: tuple[str, ...] | None = None
    """what each image is called in messages; else by file and number"""
    subject: str
    matrix: tuple[int, int]
    """(y, x)"""
    n_images: int
    load: Callable[[int], NDArray[Any]]
    """image ``i`` as stored, with the file's own slope and intercept: real numbers (y, x)"""
    spacing_mm: tuple[float, float] | None = None
    """between pixels, along (y, x); what is not positive counts as unknown"""
    orientation: str | None = None
    validation: bool | None = None
    """the file's own word on whether these images validate"""
    places: tuple[int, ...] | None = None
    """number of the slice position of each image, where several share one; else 0, 1, 2, ..."""

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.files[0]} ({self.part})" if self.part else self.files[0]

    def label(self, index: int) -> str:
        """Name an image for messages."""
        return f"{self.name}, image {index}" if self.labels is None else self.labels[index]


@dataclass(slots=True)
class Notes:
    """What was left out, and why."""

    _counts: dict[str, int] = field(default_factory=dict)
    _first: dict[str, str] = field(default_factory=dict)

    def count(self, what: str, example: str, n: int = 1) -> None:
        """Add ``n`` things of the kind ``what``."""
        self._counts[what] = self._counts.get(what, 0) + n
        self._first.setdefault(what, example)

    def lines(self) -> list[str]:
        """One line for each kind of thing."""
        return [f"left out: {n} {what} (first: {self._first[what]})" for what, n in self._counts.items()]


def listed(names: list[str], n: int, most: int = 3) -> str:
    """Join the first few of ``n`` names and say how many more there are."""
    text = ", ".join(names[:most])
    more = n - min(len(names), most)
    return f"{text} and {more} more" if more > 0 else text
