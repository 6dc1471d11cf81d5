"""On what a benchmark ran, without which a time means nothing. No name of a host or a user."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from gadget.version import software

PACKAGES = ("torch", "numpy", "scipy", "finufft", "sigpy")

Facts = dict[str, str | float | int]


def machine_facts(device: torch.device) -> Facts:
    """Return what the machine, the device and the versions are, and what threads may do."""
    facts: Facts = {
        "device": "CPU" if device.type == "cpu" else torch.cuda.get_device_name(device),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "software": software(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts["device memory, GiB"] = round(properties.total_memory / 2**30, 1)
        facts["CUDA"] = str(torch.version.cuda)
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts


def load_now() -> float:
    """Return how many processes want to run, mean of a minute: a busy machine has other times."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def _processor() -> str:
    """Return the name of the processor, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
