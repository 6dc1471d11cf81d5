"""Reconstructions by BART, to compare with, where its command is on the PATH.

BART is run on k-space as it is; images come back as arrays. ESPIRiT maps go with l1-wavelet or total
variation (``pics``); NLINV estimates image and maps together.

References
----------
Uecker et al., "Berkeley Advanced Reconstruction Toolbox", Proc ISMRM 23:2486 (2015).
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SECONDS_PER_COMMAND = 600


class BartError(Exception):
    """BART failed; the text says which command, and what it said."""


@dataclass(frozen=True, slots=True)
class BartImage:
    """What came back."""

    image: Tensor
    """float32 magnitude (1, 1, y, x)"""
    coils: Tensor
    """complex64 (1, coil, y, x)"""


@dataclass(frozen=True, slots=True)
class Bart:
    """BART's command."""

    command: Path

    @staticmethod
    def find() -> "Bart | None":
        """Return BART where it is on the PATH."""
        found = shutil.which("bart")
        return None if found is None else Bart(Path(found))

    def version(self) -> str:
        """What ``bart version`` says."""
        with _Folder(self) as folder:
            return folder.run("version").strip()

    def espirit_maps(self, samples: Tensor) -> Tensor:
        """ESPIRiT maps (1, coil, y, x) of k-space (1, coil, ky, kx), zero where not measured (``ecalib``)."""
        with _Folder(self) as folder:
            folder.put("kspace", samples)
            folder.run("ecalib", "-m1", "kspace", "maps")
            return folder.get("maps")

    def pics(self, samples: Tensor, maps: Tensor, regulariser: str, iterations: int = 100) -> BartImage:
        """Compressed sensing with given maps; ``regulariser`` as in ``pics -R``, such as W:3:0:0.01."""
        with _Folder(self) as folder:
            folder.put("kspace", samples)
            folder.put("maps", maps)
            folder.run("pics", "-S", "-i", str(iterations), "-R", regulariser, "kspace", "maps", "image")
            return BartImage(folder.get("image").abs(), maps)

    def nlinv(self, samples: Tensor, newton_steps: int) -> BartImage:
        """Joint estimate; its regularisation is the number of Newton steps."""
        with _Folder(self) as folder:
            folder.put("kspace", samples)
            folder.run("nlinv", "-S", "-i", str(newton_steps), "kspace", "image", "maps")
            return BartImage(folder.get("image").abs(), folder.get("maps"))


class _Folder:
    """A folder for the files of one command, gone afterwards."""

    def __init__(self, bart: Bart) -> None:
        self._command = bart.command
        self._temporary = tempfile.TemporaryDirectory(prefix="bart-")
        self._path = Path(self._temporary.name)

    def __enter__(self) -> "_Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def run(self, *arguments: str) -> str:
        """Run a command in the folder and return what it printed."""
        # with threads that spin while they wait, BART is several times slower on a shared machine
        environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
        try:
            done = subprocess.run(
                [str(self._command), *arguments],
                cwd=self._path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS_PER_COMMAND,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BartError(f"bart {arguments[0]} took more than {SECONDS_PER_COMMAND} s.") from error
        except OSError as error:
            raise BartError(f"{self._command} cannot be run: {error.strerror}.") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise BartError(
                f"bart {' '.join(arguments)} failed ({done.returncode}): {said[-1] if said else 'no message'}"
            )
        return done.stdout

    def put(self, name: str, array: Tensor) -> None:
        """Write complex (1, coil, y, x) as x, y, 1, coil: readout first, coils on dimension 3."""
        write_cfl(self._path / name, array[0].numpy().transpose(2, 1, 0)[:, :, None, :])

    def get(self, name: str) -> Tensor:
        """Read x, y, 1, coil (dimensions that are not there count 1) as complex64 (1, coil, y, x)."""
        try:
            array = read_cfl(self._path / name)
        except (OSError, ValueError, IndexError) as error:
            raise BartError(f"bart left no readable file {name!r}: {error}") from error
        if not np.isfinite(array).all():
            raise BartError(f"bart's {name} holds infinities or NaNs.")
        array = array.reshape(array.shape + (1,) * (4 - array.ndim), order="F")
        array = array.reshape(array.shape[:4], order="F")[:, :, 0, :]
        return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 1, 0)))[None]


def write_cfl(path: Path, array: NDArray[np.complexfloating]) -> None:
    """Write ``path.hdr`` and ``path.cfl``: complex64, first index fastest."""
    path.with_suffix(".hdr").write_text("# Dimensions\n" + " ".join(map(str, array.shape)) + "\n")
    array.astype(np.complex64).ravel(order="F").tofile(path.with_suffix(".cfl"))


def read_cfl(path: Path) -> NDArray[np.complex64]:
    """Read what BART wrote, without trailing dimensions of size 1."""
    shape = [int(n) for n in path.with_suffix(".hdr").read_text().splitlines()[1].split()]
    while len(shape) > 1 and shape[-1] == 1:
        shape.pop()
    return np.fromfile(path.with_suffix(".cfl"), np.complex64).reshape(shape, order="F")
