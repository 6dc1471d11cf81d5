"""Rows that are appended to a file as they are finished, so that long work goes on where it was stopped.

The key of a row holds everything that the row depends on: the case, the method's settings, the prior, the
code that computes, and torch.
"""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

import reconlib
from gadget.errors import FileError
from reconlib.evaluation.study import Case
from reconlib.evaluation.summary import Row

ROWS_FILE = "rows.jsonl"
COMPUTING = (
    "joint",
    "energies",
    "operators",
    "reconstruction.py",
    "kspace.py",
    *(
        f"evaluation/{name}.py"
        for name in (
            "study",
            "best_weight",
            "bart",
            "cg_sense",
            "metrics",
            "null_space",
            "intensity_calibration",
        )
    ),
)
"""Parts of reconlib that numbers depend on; scans and masks are in a key as they are."""
SAMPLING = (*COMPUTING, "posterior", "evaluation/posterior_mean.py", "evaluation/coverage.py")
"""The same, for methods that sample."""


class KeptRows:
    """Rows by key, in a file of one JSON object per line; in memory only where there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / ROWS_FILE
        self._rows: dict[str, Row] = {}
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"Cannot make the folder {folder}: {error}.") from error
        self._rows = _read(folder / ROWS_FILE)

    def get(self, key: str, make: Callable[[], Row]) -> Row:
        """Return the row of that key, made and kept where it is not there yet or failed before."""
        if "failed" in self._rows.get(key, {"failed": ""}):
            row: Row = {"key": key, **make()}
            if self._path is not None:
                try:
                    with self._path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                except OSError as error:
                    raise FileError(f"Cannot write {self._path}: {error}.") from error
            self._rows[key] = row
        return self._rows[key]


def _read(path: Path) -> dict[str, Row]:
    """Read the rows; half a line at the end, of a run that was killed, is cut off the file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error}.") from error
    whole = content[: content.rfind(b"\n") + 1]
    rows = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
            rows[row["key"]] = row
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(
                f"{path}, line {number} is no row of an evaluation; remove the line, or the whole file."
            ) from error
    if len(whole) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return rows


def identity_of(*parts: object) -> str:
    """Return a short text that changes with any of the parts, as their ``repr`` shows them."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def identity_of_case(case: Case) -> str:
    """Return a short text that changes with samples, noise levels, mask, reference and given maps."""
    digest = hashlib.sha256()
    scan = case.scan
    for tensor in (scan.samples, case.mask, scan.reference, scan.coils):
        digest.update(b"-" if tensor is None else tensor.contiguous().numpy().tobytes())
    points = case.at_points
    if points is not None:
        for tensor in (points.samples, points.trajectory, points.weights):
            digest.update(tensor.contiguous().numpy().tobytes())
        digest.update(f"{points.noise_std!r} {points.shape}".encode())
    digest.update(f"{scan.noise_std!r} {scan.reference_noise_std!r} {scan.name} {case.pattern}".encode())
    return digest.hexdigest()[:16]


@cache
def identity_of_code(parts: tuple[str, ...] = COMPUTING) -> str:
    """Return a short text that changes with the code that numbers depend on, and with torch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    root = Path(reconlib.__file__).parent
    for part in parts:
        for path in sorted((root / part).rglob("*.py")) if (root / part).is_dir() else [root / part]:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
