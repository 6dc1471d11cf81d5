"""The groups of an HDF5 file: which hold scans, and how to open what is in them.

Nothing in a damaged file leads to another error than this project's own: what cannot be opened is passed over
where it is not needed, and is a :class:`FileError` where it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from gadget.errors import FileError


def scan_groups(file: h5py.File) -> tuple[str, ...]:
    """Return the names of the groups that hold readouts, in order; damaged ones are passed over."""
    names = []
    for name, item in objects_of(file):
        folder, _, last = name.rpartition("/")
        if last == "data" and folder and is_list_of_readouts(item):
            names.append(folder)
    return tuple(sorted(names))


def objects_of(file: h5py.File) -> Iterator[tuple[str, Any]]:
    """Yield name and object of every group and dataset that can be opened; links are not followed."""
    names: list[str] = []
    try:
        file.visit(names.append)
    except (OSError, RuntimeError, KeyError, ValueError):
        names += [name for name in names_in(file) if name not in names]
    for name in names:
        # A name that is no text comes as bytes.
        item = opened(file, name) if isinstance(name, str) else None
        if item is not None:
            yield name, item


def scan_group(file: h5py.File, path: Path, group: str) -> h5py.Group:
    """Return a group by its name; which ones hold scans is said where it is not there."""
    found = opened(file, group)
    if isinstance(found, h5py.Group):
        return found
    there = scan_groups(file)
    if there:
        hint = f"it has the scan{'s' * (len(there) > 1)} {', '.join(there)}. Choose one with --group"
    else:
        groups = sorted(name for name in names_in(file) if isinstance(opened(file, name), h5py.Group))
        hint = f"it has {', '.join(groups)}, none with readouts" if groups else "it has no groups at all"
    raise FileError(f"{path} has no group '{group}'; {hint}.")


def is_image_series(item: Any) -> bool:
    """Whether an object is a group of images, as ``ismrmrd.Dataset.append_image`` lays them out."""
    return isinstance(item, h5py.Group) and all(
        isinstance(opened(item, name), h5py.Dataset) for name in ("header", "data")
    )


def is_list_of_readouts(stored: Any) -> bool:
    return (
        isinstance(stored, h5py.Dataset)
        and stored.ndim == 1
        and {"head", "traj", "data"} <= fields_of(stored)
    )


def fields_of(stored: h5py.Dataset) -> set[str]:
    """Return the names of a dataset's fields; none where it has no fields, or its type is damaged."""
    try:
        return set(stored.dtype.names or ())
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        return set()


def elsewhere(folder: h5py.Group) -> str:
    """Name the other groups of the file that hold scans, for the end of an error."""
    others = [name for name in scan_groups(folder.file) if name != name_of(folder)]
    return f" Scans are in: {', '.join(others)}. Choose one with --group." if others else ""


def name_of(folder: h5py.Group) -> str:
    return str(folder.name).strip("/")


def names_in(folder: h5py.Group) -> list[str]:
    try:
        return [name for name in folder if isinstance(name, str)]
    except (OSError, RuntimeError, KeyError, ValueError):
        return []


def opened(folder: h5py.Group, name: str) -> Any:
    """Return the object of this name; None where there is none, or where it cannot be opened."""
    try:
        return folder.get(name)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        return None


def required(folder: h5py.Group, name: str, path: Path) -> Any:
    """Return the object of this name; None where there is none. One that cannot be opened is an error."""
    found = opened(folder, name)
    if (
        found is None
        and name in names_in(folder)
        and folder.get(name, getlink=True, getclass=True) is h5py.HardLink
    ):
        raise FileError(
            f"Cannot open '{name_of(folder)}/{name}' of {path}, though it is there. The file is damaged."
        )
    return found


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn what HDF5 raises on damaged data into an error of the file."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise FileError(f"Cannot read {what} of {path}: {error}. The file is damaged.") from error
