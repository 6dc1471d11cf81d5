"""Tables as they stand in a README or a spreadsheet."""

import csv
import io

import pytest

from reconlib.evaluation.tables import ResultTable

ROWS = {
    "zero-filled": {"PSNR (dB)": 30.944, "SSIM": 0.8},
    'learned, "soft"': {"PSNR (dB)": 42.3, "SSIM": 0.97123, "lines": 64, "a|b": None},
}


def test_markdown_lines_up():
    table = ResultTable.from_rows("method", ROWS)
    assert table.markdown({"SSIM": 3}) == (
        "| method          | PSNR (dB) |  SSIM | lines | a\\|b |\n"
        "| --------------- | --------: | ----: | ----: | ---: |\n"
        "| zero-filled     |     30.94 | 0.800 |       |      |\n"
        '| learned, "soft" |     42.30 | 0.971 |    64 |      |\n'
    )


def test_csv_comes_back_with_all_digits():
    table = ResultTable.from_rows("method", ROWS)
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [row["method"] for row in rows] == list(ROWS)
    assert float(rows[1]["SSIM"]) == 0.97123
    assert rows[0]["lines"] == ""


def test_a_table_without_rows_is_a_heading():
    assert ResultTable.from_rows("method", {}).markdown() == "| method |\n| ------ |\n"


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="Row 'tv' has 1 cells for 2 columns"):
        ResultTable("method", ("a", "b"), (("tv", (1.0,)),))
