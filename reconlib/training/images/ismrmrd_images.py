"""ISMRMRD image files: HDF5 with ``group/image_N/{header, data, attributes}``, read without ismrmrd.

``data`` is (image, channel, z, y, x), real or a compound of ``real`` and ``imag``; ``header`` is one
ISMRMRD_ImageHeader per image.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reconlib.training.images.errors import DataError, reading
from reconlib.training.images.orientation import orientation_in_words
from reconlib.training.images.settings import ImageSettings
from reconlib.training.images.subjects import subject_of_file
from reconlib.training.images.volume import ImageFile, Notes, Volume

_TYPES = {2: "phase", 3: "real part", 4: "imaginary part", 6: "colour"}
"""image_type of the header that is no magnitude (1) and not complex (5)"""
_VOLUME_COUNTERS = ("contrast", "phase", "repetition", "set", "average")
_PATIENT = re.compile(rb"<(?:\w+:)?patientID>\s*([^<]*?)\s*<")


def image_groups(file: Any) -> dict[str, Any]:
    """Find the image groups of an open HDF5 file: those with ``data`` and a ``header`` of images."""
    import h5py

    found: dict[str, Any] = {}

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Group) and "data" in item and "header" in item:
            header, data = item["header"], item["data"]
            fields = (getattr(header, "dtype", None) and header.dtype.names) or ()
            if "matrix_size" in fields and isinstance(data, h5py.Dataset):
                found[str(name)] = item

    file.visititems(look)
    return found


def read_ismrmrd(
    files: Sequence[ImageFile], settings: ImageSettings, notes: Notes, step: Callable[[int], None]
) -> Iterator[Volume]:
    """Yield the volumes of each file: images alike in contrast, phase, repetition, set and average.

    Within one they are in the order of the header's ``slice``. Complex images become magnitudes. The
    subject is the header's patientID, hashed, or the file.
    """
    import h5py

    for file in files:
        with reading(file.name, "an ISMRMRD image file"):
            opened = h5py.File(file.path, "r")
        with opened:
            with reading(file.name, "an ISMRMRD image file"):
                name, group = _chosen(file.name, image_groups(opened), settings, notes)
                headers, data = np.atleast_1d(group["header"][()]), group["data"]
                identifier = _patient(opened, name)
            where = f"{file.name} ({name})"
            shape = data.shape
            if len(shape) != 5 or len(headers) != shape[0]:
                raise DataError(
                    f"{where}: data of shape {shape} with {len(headers)} headers is not "
                    "(image, channel, z, y, x) with a header for each image."
                )
            if shape[1] != 1:
                raise DataError(
                    f"{where} has {shape[1]} channels; training needs images whose coils are combined. "
                    "Combine them (root-sum-of-squares), or leave the file out (exclude)."
                )
            subject = subject_of_file(file.name, settings, identifier=identifier)
            yield from _volumes(file.name, name, subject, headers, data)
        step(1)


def _chosen(file: str, groups: dict[str, Any], settings: ImageSettings, notes: Notes) -> tuple[str, Any]:
    """Choose the image group by the settings, or the only one with magnitudes."""
    if settings.series is not None:
        named = {n: g for n, g in groups.items() if settings.series in (n, n.rpartition("/")[2])}
        if len(named) != 1:
            raise DataError(
                f"{file} has {'no' if not named else 'more than one'} image group {settings.series!r} "
                f"(series); it has {', '.join(groups)}."
            )
        ((name, group),) = named.items()
        kind = _kind(group)
        if kind is not None:
            raise DataError(
                f"{file} ({name}): its images are a {kind}; training needs magnitudes or complex."
            )
        return name, group
    usable = {name: group for name, group in groups.items() if _kind(group) is None}
    if not usable:
        kinds = ", ".join(f"{name} ({_kind(group)})" for name, group in groups.items())
        raise DataError(f"{file} has neither magnitude nor complex images; it has {kinds}.")
    if len(usable) > 1:
        raise DataError(
            f"{file} has several image groups: {', '.join(usable)}. Name the one to learn from by series "
            "(uncertainty maps, say, are no images to learn from)."
        )
    for name, group in groups.items():
        if name not in usable:
            notes.count(f"image groups with a {_kind(group)}", f"{file} ({name})")
    ((name, group),) = usable.items()
    return name, group


def _kind(group: Any) -> str | None:
    """Say what keeps the images of a group from being magnitudes."""
    header = group["header"]
    types = (
        {int(t) for t in np.atleast_1d(header["image_type"])} if "image_type" in header.dtype.names else set()
    )
    return next((_TYPES[t] for t in sorted(types) if t in _TYPES), None)


def _patient(file: Any, group: str) -> str | None:
    parent = group.rpartition("/")[0]
    xml = file[f"{parent}/xml"][()] if f"{parent}/xml" in file else b""
    text = xml.flat[0] if isinstance(xml, np.ndarray) and xml.size else xml
    found = _PATIENT.search(text.encode() if isinstance(text, str) else bytes(text))
    return found[1].decode(errors="replace") if found else None


def _volumes(file: str, part: str, subject: str, headers: NDArray[Any], data: Any) -> Iterator[Volume]:
    n_images, _, n_z, n_y, n_x = data.shape
    names = headers.dtype.names or ()
    counters = [c for c in _VOLUME_COUNTERS if c in names]
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in range(n_images):
        groups.setdefault(tuple(int(headers[c][i]) for c in counters), []).append(i)
    for indices in groups.values():
        if "slice" in names:
            indices.sort(key=lambda i: int(headers["slice"][i]))
        header = headers[indices[0]]

        def load(index: int, indices: list[int] = indices) -> NDArray[Any]:
            image = data[indices[index // n_z], 0, index % n_z]
            if image.dtype.names == ("real", "imag"):
                magnitude: NDArray[Any] = np.hypot(image["real"], image["imag"])
                return magnitude
            real: NDArray[Any] = np.abs(image) if image.dtype.kind == "c" else image
            return real

        yield Volume(
            files=(file,),
            part=part,
            subject=subject,
            matrix=(n_y, n_x),
            n_images=len(indices) * n_z,
            load=load,
            spacing_mm=_spacing(header, (n_y, n_x)),
            orientation=_orientation(header),
        )


def _spacing(header: Any, matrix: tuple[int, int]) -> tuple[float, float] | None:
    if "field_of_view" not in header.dtype.names:
        return None
    fov_x, fov_y = (float(mm) for mm in header["field_of_view"][:2])
    return (fov_y / matrix[0], fov_x / matrix[1]) if min(matrix) else None


def _orientation(header: Any) -> str | None:
    if not {"read_dir", "phase_dir"} <= set(header.dtype.names):
        return None
    return orientation_in_words(header["read_dir"], header["phase_dir"])
