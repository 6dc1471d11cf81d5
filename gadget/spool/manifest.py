"""The list of scans in a spool: ``scans.jsonl``, a line for each scan that has ended, in the order of ends.

It is only ever appended to, a line at a time. What a crash leaves of a last line is passed over by readers.
It says nothing about who or what was scanned.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gadget.errors import FileError

NAME = "scans.jsonl"
WHOLE = "whole"
DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRecord:
    """A scan that has ended."""

    scan: str
    """Its name; the file in the spool, as long as it is there, is this and ``.h5`` or ``.stream``."""
    began: str
    """ISO 8601, UTC."""
    seconds: float | None
    """From first message to the end; None where a crash cut it off."""
    peer: str
    """What kind of peer sent it."""
    readouts: int
    """Single readouts and those in buckets; Gadgetron's buffers are not counted out."""
    bytes: int
    """On the wire, as far as they were kept."""
    images: int | None
    """Sent to the peer; None where a crash cut it off."""
    outcome: str
    """'done', or what failed, in words; with the number of fallback images, where there are any."""
    kept: str
    """'whole', or why not all of it is in the file, in words."""


class Manifest:
    """The list in one folder, opened for appending."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def append(self, record: ScanRecord) -> None:
        """Add a line, and bring it to the disk.

        Raises
        ------
        OSError
            The disk is full, or the file cannot be written.
        """
        line = json.dumps(asdict(record)).encode() + b"\n"
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":  # a crash, or a disk that was full
                line = b"\n" + line
            if os.write(handle, line) < len(line):
                raise OSError(f"only a part of a line could be written to {self._path}")
            os.fsync(handle)
        finally:
            os.close(handle)


def read_manifest(folder: Path) -> Iterator[ScanRecord]:
    """Yield the scans of a folder's list, in the order in which they ended; none where there is no list.

    Lines that are no records are passed over.

    Raises
    ------
    FileError
        The list cannot be read.
    """
    path = folder / NAME
    try:
        lines = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or error}.") from error
    for line in lines:
        record = _record_of(line)
        if record is not None:
            yield record


_TYPES: dict[str, tuple[type, ...]] = {
    "seconds": (float, int, type(None)),
    "readouts": (int,),
    "bytes": (int,),
    "images": (int, type(None)),
}


def _record_of(line: bytes) -> ScanRecord | None:
    try:
        values: Any = json.loads(line)
    except ValueError:
        return None
    names = [field.name for field in fields(ScanRecord)]
    if not isinstance(values, dict) or any(
        name not in values or not isinstance(values[name], _TYPES.get(name, (str,))) for name in names
    ):
        return None
    return ScanRecord(**{name: values[name] for name in names})
