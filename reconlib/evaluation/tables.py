"""Small tables of results, as Markdown for people and as CSV for programs."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass

Cell = float | int | str | None


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows such as methods, columns such as metrics. Cells without a value are ``None``."""

    title: str
    """Heading of the first column, which holds the names of the rows."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]

    def __post_init__(self) -> None:
        for name, cells in self.rows:
            if len(cells) != len(self.columns):
                raise ValueError(
                    f"Row {name!r} has {len(cells)} cells for {len(self.columns)} columns {self.columns}."
                )

    @classmethod
    def from_rows(cls, title: str, rows: Mapping[str, Mapping[str, Cell]]) -> "ResultTable":
        """Make a table of rows that name their cells, columns in the order in which rows first name them."""
        columns = tuple(dict.fromkeys(column for cells in rows.values() for column in cells))
        filled = tuple((name, tuple(cells.get(column) for column in columns)) for name, cells in rows.items())
        return cls(title, columns, filled)

    def markdown(self, digits: int | Mapping[str, int] = 2) -> str:
        """Return the table in Markdown, aligned; ``digits`` after the point, one number or by column."""
        by_column = digits if isinstance(digits, Mapping) else dict.fromkeys(self.columns, digits)
        lines = [[self.title, *self.columns]]
        for name, cells in self.rows:
            digits_of = (by_column.get(column, 2) for column in self.columns)
            lines.append([name, *map(_text, cells, digits_of)])
        lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
        widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(self.columns) + 1)]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        lines.insert(1, rule)
        return "".join(_line(line, widths) for line in lines)

    def csv(self) -> str:
        """Return the table as CSV with a header line; numbers keep all their digits."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([self.title, *self.columns])
        for name, cells in self.rows:
            writer.writerow([name, *("" if cell is None else cell for cell in cells)])
        return buffer.getvalue()


def _line(cells: list[str], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join([first, *rest]) + " |\n"


def _text(cell: Cell, digits: int) -> str:
    if cell is None:
        return ""
    return f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell)
