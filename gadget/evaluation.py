"""Run an evaluation: every case with every method, kept row by row, then tables and pictures.

Rows are appended to ``rows.jsonl`` as they are finished, under a key that holds everything they depend on; an
evaluation that was interrupted goes on where it stopped, and one that is repeated with the same settings and
priors is read, not computed.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gadget.errors import FileError
from gadget.figures import save_coils, save_comparison, save_mask
from gadget.whole_file import write_whole_file
from reconlib.evaluation.bart import BartError
from reconlib.evaluation.study import Case, Method, MethodImage, run_method
from reconlib.evaluation.tables import Cell, ResultTable

ROWS_FILE = "rows.jsonl"
DIGITS = {
    "weight": 6,
    "R per pixel": 3,
    "R of reference": 3,
    "PSNR": 2,
    "NMSE x 100": 3,
    "SSIM": 4,
    "null space %": 2,
    "seconds": 1,
    "cases": 0,
}
MEASURES = ("PSNR", "NMSE x 100", "SSIM", "null space %")
Row = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation gave."""

    rows: tuple[Row, ...]
    table: ResultTable
    """Every case and method."""
    means: ResultTable
    """Per method, over the cases."""
    files: tuple[Path, ...]


def run_evaluation(
    folder: Path,
    cases: Sequence[Case],
    methods: Mapping[str, Method],
    *,
    identity: Mapping[str, str],
    on_row: Callable[[Row], None] = lambda _row: None,
    pictures: bool = True,
) -> Evaluation:
    """Measure every method on every case.

    ``identity`` names what each method depends on besides the case (settings, SHA-256 of the prior): rows in
    the folder with another identity are not used. A method that fails on a case (BART) leaves a row with the
    reason. Pictures are made of cases that were computed now: image and error per method, mask, coil maps.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot make the folder {folder}: {error}.") from error
    known = _read_rows(folder / ROWS_FILE)
    rows: list[Row] = []
    files: list[Path] = []
    for case in cases:
        images: dict[str, MethodImage] = {}
        fingerprint = _fingerprint(case)
        for name, method in methods.items():
            key = f"{fingerprint} {identity.get(name, '')}"
            row = known.get((key, name))
            if row is None:
                row = {"key": key, "scan": case.scan.name, "pattern": case.pattern, "method": name}
                try:
                    images[name], numbers = run_method(method, case)
                    row |= numbers
                except BartError as error:
                    row["failed"] = str(error)
                _append(folder / ROWS_FILE, row)
            rows.append(row)
            on_row(row)
        if pictures and images:
            files += _save_pictures(folder, case, images)
    table, means = case_table(rows), mean_table(rows)
    for name, text in (
        ("table.md", table.markdown(DIGITS)),
        ("table.csv", table.csv()),
        ("means.md", means.markdown(DIGITS)),
        ("means.csv", means.csv()),
    ):
        write_whole_file(folder / name, memoryview(text.encode()), overwrite=True)
        files.append(folder / name)
    return Evaluation(tuple(rows), table, means, tuple(files))


def case_table(rows: Sequence[Row]) -> ResultTable:
    """One line per case and method; what is the same in all lines is left out."""
    columns = [
        column
        for column in dict.fromkeys(key for row in rows for key in row)
        if column not in ("key", "scan", "pattern", "method")
    ]
    return ResultTable(
        "scan, pattern, method",
        tuple(columns),
        tuple(
            (
                f"{row['scan']}, {row['pattern']}, {row['method']}",
                tuple(row.get(column) for column in columns),
            )
            for row in rows
        ),
    )


def mean_table(rows: Sequence[Row]) -> ResultTable:
    """Mean of each measure per method, over the cases that all methods with a number have in common."""
    methods = list(dict.fromkeys(str(row["method"]) for row in rows))
    scored = {
        (str(row["method"]), str(row["scan"]), str(row["pattern"])): row for row in rows if "PSNR" in row
    }
    filled = [method for method in methods if any(key[0] == method for key in scored)]
    cases = dict.fromkeys((str(row["scan"]), str(row["pattern"])) for row in rows)
    common = [case for case in cases if all((method, *case) in scored for method in filled)]
    table: dict[str, dict[str, Cell]] = {}
    for method in filled:
        of_method = [scored[(method, *case)] for case in common]
        cells: dict[str, Cell] = {}
        for measure in (*MEASURES, "seconds"):
            values = [float(row[measure]) for row in of_method if measure in row]
            if values:
                cells[measure] = float(np.mean(values))
        table[method] = cells | {"cases": len(common)}
    return ResultTable.from_rows("mean over cases", table)


def _fingerprint(case: Case) -> str:
    digest = hashlib.sha256()
    scan = case.scan
    for tensor in (scan.samples, case.mask, scan.reference, scan.coils):
        digest.update(b"-" if tensor is None else np.ascontiguousarray(tensor.numpy()).tobytes())
    digest.update(f"{scan.noise_std!r} {scan.name} {case.pattern}".encode())
    return digest.hexdigest()[:16]


def _read_rows(path: Path) -> dict[tuple[str, str], Row]:
    if not path.exists():
        return {}
    rows = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            rows[(row["key"], row["method"])] = row
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(
                f"{path}, line {number} is no row of an evaluation; remove the line, or the whole file."
            ) from error
    return rows


def _append(path: Path, row: Row) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _save_pictures(folder: Path, case: Case, images: Mapping[str, MethodImage]) -> list[Path]:
    stem = f"{case.scan.name} {case.pattern}".replace(" ", "_").replace("/", "_")
    comparison = folder / f"{stem}.png"
    save_comparison(
        comparison,
        {name: one.image[0, 0].numpy() for name, one in images.items()},
        case.reference[0, 0].numpy(),
    )
    mask = folder / f"{stem}_mask.png"
    save_mask(mask, case.mask[0, 0].numpy())
    files = [comparison, mask]
    for name, one in images.items():
        if one.coils is not None and one.coils.shape[1] > 1:
            path = folder / f"{stem}_coils_{_plain(name)}.png"
            save_coils(path, one.coils[0].numpy())
            files.append(path)
    return files


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")


def identity_of(*parts: object) -> str:
    """Return a short text that changes with any of the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def torch_version() -> str:
    """Return the version that numbers depend on."""
    return str(torch.__version__)
