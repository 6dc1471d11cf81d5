"""What a benchmark found, for people (Markdown, a picture) and for programs (JSON)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gadget.benchmark import scaling
from gadget.benchmark.growth_picture import save_growth
from gadget.benchmark.machine import Facts
from gadget.benchmark.solvers import FAST, REFERENCE, SOLVERS
from gadget.whole_file import write_whole_file
from reconlib.evaluation.summary import Row
from reconlib.evaluation.tables import Cell, ResultTable

MARKDOWN, JSON, PICTURE = "results.md", "results.json", "scaling.png"
DIGITS = {
    "seconds": 2,
    "seconds per slice": 3,
    "CPU seconds": 2,
    "CPU seconds per slice": 3,
    "ms per iteration": 1,
    "ms per iteration and slice": 1,
    "objective": 3,
    "PSNR against paper": 1,
    "SSIM": 3,
    "MiB": 0,
    "R-hat": 3,
    "effective draws": 0,
}
NOT_SHOWN = ("key", "section", "case", "about")
HEADINGS = {
    "parts": "Parts of an iteration, each timed alone",
    "solvers": "Solvers: a slice alone",
    "batches": "Several slices at once",
    "growth": "How the cost of a slice grows",
    "posterior": "Sampling until the chains agree (R-hat below 1.05)",
    "peers": "Others on the same k-space, each at its best weight (oracle)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that was measured, and on what."""

    machine: Facts
    sizes: str
    cases: Mapping[str, str]
    """What each case is, by its name."""
    rows: tuple[Row, ...] = ()
    unfinished: int = 0
    """Rows that are still to be measured."""
    notes: tuple[str, ...] = ()
    """What is missing, and why."""

    def of(self, section: str) -> list[Row]:
        """Return the rows of a section."""
        return [row for row in self.rows if row["section"] == section]

    def tables(self) -> dict[str, ResultTable]:
        """Return the tables that have rows, by the keys of :data:`HEADINGS`."""
        growth = [row for axis in scaling.AXES if axis != scaling.BATCH for row in self.of(axis)]
        found = {
            "parts": _across("part", {str(row["case"]): row for row in self.of("parts")}),
            "solvers": _across("case, solver", _by_solver(self.of("solvers"))),
            "batches": _down("case, slices at once", _named(self.of(scaling.BATCH), "{case}, {about}")),
            "growth": _down("along, at", _named(growth, "{section}, {about}")),
            "posterior": _down("case", _named(self.of("posterior"), "{case}")),
            "peers": _down("case, method", self._against_peers()),
        }
        return {name: table for name, table in found.items() if table.rows}

    def markdown(self) -> str:
        """Return everything as Markdown."""
        machine = "".join(f"* {name}: {value}\n" for name, value in self.machine.items())
        cases = "".join(f"* {name}: {about}\n" for name, about in self.cases.items())
        text = [f"# Benchmark, sizes: {self.sizes}", machine + cases]
        for name, table in self.tables().items():
            text += [f"## {HEADINGS[name]}", table.markdown(DIGITS)]
        failed = [row for row in self.rows if "failed" in row]
        text += [f"{row['case']}, {row['about']}: {row['failed']}" for row in failed]
        if self.unfinished:
            text.append(f"NOT FINISHED: {self.unfinished} rows are missing; run the same command again.")
        text += [*self.notes, LEGEND]
        return "\n\n".join(part.strip() for part in text) + "\n"

    def _against_peers(self) -> dict[str, Row]:
        """Return the peers' rows, below those of our solvers for the same case."""
        peers = self.of("peers")
        own = {name: row for name, row in _by_solver(self.of("solvers")).items() if "PSNR" in row}
        table: dict[str, Row] = {}
        for case in dict.fromkeys(str(row["case"]) for row in peers):
            for solver in SOLVERS:
                row = own.get(f"{case}, {solver}", {})
                if row:
                    kept = {name: row[name] for name in ("PSNR", "SSIM", "seconds", "CPU seconds")}
                    table[f"{case}, {solver} (default weight)"] = kept
            of_case = [row for row in peers if row["case"] == case and "failed" not in row]
            table |= _named(of_case, "{case}, {about}")
        return table


LEGEND = f"""\
`{REFERENCE}` is Algorithms 1 and 2 of the paper, the reference; `{FAST}` takes fewer network gradients. The
objective is that of one slice at the same seeded views of the prior for both. PSNR is against the truth after
one scale fit, `PSNR against paper` against the reference's image. Network gradients and values are counted in
a run of their own. `iteration over the sum`: a whole iteration over its parts (network gradient with its
value, one value more, six coil transforms, one coil prox). `load` is how many processes wanted to run: above
the number of cores, CPU seconds say more than seconds. MiB: the most held on top of the samples, the prior
and what the program is. Batches are copies of one slice; what a reconstruction needs before its first
iteration is in all times but those of an iteration."""


def write_report(folder: Path, report: Report) -> None:
    """Write Markdown and JSON."""
    content = {
        "machine": dict(report.machine),
        "sizes": report.sizes,
        "cases": dict(report.cases),
        "notes": list(report.notes),
        "unfinished": report.unfinished,
        "rows": [{name: value for name, value in row.items() if name != "key"} for row in report.rows],
    }
    for name, text in ((MARKDOWN, report.markdown()), (JSON, json.dumps(content, indent=1) + "\n")):
        write_whole_file(folder / name, text.encode(), overwrite=True)


def save_curves(folder: Path, report: Report) -> None:
    """Save the picture of how cost grows."""
    curves = {axis: _curve(report.of(axis)) for axis in scaling.AXES}
    save_growth(folder / PICTURE, {axis: points for axis, points in curves.items() if points})


def _curve(rows: Iterable[Row]) -> dict[str, list[tuple[float, float]]]:
    """Return points (at, seconds per slice and iteration) by case."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        seconds = float(row[scaling.SECONDS]) / float(row["iterations"])
        curves.setdefault(str(row["case"]), []).append((float(row["about"]), seconds))
    return curves


def _by_solver(rows: Iterable[Row]) -> dict[str, Row]:
    """Take rows apart whose keys begin with a solver's name."""
    table: dict[str, Row] = {}
    for row in rows:
        for solver in SOLVERS:
            mine: Row = {
                key.removeprefix(f"{solver}: "): value
                for key, value in row.items()
                if key.startswith(f"{solver}: ")
            }
            if mine:
                table[f"{row['case']}, {solver}"] = mine | {"load": row["load"]}
    return table


def _named(rows: Iterable[Row], name: str) -> dict[str, Row]:
    return {
        name.format(**row): {key: value for key, value in row.items() if key not in NOT_SHOWN} for row in rows
    }


def _down(title: str, rows: Mapping[str, Row]) -> ResultTable:
    """One line per row."""
    return ResultTable.from_rows(title, rows)


def _across(title: str, columns: Mapping[str, Row]) -> ResultTable:
    """One line per measure, one column per row."""
    lines: dict[str, dict[str, Cell]] = {}
    for column, row in columns.items():
        for name, value in row.items():
            if name not in NOT_SHOWN:
                lines.setdefault(name, dict.fromkeys(columns))[column] = value
    return ResultTable.from_rows(title, lines)
