"""Magnitude images for the simulated studies, from the formats that training reads."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gadget.errors import FileError
from reconlib.evaluation.multi_coil import multi_coil_scan
from reconlib.evaluation.single_coil import single_coil_scan
from reconlib.evaluation.study import FullScan
from reconlib.training.images.arrays import read_arrays
from reconlib.training.images.discovery import find_images
from reconlib.training.images.errors import DataError
from reconlib.training.images.fastmri import read_fastmri
from reconlib.training.images.preparation import Collection
from reconlib.training.images.settings import ImageSettings
from reconlib.training.images.volume import Notes

READERS = {"arrays": read_arrays, "fastmri": read_fastmri}
Part = Literal["all", "even", "odd"]


def read_single_coil_scans(
    path: Path, *, n_images: int, noise_factor: float, part: Part = "all"
) -> list[FullScan]:
    """Read magnitude images and measure each with one coil of sensitivity 1; see :func:`magnitude_images`."""
    return _scans(path, n_images, part, partial(single_coil_scan, noise_factor=noise_factor))


def read_multi_coil_scans(
    path: Path, *, n_images: int, n_coils: int, noise: float, noise_factor: float, part: Part = "all"
) -> list[FullScan]:
    """Read magnitude images and measure each with several coils; see :func:`magnitude_images`."""
    scan = partial(multi_coil_scan, n_coils=n_coils, noise=noise, noise_factor=noise_factor)
    return _scans(path, n_images, part, scan)


def magnitude_images(path: Path, *, n_images: int, part: Part = "all") -> dict[str, Tensor]:
    """Read magnitude images, float32 (1, 1, y, x), by name.

    ``.npz``, ``.npy`` (image, y, x), or fastMRI ``.h5`` (``reconstruction_rss``), or a folder of them. Where
    the file marks images that validate, only those are used. ``n_images`` are taken, evenly spread. The parts
    ``even`` and ``odd`` are of twice as many, so they share no image; both are as evenly spread.

    Raises
    ------
    FileError
        The images cannot be read or used; the text names the file.
    """
    settings = ImageSettings()
    notes = Notes()
    try:
        files = find_images(path, settings, notes)
        reader = READERS.get(files[0].format)
        if reader is None:
            raise FileError(
                f"{path} is of the format {files[0].format}; the simulated studies read arrays (.npy, .npz) "
                "and fastMRI's .h5."
            )
        images = Collection(settings, notes)
        for volume in reader(files, settings, notes, lambda _n: None):
            images.add(volume)
        images.check_sizes()
    except DataError as error:
        raise FileError(str(error)) from error
    validates = [i for i, subject in enumerate(images.subjects) if True in images.marks[subject]]
    candidates = validates or list(range(len(images.images)))
    if len(candidates) < (1 if part == "all" else 2):
        raise FileError(
            f"{path} has {len(candidates) or 'no'} image{'' if len(candidates) == 1 else 's'} to scan; "
            f"{'give at least one.' if part == 'all' else 'two parts need at least two.'}"
        )
    wanted = n_images if part == "all" else 2 * n_images
    spread = np.linspace(0, len(candidates) - 1, wanted).round().astype(int)
    chosen = sorted({candidates[i] for i in spread})
    first, step = {"all": (0, 1), "even": (0, 2), "odd": (1, 2)}[part]
    return {
        f"{path.stem} image {index}": torch.from_numpy(images.images[index].astype(np.float32))[None, None]
        for index in chosen[first::step]
    }


def _scans(path: Path, n_images: int, part: Part, scan: Callable[[str, Tensor], FullScan]) -> list[FullScan]:
    try:
        return [
            scan(name, image) for name, image in magnitude_images(path, n_images=n_images, part=part).items()
        ]
    except ValueError as error:
        raise FileError(f"{path}: {error}") from error
