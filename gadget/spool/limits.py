"""How much a spool keeps, and what goes first."""

import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from gadget.spool.scan_names import scan_files

logger = logging.getLogger(__name__)

GIB = 1024**3
DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolLimits:
    """What is kept of finished scans; the oldest go first. A scan that runs is never touched."""

    size_bytes: float = math.inf
    """Of all scans in the folder together, running ones included."""
    age_s: float = math.inf
    """Since the last of a scan was written."""


@dataclass(slots=True)
class _Kept:
    files: list[Path] = field(default_factory=list)
    n_bytes: int = 0
    written_at: float = 0.0


def remove_what_is_too_much(
    folder: Path, limits: SpoolLimits, names_to_keep: Callable[[], Collection[str]]
) -> None:
    """Remove finished scans, oldest first, until the limits hold; nothing else in the folder is touched.

    Which scans are not to be touched is asked after the folder was looked at: a scan that begins in between
    has a name before it has a file, so that each file that was seen is either finished or on that list.

    Raises
    ------
    OSError
        The folder or a file in it cannot be looked at, or a file not be removed.
    """
    kept: dict[str, _Kept] = {}
    for name, path in scan_files(folder):
        try:
            state = path.stat()
        except FileNotFoundError:  # somebody else removed it
            continue
        scan = kept.setdefault(name, _Kept())
        scan.files.append(path)
        scan.n_bytes += state.st_size
        scan.written_at = max(scan.written_at, state.st_mtime)
    to_keep = names_to_keep()
    n_bytes = sum(scan.n_bytes for scan in kept.values())
    now = time.time()
    for name, scan in sorted(kept.items(), key=lambda item: (item[1].written_at, item[0])):
        is_old = now - scan.written_at > limits.age_s
        if name in to_keep or not (is_old or n_bytes > limits.size_bytes):
            continue
        for path in scan.files:
            path.unlink(missing_ok=True)
        n_bytes -= scan.n_bytes
        logger.info(
            "spool: %s was removed: %s.",
            name,
            f"older than {limits.age_s / DAY_S:g} days"
            if is_old
            else f"the spool is larger than {limits.size_bytes / GIB:g} GiB",
        )
