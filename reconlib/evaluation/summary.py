"""From rows, one per scan, pattern and method, to tables: every row, PSNR by case, means by method."""

from collections.abc import Collection, Sequence

import numpy as np

from reconlib.evaluation.tables import Cell, ResultTable

Row = dict[str, float | str]
"""``scan``, ``pattern``, ``method``; measures and facts, or ``failed`` with the reason."""

MEASURES = (
    *("PSNR", "NMSE x 100", "SSIM", "null space %", "R per pixel", "R of reference"),
    *("coverage_50", "coverage_90", "coverage_95", "coverage_90_without_factor"),
    *("mean_std", "rms_error_in_head", "seconds"),
)
DIGITS = {
    "weight": 7,
    "noise level": 5,
    "factor": 4,
    "Newton steps": 0,
    "R per pixel": 3,
    "R of reference": 3,
    "PSNR": 2,
    "NMSE x 100": 3,
    "SSIM": 4,
    "null space %": 2,
    "coverage_50": 3,
    "coverage_90": 3,
    "coverage_95": 3,
    "coverage_90_without_factor": 3,
    "mean_std": 4,
    "rms_error_in_head": 4,
    "std factor": 3,
    "worst R-hat": 3,
    "smallest ESS": 0,
    "seconds": 1,
    "cases": 0,
}
"""Digits after the point in Markdown."""
NOT_SHOWN = ("key", "scan", "pattern", "method")


def with_best_of(rows: Sequence[Row], name: str, methods: Collection[str]) -> list[Row]:
    """Return the rows and, for each case, the one with the highest PSNR of some methods under a new name.

    A case without a number of any of them gets none.
    """
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row["method"] in methods and "PSNR" in row:
            case = str(row["scan"]), str(row["pattern"])
            if case not in best or float(row["PSNR"]) > float(best[case]["PSNR"]):
                best[case] = row
    return [*rows, *(row | {"method": name, "best of": row["method"]} for row in best.values())]


def case_table(rows: Sequence[Row]) -> ResultTable:
    """One line per case and method."""
    columns = [name for name in dict.fromkeys(key for row in rows for key in row) if name not in NOT_SHOWN]
    lines = [
        (str(row["scan"]), (row["pattern"], row["method"], *(row.get(column) for column in columns)))
        for row in rows
    ]
    return ResultTable("scan", ("pattern", "method", *columns), tuple(lines))


def psnr_table(rows: Sequence[Row]) -> ResultTable:
    """One line per case, one column per method: PSNR in dB; the means over the common cases come last."""
    table: dict[str, dict[str, Cell]] = {}
    methods = dict.fromkeys(str(row["method"]) for row in rows)
    for row in rows:
        cells = table.setdefault(f"{row['scan']}, {row['pattern']}", dict.fromkeys(methods))
        cells[str(row["method"])] = row.get("PSNR")
    means = {name: cells["PSNR"] for name, cells in _means(rows).items()}
    table[f"mean of {len(_common_cases(rows))}"] = {name: means.get(name) for name in methods}
    return ResultTable.from_rows("PSNR (dB)", table)


def mean_table(rows: Sequence[Row]) -> ResultTable:
    """Mean of each measure per method, over the cases in which all methods with any number have one.

    Measures that no method has get no column.
    """
    return ResultTable.from_rows("mean over cases", _means(rows))


def _means(rows: Sequence[Row]) -> dict[str, dict[str, Cell]]:
    common = _common_cases(rows)
    table: dict[str, dict[str, Cell]] = {}
    measures = [measure for measure in MEASURES if any(measure in row for row in rows)]
    for method in _scored_methods(rows):
        of_method = [row for row in rows if row["method"] == method and _case(row) in common]
        cells: dict[str, Cell] = {}
        for measure in measures:
            values = [float(row[measure]) for row in of_method if measure in row]
            cells[measure] = float(np.mean(values)) if values else None
        table[method] = cells | {"cases": len(common)}
    return table


def _scored_methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["method"]) for row in rows if "PSNR" in row))


def _common_cases(rows: Sequence[Row]) -> set[tuple[str, str]]:
    """Cases in which no method failed that has a number in another case."""
    scored = {(str(row["method"]), *_case(row)) for row in rows if "PSNR" in row}
    methods = _scored_methods(rows)
    return {case for case in map(_case, rows) if all((method, *case) in scored for method in methods)}


def _case(row: Row) -> tuple[str, str]:
    return str(row["scan"]), str(row["pattern"])
