"""Which files of a folder hold images, and in which format."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from reconlib.training.images.errors import DataError, reading
from reconlib.training.images.settings import Format, ImageSettings
from reconlib.training.images.volume import ImageFile, Notes, listed

FORMAT_NAMES: dict[Format, str] = {
    "fastmri": "fastMRI .h5",
    "ismrmrd": "ISMRMRD image file",
    "nifti": "NIfTI",
    "dicom": "DICOM",
    "arrays": ".npy or .npz",
}
_SUFFIXES: dict[str, tuple[Format, ...]] = {
    ".nii": ("nifti",),
    ".nii.gz": ("nifti",),
    ".npy": ("arrays",),
    ".npz": ("arrays",),
    ".dcm": ("dicom",),
    ".ima": ("dicom",),
    ".h5": ("fastmri", "ismrmrd"),
    ".hdf5": ("fastmri", "ismrmrd"),
    ".mrd": ("fastmri", "ismrmrd"),
}
_HDF5 = b"\x89HDF\r\n\x1a\n"


def find_images(path: Path, settings: ImageSettings, notes: Notes) -> list[ImageFile]:
    """Return the image files at ``path`` (a file, or a folder with its subfolders), sorted by name.

    The format is told by content, by the suffix where content does not say. Hidden files, files of no
    format that is known here and whatever is no plain file (a pipe, say) are left out. Links are followed; a
    file or folder that is reached twice is read once.

    Raises
    ------
    DataError
        Nothing there; several formats and none chosen; a file that has a name of a format and not its
        content.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist. Give a file or a folder of images.")
    names = sorted(_walk(path)) if path.is_dir() else [(_printable(path.name), path)]
    wanted = [(name, file) for name, file in names if _wanted(name, settings)]
    if not wanted:
        found = f"{len(names)} files, none of which files and exclude let through" if names else "no files"
        raise DataError(f"{path} has {found}. Training needs a file or a folder of images.")
    found_files: list[ImageFile] = []
    others: list[str] = []
    seen: dict[tuple[int, int], str] = {}
    for name, file in wanted:
        format_ = _format_of(name, file, settings.format)
        if format_ is None:
            others.append(name)
            continue
        status = file.stat()
        if (status.st_dev, status.st_ino) in seen:
            notes.count("second names of one file", name)
            continue
        seen[status.st_dev, status.st_ino] = name
        found_files.append(ImageFile(file, name, format_))
    return _one_format(path, found_files, others, settings.format, notes)


def _one_format(
    path: Path, files: list[ImageFile], others: list[str], wanted: str, notes: Notes
) -> list[ImageFile]:
    if wanted != "auto":
        foreign = [file.name for file in files if file.format != wanted]
        files, others = [file for file in files if file.format == wanted], others + foreign
    formats = sorted({file.format for file in files})
    if len(formats) > 1:
        each = []
        for format_ in formats:
            names = [file.name for file in files if file.format == format_]
            each.append(f"{FORMAT_NAMES[format_]} ({listed(names, len(names))})")
        raise DataError(
            f"{path} mixes formats: {'; '.join(each)}. "
            f"Choose one by format: {' or '.join(formats)}, or leave files out (files, exclude)."
        )
    if not files:
        kinds = Counter("".join(Path(name).suffixes[-2:]) or "no suffix" for name in others)
        looked_for = ", ".join(FORMAT_NAMES.values()) if wanted == "auto" else FORMAT_NAMES[wanted]  # type: ignore[index]  # a Format here
        raise DataError(
            f"{path} has no image in the format looked for ({looked_for}), but "
            f"{', '.join(f'{n} x {kind}' for kind, n in kinds.most_common(5))} (first: {others[0]}). "
            "Convert the images, or correct format."
        )
    if others:
        notes.count("files that are not of this format", others[0], len(others))
    return files


def _wanted(name: str, settings: ImageSettings) -> bool:
    return (settings.files is None or _matches(name, settings.files)) and not any(
        _matches(name, pattern) for pattern in settings.exclude
    )


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition("/")[2], pattern)


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    visited: set[tuple[int, int]] = set()

    def give_up(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be listed: {error.strerror}. Check its permissions.")

    for here, folders, files in os.walk(folder, followlinks=True, onerror=give_up):
        status = Path(here).stat()
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__MACOSX")
        for file in files:
            if not file.startswith("."):
                path = Path(here, file)
                yield _printable(path.relative_to(folder).as_posix()), path


def _printable(name: str) -> str:
    """Replace what a terminal cannot show, or should not."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _suffix(name: str) -> str:
    suffixes = [s.lower() for s in Path(name).suffixes[-2:]]
    return ".nii.gz" if suffixes == [".nii", ".gz"] else (suffixes[-1] if suffixes else "")


def _format_of(name: str, file: Path, wanted: str) -> Format | None:
    """Tell the format of a file; None: not of one known here."""
    expected = _SUFFIXES.get(_suffix(name), ())
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        with file.open("rb") as opened:
            start = opened.read(352)
    except OSError as error:
        if not expected:
            return None
        if file.is_symlink() and error.errno in (errno.ENOENT, errno.ELOOP):
            raise DataError(
                f"{name} is a link that leads nowhere; fetch its content (datalad get, git annex get), or "
                "leave it out (exclude)."
            ) from error
        raise DataError(f"{name} cannot be opened: {error.strerror}. Check its permissions.") from error
    if start[128:132] == b"DICM":
        return None if Path(name).name.upper() == "DICOMDIR" else "dicom"
    if start[:8] == _HDF5:
        return _hdf5_format(name, file, wanted)
    if start[:6] == b"\x93NUMPY":
        return "arrays"
    if start[344:348] == b"n+1\0" or start[4:8] == b"n+2\0":
        return "nifti"
    if expected[:1] == ("nifti",) or (expected == ("arrays",) and start[:2] == b"PK"):
        return expected[0]
    if expected and (wanted == "auto" or wanted in expected):
        size = "is empty (0 bytes)" if status.st_size == 0 else "is named like one and is none inside"
        hint = ", no 'DICM' at byte 128" if expected == ("dicom",) and status.st_size else ""
        raise DataError(
            f"{name} cannot be read as {FORMAT_NAMES[expected[0]]}: it {size}{hint}. "
            "Replace it, or leave it out (exclude)."
        )
    return None


def _hdf5_format(name: str, file: Path, wanted: str) -> Format | None:
    import h5py

    from reconlib.training.images.ismrmrd_images import image_groups

    with reading(name, "HDF5"), h5py.File(file, "r") as opened:
        keys = [str(key) for key in opened]
        if "reconstruction_rss" in keys:
            return "fastmri"
        if image_groups(opened):
            return "ismrmrd"
        raw = any(isinstance(opened[key], h5py.Group) and "data" in opened[key] for key in keys)
    if wanted in ("nifti", "dicom", "arrays"):
        return None
    if "kspace" in keys:
        found = "k-space without 'reconstruction_rss' (a test set of fastMRI?)"
    elif raw:
        found = "raw data without images (reconstruct it first)"
    else:
        has = listed(keys, len(keys), 5) or "nothing"
        found = f"neither 'reconstruction_rss' (fastMRI) nor image groups (ISMRMRD), but {has}"
    raise DataError(f"{name} has {found}. Magnitude images are needed; training leaves files out by exclude.")
