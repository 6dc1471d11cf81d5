"""Checkpoints on disk: written whole or not at all, read without running anything from them.

``checkpoints/00000500-0/`` holds the state after 500 updates and no return to an earlier checkpoint: what
all processes share in ``shared.pt``, and what each has for itself (its random states and its part of the
replay buffer) in ``process-0.pt``, ``process-1.pt``, ... A folder of that name is complete; it is filled
under another name, and renamed.
"""

import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import torch

from reconlib.training.distributed import Processes

State = dict[str, Any]
_NAME = re.compile(r"(\d{8,})-(\d+)")


class CheckpointError(ValueError):
    """A run cannot go on from its checkpoints; the text says why."""


class Checkpoints:
    """The checkpoints of one run folder, the newest ``keep`` of them."""

    def __init__(self, folder: Path, keep: int, processes: Processes) -> None:
        self._folder, self._keep, self._processes = folder / "checkpoints", keep, processes

    def paths(self) -> list[Path]:
        """Complete checkpoints, the oldest first."""
        if not self._folder.is_dir():
            return []
        found = [(match, path) for path in self._folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        return [path for match, path in sorted(found, key=lambda f: (int(f[0][1]), int(f[0][2])))]

    def save(self, update: int, n_rollbacks: int, shared: State, own: State) -> None:
        """Write a checkpoint; every process calls this, with the same ``shared``."""
        final = self._folder / f"{update:08d}-{n_rollbacks}"
        part = self._folder / f"{final.name}.part"
        if self._processes.leads:
            shutil.rmtree(part, ignore_errors=True)
            if not final.exists():
                part.mkdir(parents=True)
        self._processes.wait()
        if part.is_dir():
            if self._processes.leads:
                _write(part / "shared.pt", shared)
            _write(part / f"process-{self._processes.rank}.pt", own)
        self._processes.wait()
        if self._processes.leads and part.is_dir():
            part.rename(final)
            _flush(self._folder)
            for old in self.paths()[: -self._keep]:
                shutil.rmtree(old)
        self._processes.wait()

    def load(self, path: Path) -> tuple[State, State]:
        """Read what is shared, and what is this process' own, to the CPU."""
        return _read(path / "shared.pt"), _read(path / f"process-{self._processes.rank}.pt")

    def drop(self, path: Path) -> None:
        """Remove a checkpoint that leads nowhere."""
        self._processes.wait()
        if self._processes.leads:
            shutil.rmtree(path)
        self._processes.wait()


def write_whole(path: Path, state: State) -> None:
    """Write one file so that it is there as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    _write(part, state)
    part.replace(path)
    _flush(path.parent)


def read_state(path: Path) -> State:
    """Read a file of :func:`write_whole`: tensors, numbers and texts only."""
    return _read(path)


def _write(path: Path, state: State) -> None:
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> State:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint ({reason}); "
            "remove its folder to go on from the one before."
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, no checkpoint of a training run.")
    return state


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
