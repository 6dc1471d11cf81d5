"""Noise measurements kept on disk, for later scans that name them as their dependency.

One file for a measurement, in a folder of its own that only its owner may enter (0700), files 0600. A file
holds numbers and coil names only: covariance, number of samples, dwell time, bandwidth. The measurement's ID
is not in it, and names the file by its hash (SHA-256), so that nothing a peer sends becomes part of a path.
Files are JSON, written whole or not at all, and checked when they are read: what is damaged, or not what this
program wrote, is reported and not used. Nothing that goes wrong here costs an image.
"""

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gadget.scan.noise import NoiseCovariance

logger = logging.getLogger(__name__)

FORMAT = "gadgetron-ebm noise covariance, version 1"
MAX_AGE_S = 7 * 24 * 3600
"""Older files are not used, and removed: a scan depends on the noise of its own session."""
MAX_FILES = 256
"""The oldest of more files are removed."""
MAX_FILE_BYTES = 64 * 2**20
"""Larger files are not read; 1024 coils need less."""
MAX_COILS = 1024
"""As many as ISMRMRD can tell apart."""


class NoiseCache:
    """Noise measurements in a folder; several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, measurement_id: str, noise: NoiseCovariance) -> None:
        """Write a measurement, in place of an earlier one with the same ID."""
        content = json.dumps(_content(noise), allow_nan=False)
        digest = hashlib.sha256(content.encode()).hexdigest()
        text = json.dumps({"format": FORMAT, "sha256": digest, "content": content})
        try:
            self._open_folder(create=True)
            self._write(self._path(measurement_id), text)
            self._remove_old()
        except OSError as error:
            logger.warning("Noise cache: the noise of this scan could not be kept: %s.", error)
        else:
            logger.info("Noise cache: the noise of this measurement was kept for later scans.")

    def find(self, measurement_id: str) -> NoiseCovariance | None:
        """Read a measurement; None where it is not there, too old, or cannot be trusted."""
        path = self._path(measurement_id)
        try:
            self._open_folder(create=False)
            text = _read(path)
            return _noise(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("Noise cache: %s is not used: %s.", path.name, error)
            return None

    def _path(self, measurement_id: str) -> Path:
        return self.folder / f"{hashlib.sha256(measurement_id.encode()).hexdigest()}.json"

    def _open_folder(self, *, create: bool) -> None:
        if create:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = self.folder.stat()
        if not stat.S_ISDIR(state.st_mode):
            raise NotADirectoryError(f"{self.folder} is not a folder")
        if state.st_uid != os.geteuid() or state.st_mode & 0o077:
            raise PermissionError(
                f"the folder {self.folder} (mode {stat.S_IMODE(state.st_mode):04o}) must belong to the user "
                "of this program and be closed to others; make one with mode 0700"
            )

    def _write(self, path: Path, text: str) -> None:
        # mkstemp makes its file with mode 0600.
        number, name = tempfile.mkstemp(prefix=".new-", dir=self.folder)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _remove_old(self) -> None:
        times = {}
        for path in self.folder.iterdir():
            if path.suffix == ".json" or path.name.startswith(".new-"):
                with contextlib.suppress(FileNotFoundError):  # another process may remove it, too
                    times[path] = path.lstat().st_mtime
        newest_first = sorted(times, key=times.__getitem__, reverse=True)
        for place, path in enumerate(newest_first):
            if place >= MAX_FILES or _is_old(times[path]):
                path.unlink(missing_ok=True)


def _is_old(modified: float) -> bool:
    return abs(time.time() - modified) > MAX_AGE_S


def _read(path: Path) -> str:
    # A link is not followed: it may have been laid by somebody else.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
            raise PermissionError("it is not a file of mode 0600 of the user of this program")
        if _is_old(state.st_mtime):
            raise FileNotFoundError(path)
        if state.st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has {state.st_size} bytes, at most {MAX_FILE_BYTES} are read")
        return file.read(MAX_FILE_BYTES + 1).decode("utf-8")


def _content(noise: NoiseCovariance) -> dict[str, Any]:
    return {
        "real": noise.matrix.real.tolist(),
        "imaginary": noise.matrix.imag.tolist(),
        "n_samples": noise.n_samples,
        "n_readouts": noise.n_readouts,
        "dwell_us": noise.dwell_us,
        "bandwidth": noise.bandwidth,
        "coil_names": list(noise.coil_names),
    }


def _noise(text: str) -> NoiseCovariance:
    """Return what :func:`_content` described; ValueError where it is anything else."""
    try:
        outer = json.loads(text)
        content = outer["content"]
        if outer["format"] != FORMAT:
            raise ValueError("another program or version wrote it")
        if hashlib.sha256(content.encode()).hexdigest() != outer["sha256"]:
            raise ValueError("it is damaged: its checksum does not fit")
        values = json.loads(content)
        matrix = np.array(values["real"], np.float64) + 1j * np.array(values["imaginary"], np.float64)
        noise = NoiseCovariance(
            matrix=matrix.astype(np.complex128),
            n_samples=int(values["n_samples"]),
            n_readouts=int(values["n_readouts"]),
            dwell_us=float(values["dwell_us"]),
            bandwidth=None if values["bandwidth"] is None else float(values["bandwidth"]),
            coil_names=tuple(str(name) for name in values["coil_names"]),
        )
    except (TypeError, KeyError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError("it is damaged: it cannot be read as a noise covariance") from error
    _check(noise)
    return noise


def _check(noise: NoiseCovariance) -> None:
    matrix, n_coils = noise.matrix, noise.matrix.shape[0] if noise.matrix.ndim == 2 else 0
    is_sound = (
        0 < n_coils <= MAX_COILS
        and matrix.shape == (n_coils, n_coils)
        and bool(np.isfinite(matrix).all())
        and bool(np.allclose(matrix, matrix.conj().T, rtol=1e-9, atol=0))
        and bool((np.diag(matrix).real >= 0).all())
        and noise.n_samples > 0
        and noise.n_readouts > 0
        and 0 <= noise.dwell_us < 1e9
        and (noise.bandwidth is None or 0 < noise.bandwidth <= 1)
        and len(noise.coil_names) in (0, n_coils)
    )
    if not is_sound:
        raise ValueError("it is damaged: its numbers are no noise covariance")
