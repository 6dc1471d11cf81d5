"""What the kernel says about a process, from ``/proc`` (proc(5))."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Memory, time and files of one process."""

    resident_bytes: int
    cpu_s: float
    n_open_files: int
    n_threads: int


def process_figures(pid: int) -> ProcessFigures | None:
    """Return the figures of a process of ours; None once it is gone, or on a system without ``/proc``."""
    folder = Path("/proc") / str(pid)
    try:
        # behind the name in brackets, which may hold anything: fields 3 (state) and following
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
        n_open_files = len(os.listdir(folder / "fd"))  # noqa: PTH208 - names are enough
    except (OSError, IndexError, ValueError):
        return None
    ticks = int(fields[11]) + int(fields[12])  # utime and stime, fields 14 and 15
    return ProcessFigures(
        resident_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
        n_open_files=n_open_files,
        n_threads=int(fields[17]),  # field 20
    )
