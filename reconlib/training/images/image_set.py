"""The images that a training run gets."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Magnitude images of one size, not negative, in a scale of about 1; no subject is in both parts."""

    training: Tensor
    """float16 (image, y, x)"""
    validation: Tensor
    """float16 (image, y, x), of other subjects"""
    n_training_subjects: int
    n_validation_subjects: int
    pixel_spacing_mm: tuple[float, float] | None
    """smallest and largest spacing of pixels, over images and axes; None where no file says it"""
    source: str
    """what the images are, in words for the card of a prior: no path, no name"""
    summary: str = ""
    """what was read, what was skipped and why, line by line, for the log: it names files"""
    orientation: str | None = None
    """plane and directions of rows and columns in the patient; None where no file says it"""
