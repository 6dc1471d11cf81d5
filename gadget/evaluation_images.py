"""Magnitude images for the single-coil study, from the formats that training reads."""

from pathlib import Path

import numpy as np
import torch

from gadget.errors import FileError
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


def read_single_coil_scans(path: Path, *, n_images: int, noise_factor: float) -> list[FullScan]:
    """Read magnitude images and measure each with one coil of sensitivity 1.

    ``.npz``, ``.npy`` (image, y, x), or fastMRI ``.h5`` (``reconstruction_rss``), or a folder of them. Where
    the file marks images that validate, only those are used. ``n_images`` are taken, evenly spread.

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
                f"{path} is of the format {files[0].format}; the single-coil study reads arrays (.npy, .npz) "
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
    if not candidates:
        raise FileError(f"{path} has no image to scan.")
    chosen = sorted(
        {candidates[i] for i in np.linspace(0, len(candidates) - 1, n_images).round().astype(int)}
    )
    scans = []
    for index in chosen:
        image = torch.from_numpy(images.images[index].astype(np.float32))[None, None]
        try:
            scans.append(single_coil_scan(f"{path.stem} image {index}", image, noise_factor=noise_factor))
        except ValueError as error:
            raise FileError(f"{path}: {error}") from error
    return scans
