"""Tables of rows, with the means that are written down."""

import csv
import io

from reconlib.evaluation.summary import case_table, mean_table, psnr_table, with_best_of


def row(scan, method, psnr=None, **others):
    scored = {} if psnr is None else {"PSNR": psnr}
    return {"key": "k", "scan": scan, "pattern": "p", "method": method, **scored, **others}


ROWS = [
    row("a", "tv", 30.0, SSIM=0.9),
    row("a", "bart 1", 31.0),
    row("a", "bart 2", 29.0),
    row("b", "tv", 40.0, SSIM=0.7),
    row("b", "bart 1", failed="no maps"),
    row("b", "bart 2", 38.0),
    row("c", "tv", 50.0, SSIM=0.8),
    row("c", "bart 1", 47.0),
    row("c", "bart 2", 48.0),
]


def test_the_best_of_some_methods_is_chosen_case_by_case():
    rows = with_best_of(ROWS, "best", ("bart 1", "bart 2"))
    assert rows[: len(ROWS)] == ROWS
    assert [(one["scan"], one["PSNR"], one["best of"]) for one in rows[len(ROWS) :]] == [
        ("a", 31.0, "bart 1"),
        ("b", 38.0, "bart 2"),
        ("c", 48.0, "bart 2"),
    ]
    assert with_best_of(ROWS, "best", ("nothing",)) == ROWS


def test_means_are_over_the_cases_that_all_methods_have():
    table = {name: cells for name, cells in mean_table(ROWS).rows}  # noqa: C416 - says what is what
    columns = mean_table(ROWS).columns
    tv = dict(zip(columns, table["tv"], strict=True))
    assert (tv["PSNR"], tv["cases"]) == (40.0, 2)  # of a and c: bart 1 has no number in b
    assert abs(tv["SSIM"] - 0.85) < 1e-12
    assert dict(zip(columns, table["bart 1"], strict=True))["PSNR"] == 39.0
    assert dict(zip(columns, table["bart 1"], strict=True))["SSIM"] is None


def test_a_method_that_never_worked_takes_no_case_away():
    rows = [row("a", "tv", 30.0), row("a", "broken", failed="no"), row("b", "tv", 40.0)]
    table = psnr_table(rows)
    assert table.columns == ("tv", "broken")
    assert table.rows == (("a, p", (30.0, None)), ("b, p", (40.0, None)), ("mean of 2", (35.0, None)))


def test_psnr_has_cases_down_and_methods_across():
    table = psnr_table(ROWS)
    assert table.columns == ("tv", "bart 1", "bart 2")
    assert table.rows[1] == ("b, p", (40.0, None, 38.0))
    assert table.rows[-1] == ("mean of 2", (40.0, 39.0, 38.5))


def test_the_table_of_cases_has_every_row_and_says_why_one_failed():
    read = list(csv.DictReader(io.StringIO(case_table(ROWS).csv())))
    assert len(read) == len(ROWS)
    assert [read[4][name] for name in ("scan", "pattern", "method", "PSNR", "failed")] == [
        "b",
        "p",
        "bart 1",
        "",
        "no maps",
    ]
    assert "key" not in read[0]


def test_tables_of_nothing_are_empty():
    assert mean_table([]).rows == ()
    assert case_table([]).rows == ()
