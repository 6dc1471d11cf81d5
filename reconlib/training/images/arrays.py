"""Arrays of numpy: .npy with images (image, y, x) or one image (y, x), and .npz with more about them.

An .npz holds the images as ``image_sqrt_u8`` (uint8, image = (v / 255) ** 2), as ``images``, or as its only
array of two or three dimensions; and, where known, one entry per image of ``subject`` (who), ``source``
(the file it came from, with ``:N`` for its place there) and ``validation`` (whether it validates).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reconlib.training.images.errors import DataError, reading
from reconlib.training.images.settings import ImageSettings
from reconlib.training.images.subjects import subject_of_file, subject_of_path
from reconlib.training.images.volume import ImageFile, Notes, Volume, listed

_ABOUT = ("subject", "source", "validation")
_ROOT = "image_sqrt_u8"


def read_arrays(
    files: Sequence[ImageFile],
    settings: ImageSettings,
    notes: Notes,  # noqa: ARG001  # all readers have one signature
    step: Callable[[int], None],
) -> Iterator[Volume]:
    """Yield a volume for all images of one subject and source."""
    for file in files:
        key, images, about = _read(file)
        yield from _volumes(file, key, images, about, settings)
        step(1)


def _read(file: ImageFile) -> tuple[str, NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the name of the array of images (none in .npy), the images, and what is said about them."""
    with reading(file.name, ".npy or .npz"), file.path.open("rb") as opened:
        if opened.read(2) != b"PK":
            images: NDArray[Any] = np.load(file.path, mmap_mode="r", allow_pickle=False)
            return "", images, {}
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as archive:
            key = _images_key(file.name, archive)
            arrays = {name: archive[name] for name in (key, *_ABOUT) if name in archive.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DataError(f"{file.name}: {name} is no array of numpy. Write it with numpy.savez.")
    return key, arrays.pop(key), arrays


def _images_key(name: str, archive: Any) -> str:
    for key in (_ROOT, "images"):
        if key in archive.files:
            return str(key)
    candidates = [key for key in archive.files if key not in _ABOUT and np.ndim(archive[key]) in (2, 3)]
    if len(candidates) != 1:
        raise DataError(
            f"{name} has {', '.join(archive.files) or 'no array'}; training needs the images as 'images' "
            f"(image, y, x), as '{_ROOT}', or as the only array of two or three dimensions."
        )
    return str(candidates[0])


def _volumes(
    file: ImageFile, key: str, images: NDArray[Any], about: dict[str, NDArray[Any]], settings: ImageSettings
) -> Iterator[Volume]:
    images = images[None] if images.ndim == 2 else images
    if images.ndim != 3:
        raise DataError(
            f"{file.name}: {key or 'the array'} has shape {images.shape}; training needs images "
            "(image, y, x) or one image (y, x)."
        )
    if key == _ROOT and images.dtype != np.uint8:
        raise DataError(
            f"{file.name}: {_ROOT} is {images.dtype}; it must be uint8, the square root of the image in "
            "steps of 1 / 255. Call the array 'images' if it is an image as it is."
        )
    for name, entries in about.items():
        if entries.shape != images.shape[:1]:
            raise DataError(
                f"{file.name}: {name} has shape {entries.shape}; {len(images)} images need one entry each."
            )
    marks: list[bool | None] = [None] * len(images)
    if "validation" in about:
        marks = _marks(file.name, about["validation"])
    people = _people(file, about, marks, settings)
    groups: dict[tuple[str, str, bool | None], list[int]] = {}
    for i in range(len(images)):
        groups.setdefault((*people[i], marks[i]), []).append(i)
    for (subject, _, mark), indices in groups.items():

        def load(index: int, indices: list[int] = indices) -> NDArray[Any]:
            image: NDArray[Any] = images[indices[index]]
            return _undo_root(image, settings.seed, indices[index]) if key == _ROOT else image

        yield Volume(
            files=(file.name,),
            labels=tuple(f"{file.name}, image {i}" for i in indices),
            subject=subject,
            matrix=(int(images.shape[1]), int(images.shape[2])),
            n_images=len(indices),
            load=load,
            validation=mark,
        )


def _marks(name: str, entries: NDArray[Any]) -> list[bool | None]:
    if entries.dtype.kind not in "bui" or not np.isin(entries, (0, 1)).all():
        values = listed([str(entry) for entry in entries[:3]], len(entries))
        raise DataError(
            f"{name}: validation is {entries.dtype} with the values {values}; "
            "it must be true or false (1 or 0) for each image."
        )
    return [bool(entry) for entry in entries]


def _people(
    file: ImageFile, about: dict[str, NDArray[Any]], marks: list[bool | None], settings: ImageSettings
) -> list[tuple[str, str]]:
    """Name subject and source of each image."""
    n = len(marks)
    sources = [file.name] * n
    if "source" in about:
        sources = [str(entry).rpartition(":")[0] or str(entry) for entry in about["source"]]
    if "subject" in about:
        return list(zip([str(entry) for entry in about["subject"]], sources, strict=True))
    if "source" in about:
        if settings.subject_pattern is not None:
            return [(subject_of_file(source, settings), source) for source in sources]
        return [(subject_of_path(source), source) for source in sources]
    subject = subject_of_file(file.name, settings)
    if settings.own_validation and any(marks):
        # nobody says who is who, but the file says that the two parts are different people
        return [(f"{subject} ({'validation' if mark else 'training'})", file.name) for mark in marks]
    return [(subject, file.name)] * n


def _undo_root(stored: NDArray[Any], seed: int, index: int) -> NDArray[Any]:
    """Square what was rounded to 8 bits, with a dither of half a step in place of the steps."""
    if not stored.any():
        return stored
    dither = np.random.default_rng((seed, index)).random(stored.shape, dtype=np.float32) - np.float32(0.5)
    image: NDArray[Any] = np.square(np.maximum(stored + dither, 0) / np.float32(255))
    return image
