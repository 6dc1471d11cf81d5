"""The names of spooled scans: when they began, and a number. Nothing of what is in them."""

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gadget.spool.stream_file import SUFFIX as STREAM_SUFFIX

logger = logging.getLogger(__name__)

HDF5_SUFFIX = ".h5"
SUFFIXES = (STREAM_SUFFIX, HDF5_SUFFIX)

_TIME = "%Y%m%dT%H%M%SZ"
_SCAN = r"scan-(\d{8}T\d{6}Z)-\d{4,}"
_NAME = re.compile(_SCAN)
_FILE = re.compile(rf"({_SCAN})({'|'.join(map(re.escape, SUFFIXES))})")
_UNFINISHED = re.compile(rf"\.{_SCAN}{re.escape(HDF5_SUFFIX)}\..*\.part")


def new_name(began: datetime, number: int) -> str:
    """Return the name of a scan that began at this time (UTC); the number tells it from others."""
    return f"scan-{began.strftime(_TIME)}-{number:04d}"


def time_of(name: str) -> datetime | None:
    """Return when the scan of this name began; None where it is no name of a scan."""
    found = _NAME.fullmatch(name)
    try:
        return datetime.strptime(found[1], _TIME).replace(tzinfo=UTC) if found else None
    except ValueError:  # the thirtieth of February
        return None


def where_it_is(path: Path) -> Path:
    """Return where the file of a recorded scan is; logged where it is not the one that was named.

    A scan of a spool changes its ending soon after its end, so one that was just listed may have the other
    by now. Any other path is returned as it is.
    """
    if path.suffix in SUFFIXES and _NAME.fullmatch(path.stem) and not path.exists():
        (other,) = (path.with_suffix(suffix) for suffix in SUFFIXES if suffix != path.suffix)
        if other.is_file():
            logger.warning("%s is not there; %s is, the same scan, and is read.", path, other.name)
            return other
    return path


def scan_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of every file of a scan in a folder; links and folders are none."""
    for path in folder.iterdir():
        found = _FILE.fullmatch(path.name)
        if found and path.is_file() and not path.is_symlink():
            yield found[1], path


def unfinished_files(folder: Path) -> Iterator[Path]:
    """Yield what is left of HDF5 files whose writer died."""
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            yield path
