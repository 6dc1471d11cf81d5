"""``load_images``: a file or folder of magnitude images, divided into training and validation."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from reconlib.training.images.arrays import read_arrays
from reconlib.training.images.dicom import read_dicom
from reconlib.training.images.discovery import FORMAT_NAMES, find_images
from reconlib.training.images.errors import DataError
from reconlib.training.images.fastmri import read_fastmri
from reconlib.training.images.image_set import ImageSet
from reconlib.training.images.ismrmrd_images import read_ismrmrd
from reconlib.training.images.nifti import read_nifti
from reconlib.training.images.preparation import Collection
from reconlib.training.images.settings import Format, ImageSettings
from reconlib.training.images.subjects import validation_subjects
from reconlib.training.images.volume import ImageFile, Notes, Volume

_Reader = Callable[[Sequence[ImageFile], ImageSettings, Notes, Callable[[int], None]], Iterator[Volume]]
_READERS: dict[Format, _Reader] = {
    "fastmri": read_fastmri,
    "ismrmrd": read_ismrmrd,
    "nifti": read_nifti,
    "dicom": read_dicom,
    "arrays": read_arrays,
}


def load_images(
    path: Path,
    settings: ImageSettings = ImageSettings(),
    *,
    on_file: Callable[[int, int], None] | None = None,
) -> ImageSet:
    """Read the magnitude images at ``path``: one file, or a folder with its subfolders.

    Files are read one after the other and kept as float16, so memory is about that of the result and of
    the largest file. The order of the images, and who validates, depend only on the files and the settings.

    ``on_file(done, total)`` is called after each file (DICOM: after each header and after each series).

    Raises
    ------
    DataError
        The images cannot be used; the text names the file and says what to do.
    """
    images = collect_images(path, settings, on_file=on_file)
    chosen = validation_subjects(images.files, images.marks, settings, images.notes.lines())
    return _image_set(images, chosen)


def collect_images(
    path: Path,
    settings: ImageSettings = ImageSettings(),
    *,
    on_file: Callable[[int, int], None] | None = None,
) -> Collection:
    """Read the images like ``load_images``, but do not divide them: one subject is enough."""
    notes = Notes()
    files = find_images(path, settings, notes)
    format_ = files[0].format
    done, total = 0, len(files) * (2 if format_ == "dicom" else 1)

    def step(n: int) -> None:
        nonlocal done
        done += n
        if on_file is not None and n:
            on_file(done, total)

    n_files = f"{len(files)} file{'s' * (len(files) != 1)} ({FORMAT_NAMES[format_]})"
    images = Collection(settings, notes, format_name=FORMAT_NAMES[format_], read_from=n_files)
    for volume in _READERS[format_](files, settings, notes, step):
        images.add(volume)
    images.check_sizes()
    if not images.images:
        left_out = "; ".join(notes.lines()) or "its files have none"
        raise DataError(f"{path} has no image to learn from: {left_out}.")
    return images


def _image_set(images: Collection, chosen: frozenset[str]) -> ImageSet:
    validates = [subject in chosen for subject in images.subjects]
    training, validation = _divided(images, validates)
    n_subjects, n_validation = len(images.files), len(chosen)
    mm = [value for spacing in images.spacings for value in spacing]
    spacing = (min(mm), max(mm)) if mm else None
    orientation = "; ".join(sorted(images.orientations)) or None
    n_y, n_x = training.shape[1:]
    counted = f"{len(validates)} images of {n_subjects} subjects"
    lines = [
        f"{counted}, {n_y} x {n_x} (y, x), from {images.read_from}",
        f"to train on: {len(training)} images of {n_subjects - n_validation} subjects; "
        f"to validate: {len(validation)} of {n_validation}",
        f"intensity: {_scaling_in_words(images.settings)}",
        f"orientation: {orientation or 'as stored (the files do not say it)'}",
        "pixel spacing: not stated"
        if spacing is None
        else f"pixel spacing: {spacing[0]:.3g} to {spacing[1]:.3g} mm",
    ]
    if spacing is not None and images.n_without_spacing:
        lines[-1] += f" ({images.n_without_spacing} images do not state it)"
    n_guessed = sum(subject in files for subject, files in images.files.items())
    if n_guessed and images.settings.subject != "file":
        lines.append(
            f"{n_guessed} files count as a subject each, for nothing says who they show: if several are of "
            "one subject, set subject or subject_pattern"
        )
    return ImageSet(
        training=training,
        validation=validation,
        n_training_subjects=n_subjects - n_validation,
        n_validation_subjects=n_validation,
        pixel_spacing_mm=spacing,
        source=f"{counted} ({images.format_name}), {_scaling_in_words(images.settings)}",
        summary="\n".join(lines + images.notes.lines()),
        orientation=orientation,
    )


def _divided(images: Collection, validates: list[bool]) -> tuple[Tensor, Tensor]:
    """Move the images into two tensors, freeing each as it goes."""
    matrix = images.images[0].shape
    n_validation = sum(validates)
    parts = {
        False: torch.empty((len(validates) - n_validation, *matrix), dtype=torch.float16),
        True: torch.empty((n_validation, *matrix), dtype=torch.float16),
    }
    free = {part: len(tensor) for part, tensor in parts.items()}
    for part in reversed(validates):
        free[part] -= 1
        parts[part][free[part]] = torch.from_numpy(images.images.pop())
    return parts[False], parts[True]


def _scaling_in_words(settings: ImageSettings) -> str:
    if settings.scaling == "as-is":
        return "as stored"
    what = "maximum" if settings.scaling == "maximum" else f"{settings.percentile:g}th percentile"
    return f"{what} of each {settings.scale_per} = 1"
