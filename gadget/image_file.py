"""Image files: ISMRMRD HDF5, laid out as by ``ismrmrd.Dataset.append_image``, written whole or not at all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gadget.errors import FileError
from gadget.whole_hdf5 import new_hdf5_file
from gadget.wire.headers import IMAGE_HEADER
from gadget.wire.messages import TEXT_ENCODING, TEXT_ERRORS, Image

GROUP = "dataset"
COUNTERS = np.dtype(
    [(name, "<u2") for name in ("slice", "contrast", "phase", "repetition", "set", "average", "image_index")]
)
"""What tells the coil maps of a file apart; the values are those of the image that belongs to them."""


class ImageFile:
    """A file of images and arrays that is being written; made by :func:`new_image_file`."""

    def __init__(self, file: h5py.File, check: Callable[[], None]) -> None:
        self._group = file.require_group(GROUP)
        self._check = check

    def write_header(self, xml: str) -> None:
        """Store the XML header of the scan."""
        stored = self._group.require_dataset("xml", shape=(1,), dtype=h5py.special_dtype(vlen=bytes))
        stored[0] = xml.encode(TEXT_ENCODING, TEXT_ERRORS)
        self._check()

    def append_image(self, image: Image) -> None:
        """Append an image to ``image_<series index>``.

        One HDF5 array holds images of one size and type: others go to ``image_<series index>_2``, ``_3`` ...
        """
        pixels = _with_real_and_imag(image.data)
        series = f"image_{int(image.header['image_series_index'])}"
        folder = self._group.require_group(
            _first_fit(series, lambda name: _fits(self._group.get(f"{name}/data"), pixels))
        )
        # Readers decode the attributes as ASCII, and HDF5 texts end at a NUL.
        meta = image.meta.partition("\0")[0].encode("ascii", "xmlcharrefreplace").decode("ascii")
        header: NDArray[Any] = np.array(image.header, dtype=IMAGE_HEADER)
        header["attribute_string_len"] = len(meta)
        _append(folder, "header", header, IMAGE_HEADER)
        _append(folder, "attributes", np.array(meta, dtype=object), h5py.special_dtype(vlen=str))
        _append(folder, "data", pixels, pixels.dtype)
        self._check()

    def append_coils(self, coils: NDArray[np.complex64], header: Any) -> None:
        """Append the coil maps (coil, y, x) that belong to the image with this header.

        They are ISMRMRD arrays ``coils`` (another shape: ``coils_2`` ...), beside ``coils_counters``.
        """
        maps = _with_real_and_imag(coils)
        name = _first_fit("coils", lambda name: _fits(self._group.get(name), maps))
        counters: NDArray[Any] = np.zeros((), dtype=COUNTERS)
        for counter in COUNTERS.names or ():
            counters[counter] = header[counter]
        _append(self._group, name, maps, maps.dtype)
        _append(self._group, f"{name}_counters", counters, COUNTERS)
        self._check()


@contextmanager
def new_image_file(path: Path, *, overwrite: bool = False) -> Iterator[ImageFile]:
    """Open a file for images; it appears under its name when the block ends without an error, not before.

    Until then it is a temporary file in the same folder. Only its owner can read it: it holds patient data.
    """
    with new_hdf5_file(path, overwrite=overwrite) as (file, check):
        yield ImageFile(file, check)


def refuse_same_file(scan: Path, *outputs: Path | None) -> None:
    """Raise where a file would be written over the scan, or over another output."""
    seen = {scan.resolve(): "the scan"}
    for output in outputs:
        if output is None:
            continue
        if output.resolve() in seen:
            raise FileError(
                f"{output} is {seen[output.resolve()]} as well; choose another name for the output."
            )
        seen[output.resolve()] = "another output"


def _first_fit(name: str, fits: Callable[[str], bool]) -> str:
    number = 1
    while not fits(name if number == 1 else f"{name}_{number}"):
        number += 1
    return name if number == 1 else f"{name}_{number}"


def _fits(stored: h5py.Dataset | None, values: NDArray[Any]) -> bool:
    return stored is None or (stored.shape[1:] == values.shape and stored.dtype == values.dtype)


def _append(folder: h5py.Group, name: str, values: NDArray[Any], dtype: Any) -> None:
    if name not in folder:
        shape = (0, *values.shape)
        folder.create_dataset(
            name, shape, maxshape=(None, *values.shape), chunks=(1, *values.shape), dtype=dtype
        )
    stored = folder[name]
    stored.resize(stored.shape[0] + 1, axis=0)
    stored[-1] = values[()]


def _with_real_and_imag(values: NDArray[Any]) -> NDArray[Any]:
    """View complex numbers as the pairs that ISMRMRD files store."""
    if not np.iscomplexobj(values):
        return values
    part = values.real.dtype
    return np.ascontiguousarray(values).view(np.dtype([("real", part), ("imag", part)]))
