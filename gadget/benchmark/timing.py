"""Seconds and memory of a piece of work, on the CPU or a CUDA device."""

import ctypes
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a piece of work took."""

    seconds: float
    """On the wall, until the device was done."""
    cpu_seconds: float
    """Of all threads of this process, and of the programs that it ran."""

    def least(self, other: "Spent") -> "Spent":
        """Return the least of both, each for itself."""
        return Spent(min(self.seconds, other.seconds), min(self.cpu_seconds, other.cpu_seconds))


def spent_on(run: Run, device: torch.device) -> Spent:
    """Run once and return what it took; to be warmed up before."""
    _wait_for(device)
    wall, cpu = time.perf_counter(), _cpu_seconds()
    run()
    _wait_for(device)
    return Spent(time.perf_counter() - wall, _cpu_seconds() - cpu)


def least_spent(runs: Mapping[str, Run], device: torch.device, *, repeats: int) -> dict[str, Spent]:
    """Return the least that each took of several repeats, after one to warm up.

    The runs take turns, so that a machine that others use, too, is as busy for the one as for the other.
    """
    least = dict.fromkeys(runs, Spent(math.inf, math.inf))
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            spent = spent_on(run, device)
            if repeat:
                least[name] = least[name].least(spent)
    return least


def peak_mib(run: Run, device: torch.device) -> float | None:
    """Run once, and return the most MiB that were held on top of what was held before.

    On a CUDA device those of torch's tensors; on the CPU the resident memory of this process, as Linux counts
    it. None where the system does not tell.
    """
    if device.type == "cuda":
        _wait_for(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        _wait_for(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    _give_back_free_memory()
    if not _forget_peak():
        run()
        return None
    held = _resident_mib("VmRSS")
    run()
    peak = _resident_mib("VmHWM")
    return None if held is None or peak is None else max(0.0, peak - held)


def _cpu_seconds() -> float:
    others = os.times()
    return time.process_time() + others.children_user + others.children_system


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _give_back_free_memory() -> None:
    """Let the C library return what it keeps of earlier work, or that would hide what new work takes."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _forget_peak() -> bool:
    """Set the highest resident memory back to that of now; whether that worked."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident_mib(name: str) -> float | None:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return None
