"""Run an evaluation: every case with every method, kept row by row, then tables and pictures."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from gadget.errors import FileError
from gadget.figures import save_coils, save_comparison, save_mask
from gadget.kept_rows import KeptRows, identity_of_case
from gadget.reliability_figures import save_reliability, save_uncertainty
from gadget.whole_file import write_whole_file
from reconlib.evaluation.bart import BartError
from reconlib.evaluation.best_weight import BART_NAMES
from reconlib.evaluation.coverage import PixelErrors, pixel_errors, pooled
from reconlib.evaluation.intensity_calibration import CalibrationError
from reconlib.evaluation.metrics import fit_scale
from reconlib.evaluation.study import Case, Method, MethodError, MethodImage, run_method
from reconlib.evaluation.summary import DIGITS, Row, case_table, mean_table, psnr_table, with_best_of
from reconlib.evaluation.tables import ResultTable

IMAGES_FOLDER = "images"
BEST_OF_BART = "BART's best (oracle)"


@dataclass(frozen=True, slots=True)
class NamedMethod:
    """A method, and what it depends on besides the case."""

    method: Method
    identity: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation gave."""

    rows: tuple[Row, ...]
    cases: ResultTable
    """Every case and method."""
    psnr: ResultTable
    """PSNR: cases down, methods across."""
    means: ResultTable
    """Per method, over the cases."""
    files: tuple[Path, ...]


def run_evaluation(
    folder: Path,
    cases: Sequence[Case],
    methods: Mapping[str, NamedMethod],
    *,
    on_row: Callable[[Row], None] = lambda _row: None,
    pictures: bool = True,
    about: str = "",
) -> Evaluation:
    """Measure every method on every case.

    Rows are kept in ``rows.jsonl``, images and standard deviations in ``images/``: an evaluation that was
    interrupted goes on where it stopped, and one that is repeated with the same settings and priors is read,
    not computed. A method that fails on a case (BART, a sampler without draws) leaves a row with the reason,
    and is tried again in the next run. ``about`` stands above the tables.
    """
    kept = KeptRows(folder)
    rows: list[Row] = []
    files: list[Path] = []
    uncertain: dict[str, list[PixelErrors]] = {}
    std_factors: dict[str, float] = {}
    for case in cases:
        images: dict[str, NDArray[np.float32]] = {}
        fingerprint = identity_of_case(case)
        for name, one in methods.items():
            stored = _stored(folder, name, fingerprint, one)
            maps = folder / f"{_stem(case)}_coils_{_plain(name)}.png" if pictures else None
            row = kept.get(
                f"{fingerprint} {one.identity} {name}", partial(_row, case, name, one.method, stored, maps)
            )
            if maps is not None and maps.is_file():
                files.append(maps)
            if pictures and stored.is_file():
                images[name] = np.load(stored, allow_pickle=False)
                if _std_of(stored).is_file():
                    uncertain.setdefault(name, []).append(_errors(case, stored))
                    std_factors[name] = float(row.get("std factor", 1.0))
                    files.append(_save_uncertainty(folder, case, name, stored))
            rows.append(row)
            on_row(row)
        if pictures and images:
            files += _save_pictures(folder, case, images)
    for name, parts in uncertain.items():
        path = folder / f"reliability_{_plain(name)}.png"
        title = f"{name}: {len(parts)} case{'s' * (len(parts) > 1)}, inside the head"
        save_reliability(path, pooled(parts), title=title, std_factor=std_factors[name])
        files.append(path)
    shown = with_best_of(rows, BEST_OF_BART, BART_NAMES)
    tables = case_table(shown), psnr_table(shown), mean_table(shown)
    for name, table in zip(("table", "psnr", "means"), tables, strict=True):
        heading = f"{about}\n\n" if about else ""
        for suffix, text in ((".md", heading + table.markdown(DIGITS)), (".csv", table.csv())):
            write_whole_file(folder / f"{name}{suffix}", text.encode(), overwrite=True)
            files.append(folder / f"{name}{suffix}")
    return Evaluation(tuple(shown), *tables, tuple(files))


def stored_errors(folder: Path, case: Case, name: str, method: NamedMethod) -> PixelErrors | None:
    """Return errors and standard deviations that a run kept; None where the method failed on the case."""
    stored = _stored(folder, name, identity_of_case(case), method)
    return _errors(case, stored) if stored.is_file() and _std_of(stored).is_file() else None


def _stored(folder: Path, name: str, fingerprint: str, method: NamedMethod) -> Path:
    return folder / IMAGES_FOLDER / f"{_plain(name)}_{fingerprint}_{method.identity}.npy"


def _std_of(stored: Path) -> Path:
    return stored.with_name(f"{stored.stem}_std.npy")


def _errors(case: Case, stored: Path) -> PixelErrors:
    image, std = (
        torch.from_numpy(np.load(path, allow_pickle=False))[None, None] for path in (stored, _std_of(stored))
    )
    noise = case.scan.reference_noise_std
    return pixel_errors(image, std, case.reference, reference_noise_std=noise)


def _row(case: Case, name: str, method: Method, stored: Path, maps: Path | None) -> Row:
    """Run a method; keep its image, and a picture of its coil maps where ``maps`` names one."""
    row: Row = {"scan": case.scan.name, "pattern": case.pattern, "method": name}
    try:
        result, numbers = run_method(method, case)
    except (BartError, CalibrationError, MethodError) as error:
        return row | {"failed": str(error)}
    _store(stored, result)
    if maps is not None and result.coils is not None and result.coils.shape[1] > 1:
        save_coils(maps, result.coils[0].numpy())
    return row | numbers


def _store(path: Path, result: MethodImage) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"Cannot make the folder {path.parent}: {error}.") from error
    # the image last: where it is, everything is
    arrays = {path: result.image} if result.std is None else {_std_of(path): result.std, path: result.image}
    for file, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array[0, 0].float().numpy(), allow_pickle=False)
        write_whole_file(file, buffer.getbuffer(), overwrite=True)


def _save_pictures(folder: Path, case: Case, images: Mapping[str, NDArray[np.float32]]) -> list[Path]:
    """Save reference, images and errors side by side, and which cells of k-space were measured."""
    comparison, mask = folder / f"{_stem(case)}.png", folder / f"{_stem(case)}_mask.png"
    save_comparison(comparison, images, case.reference[0, 0].numpy())
    save_mask(mask, case.cells[0, 0].numpy())
    return [comparison, mask]


def _save_uncertainty(folder: Path, case: Case, name: str, stored: Path) -> Path:
    """Save reference, image, error and standard deviation side by side."""
    path = folder / f"{_stem(case)}_uncertainty_{_plain(name)}.png"
    image, std = np.load(stored, allow_pickle=False), np.load(_std_of(stored), allow_pickle=False)
    reference = case.reference
    scale = float(fit_scale(torch.from_numpy(image)[None, None], reference))
    save_uncertainty(path, scale * image, scale * std, reference[0, 0].numpy(), title=name)
    return path


def _stem(case: Case) -> str:
    return f"{_plain(case.scan.name)}_{case.pattern}"


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in name).strip("_")
