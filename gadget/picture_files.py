"""A PNG picture for each image, to look at."""

from pathlib import Path

import numpy as np

from gadget.errors import FileError
from gadget.figures import save_image
from gadget.wire.messages import Image


def save_picture(folder: Path, image: Image, *, overwrite: bool) -> None:
    """Save an image as ``image_1_0001_slice_3.png``: series, number, slice."""
    header = image.header
    series, index, slice_ = (int(header[name]) for name in ("image_series_index", "image_index", "slice"))
    n_x, n_y, _ = (int(size) for size in header["matrix_size"])
    fov_x, fov_y, _ = (float(size) for size in header["field_of_view"])
    pixel_mm = (fov_y / n_y, fov_x / n_x) if min(fov_x, fov_y) > 0 else (1.0, 1.0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot make the folder {folder} for pictures: {error}.") from error
    path = folder / f"image_{series}_{index:04d}_slice_{slice_}.png"
    save_image(path, np.abs(image.data[0, 0]).astype(np.float32), pixel_mm=pixel_mm, overwrite=overwrite)
