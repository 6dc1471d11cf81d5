"""Rows that outlive the run that made them."""

import json
import re

import pytest

from gadget.errors import FileError
from gadget.kept_rows import ROWS_FILE, KeptRows, identity_of


def never():
    pytest.fail("the row was there already")


def test_a_row_is_made_once_and_read_by_the_next_run(tmp_path):
    folder = tmp_path / "new" / "folder"
    row = KeptRows(folder).get("a", lambda: {"PSNR": 30.125, "method": "tv"})
    assert row == {"key": "a", "PSNR": 30.125, "method": "tv"}
    later = KeptRows(folder)
    assert later.get("a", never) == row
    assert later.get("b", lambda: {"PSNR": 1.0})["PSNR"] == 1.0
    assert [json.loads(line)["key"] for line in (folder / ROWS_FILE).read_text().splitlines()] == ["a", "b"]


def test_without_a_folder_rows_live_as_long_as_the_object(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = KeptRows(None)
    rows.get("a", lambda: {"PSNR": 1.0})
    assert rows.get("a", never)["PSNR"] == 1.0
    assert not list(tmp_path.iterdir())


def test_half_a_line_of_a_run_that_was_killed_is_made_anew(tmp_path):
    KeptRows(tmp_path).get("a", lambda: {"PSNR": 1.0})
    with (tmp_path / ROWS_FILE).open("a") as file:
        file.write('{"key": "b", "PS')
    rows = KeptRows(tmp_path)
    assert rows.get("a", never)["PSNR"] == 1.0
    assert rows.get("b", lambda: {"PSNR": 2.0})["PSNR"] == 2.0
    assert KeptRows(tmp_path).get("b", never)["PSNR"] == 2.0


def test_a_row_that_failed_is_made_again(tmp_path):
    KeptRows(tmp_path).get("a", lambda: {"failed": "took more than 600 s"})
    assert KeptRows(tmp_path).get("a", lambda: {"PSNR": 1.0})["PSNR"] == 1.0
    assert KeptRows(tmp_path).get("a", never) == {"key": "a", "PSNR": 1.0}


@pytest.mark.parametrize("line", ["no json", '{"PSNR": 1.0}', "[1]"])
def test_a_line_that_is_no_row_is_named(tmp_path, line):
    (tmp_path / ROWS_FILE).write_text('{"key": "a"}\n' + line + "\n")
    with pytest.raises(FileError, match="line 2 is no row of an evaluation"):
        KeptRows(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=re.escape(f"Cannot make the folder {tmp_path / 'file'}")):
        KeptRows(tmp_path / "file")


def test_an_identity_changes_with_any_part():
    assert identity_of(1, "a") == identity_of(1, "a")
    assert len({identity_of(1, "a"), identity_of(1, "b"), identity_of(2, "a"), identity_of("1", "a")}) == 4
