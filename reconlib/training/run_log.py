"""The log of a run: one JSON object per line, in the order of the updates."""

import json
from collections.abc import Mapping
from pathlib import Path

Row = Mapping[str, float | int | str | None]


class RunLog:
    """``log.jsonl`` in the run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, row: Row) -> None:
        """Append a row."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> list[Row]:
        """Every row; a line that was cut off by a crash is left out."""
        if not self.path.exists():
            return []
        rows: list[Row] = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return rows

    def rewind(self, update: int) -> None:
        """Drop what was written after an update: the run goes on from there."""
        rows = self.rows()
        kept = [row for row in rows if int(row["update"] or 0) <= update]
        part = self.path.with_name(f"{self.path.name}.part")
        part.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        part.replace(self.path)
