"""Running an evaluation with methods that are made up: rows, tables, pictures, going on where it stopped."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from gadget.errors import FileError
from gadget.evaluation import BEST_OF_BART, NamedMethod, run_evaluation
from gadget.kept_rows import ROWS_FILE, identity_of_case
from reconlib.evaluation.bart import BartError
from reconlib.evaluation.best_weight import BART_NAMES
from reconlib.evaluation.study import Case, FullScan, MethodImage

MATRIX = (15, 12)


@pytest.fixture
def cases(generator):
    samples = torch.randn(1, 2, *MATRIX, dtype=torch.complex64, generator=generator)
    scan = FullScan(name="brain 1", samples=samples, noise_std=0.1, noise_source="made up")
    masks = torch.rand(2, 1, 1, *MATRIX, generator=generator) < 0.5
    return [
        Case(scan=scan, pattern=name, mask=mask) for name, mask in zip(("one", "two"), masks, strict=True)
    ]


class Counting:
    """A method that is the reference plus an error, and knows how often it ran."""

    def __init__(self, error, coils=False, fails_on=()):
        self.runs = 0
        self._error, self._coils, self._fails_on = error, coils, fails_on

    def __call__(self, case):
        self.runs += 1
        if case.pattern in self._fails_on:
            raise BartError("bart pics failed: no reason")
        ramp = torch.linspace(-1, 1, MATRIX[1]).expand(1, 1, *MATRIX)
        return MethodImage(
            image=(case.reference + self._error * ramp).abs(),
            coils=case.scan.coil_images() if self._coils else None,
            facts={"weight": 0.5},
        )


def named(**methods):
    return {name: NamedMethod(method, f"identity of {name}") for name, method in methods.items()}


def numbers(result):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in result.rows]


def test_every_case_meets_every_method(tmp_path, cases):
    seen = []
    methods = named(good=Counting(0.1, coils=True), bad=Counting(0.5))
    result = run_evaluation(tmp_path / "out", cases, methods, on_row=seen.append, about="What this is.")
    assert [(row["pattern"], row["method"]) for row in result.rows] == [
        ("one", "good"),
        ("one", "bad"),
        ("two", "good"),
        ("two", "bad"),
    ]
    assert seen == list(result.rows)
    assert result.psnr.rows[-1][0] == "mean of 2"
    good, bad = result.psnr.rows[-1][1]
    assert good > bad + 10
    with (tmp_path / "out" / "table.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(row["PSNR"]) for row in read] == [row["PSNR"] for row in result.rows]
    assert (tmp_path / "out" / "table.md").read_text().startswith("What this is.\n\n| scan ")
    for path in result.files:
        assert path.is_file()
    names = {path.name for path in result.files}
    assert {"brain_1_one.png", "brain_1_one_mask.png", "brain_1_two_coils_good.png", "means.md"} <= names
    assert not any("coils_bad" in name for name in names)


def test_a_second_run_computes_nothing_and_shows_the_same(tmp_path, cases):
    methods, cases = named(good=Counting(0.1)), cases[:1]
    first = run_evaluation(tmp_path, cases, methods)
    panel = (tmp_path / "brain_1_one.png").read_bytes()
    (tmp_path / "brain_1_one.png").unlink()
    second = run_evaluation(tmp_path, cases, methods)
    assert methods["good"].method.runs == 1
    assert second.rows == first.rows
    assert (tmp_path / "brain_1_one.png").read_bytes() == panel


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(tmp_path, cases):
    good, bad = Counting(0.1), Counting(0.5)

    def interrupted(case):
        if case.pattern == "two":
            raise KeyboardInterrupt
        return bad(case)

    with pytest.raises(KeyboardInterrupt):
        run_evaluation(tmp_path, cases, named(good=good, bad=interrupted), pictures=False)
    result = run_evaluation(tmp_path, cases, named(good=good, bad=bad), pictures=False)
    assert (good.runs, bad.runs) == (2, 2)
    again = named(good=Counting(0.1), bad=Counting(0.5))
    whole = run_evaluation(tmp_path / "other", cases, again, pictures=False)
    assert numbers(result) == numbers(whole)


def test_another_identity_mask_or_noise_level_is_another_row(tmp_path, cases):
    method = Counting(0.1)
    run_evaluation(tmp_path, cases, {"m": NamedMethod(method, "a")}, pictures=False)
    run_evaluation(tmp_path, cases, {"m": NamedMethod(method, "b")}, pictures=False)
    assert method.runs == 4
    louder = [replace(case, scan=replace(case.scan, noise_std=0.2)) for case in cases]
    run_evaluation(tmp_path, louder, {"m": NamedMethod(method, "b")}, pictures=False)
    assert method.runs == 6
    flipped = [replace(case, mask=~case.mask) for case in cases]
    assert not {identity_of_case(case) for case in cases} & {identity_of_case(case) for case in flipped}


def test_what_bart_cannot_do_leaves_a_row_with_the_reason(tmp_path, cases):
    wavelet, tv, nlinv = BART_NAMES
    methods = {
        wavelet: NamedMethod(Counting(0.3, fails_on=("two",)), "w"),
        tv: NamedMethod(Counting(0.2, fails_on=("one", "two")), "t"),
        nlinv: NamedMethod(Counting(0.4), "n"),
    }
    result = run_evaluation(tmp_path, cases, methods, pictures=False)
    failed = [(row["pattern"], row["method"]) for row in result.rows if "failed" in row]
    assert failed == [("one", tv), ("two", wavelet), ("two", tv)]
    best = {row["pattern"]: row for row in result.rows if row["method"] == BEST_OF_BART}
    assert (best["one"]["best of"], best["two"]["best of"]) == (wavelet, nlinv)
    again = {wavelet: NamedMethod(Counting(0.3), "w")}
    assert not any("failed" in row for row in run_evaluation(tmp_path, cases, again, pictures=False).rows)
    assert BEST_OF_BART not in (tmp_path / ROWS_FILE).read_text()


def test_without_pictures_there_are_tables_and_the_arrays(tmp_path, cases):
    result = run_evaluation(tmp_path, cases, named(good=Counting(0.1, coils=True)), pictures=False)
    assert not list(tmp_path.glob("*.png"))
    assert {path.suffix for path in result.files} == {".md", ".csv"}
    stored = sorted((tmp_path / "images").iterdir())
    assert [np.load(path).shape for path in stored] == [MATRIX, MATRIX]


def test_a_folder_that_is_a_file_is_refused(tmp_path, cases):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="Cannot make the folder"):
        run_evaluation(tmp_path / "file", cases, named(good=Counting(0.1)))
