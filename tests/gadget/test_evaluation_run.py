"""Running an evaluation with methods that are made up: rows, tables, pictures, going on where it stopped."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

from gadget.errors import FileError
from gadget.evaluation import BEST_OF_BART, NamedMethod, run_evaluation, stored_errors
from gadget.kept_rows import ROWS_FILE, identity_of_case
from reconlib.evaluation.bart import BartError
from reconlib.evaluation.best_weight import BART_NAMES
from reconlib.evaluation.study import Case, FullScan, MethodError, MethodImage

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


class Uncertain(Counting):
    """Errors of a known standard deviation, told with a factor of a card in it."""

    def __init__(self, generator, told=0.05, factor=2.0):
        super().__init__(0.0)
        self._generator, self._told, self._factor = generator, told, factor

    def __call__(self, case):
        result = super().__call__(case)
        noise = 0.05 * torch.randn(result.image.shape, generator=self._generator)
        std = torch.full_like(result.image, self._told)
        return replace(result, image=(result.image + noise).abs(), std=std, std_factor=self._factor)


@pytest.fixture
def heads(generator):
    """Two cases whose reference is a disc of brightness 2."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 61), torch.linspace(-1, 1, 48), indexing="ij")
    reference = torch.where(x**2 + y**2 < 0.6, 2.0, 0.0)[None, None]
    samples = torch.randn(1, 2, 61, 48, dtype=torch.complex64, generator=generator)
    scan = FullScan(name="disc", samples=samples, noise_std=0.1, noise_source="made up", reference=reference)
    mask = torch.ones(1, 1, 61, 48, dtype=torch.bool)
    return [Case(scan=replace(scan, name=name), pattern="all", mask=mask) for name in ("disc 1", "disc 2")]


def test_methods_with_standard_deviations_get_coverage_and_pictures(tmp_path, heads, monkeypatch, generator):
    monkeypatch.setattr("test_evaluation_run.MATRIX", (61, 48))
    methods = named(honest=Uncertain(generator), plain=Counting(0.1))
    result = run_evaluation(tmp_path, heads, methods)
    honest, plain = result.rows[:2]
    # 1900 pixels: the binomial error of 0.9 is 0.007, that of 0.5 is 0.011
    assert honest["coverage_50"] == pytest.approx(0.5, abs=0.05)
    assert honest["coverage_90"] == pytest.approx(0.9, abs=0.035)
    assert honest["coverage_95"] == pytest.approx(0.95, abs=0.025)
    assert honest["coverage_90_without_factor"] == pytest.approx(0.589, abs=0.055)  # P(|n| < 1.645 / 2)
    assert honest["mean_std"] == pytest.approx(0.05 / 2, rel=0.01)
    assert honest["rms_error_in_head"] == pytest.approx(0.05 / 2, rel=0.06)
    assert not any("coverage" in key or "std" in key for key in plain)
    means = dict(result.means.rows)
    column = result.means.columns.index("coverage_90")
    assert means["honest"][column] == pytest.approx(
        (honest["coverage_90"] + result.rows[2]["coverage_90"]) / 2
    )
    assert means["plain"][column] is None
    names = {path.name for path in result.files}
    assert {"reliability_honest.png", "disc_1_all_uncertainty_honest.png"} <= names
    assert not any("uncertainty_plain" in name or "reliability_plain" in name for name in names)
    for path in result.files:
        assert path.is_file()


def test_standard_deviations_are_kept_beside_the_images(tmp_path, heads, monkeypatch, generator):
    monkeypatch.setattr("test_evaluation_run.MATRIX", (61, 48))
    methods, cases = named(honest=Uncertain(generator), plain=Counting(0.1)), heads[:1]
    first = run_evaluation(tmp_path, cases, methods)
    kept = stored_errors(tmp_path, cases[0], "honest", methods["honest"])
    assert kept.coverage(0.9) == pytest.approx(first.rows[0]["coverage_90"], abs=1e-3)
    assert stored_errors(tmp_path, cases[0], "plain", methods["plain"]) is None
    picture = tmp_path / "reliability_honest.png"
    before = picture.read_bytes()
    picture.unlink()
    assert run_evaluation(tmp_path, cases, methods).rows == first.rows
    assert methods["honest"].method.runs == 1
    assert picture.read_bytes() == before


def test_the_noise_of_the_reference_widens_the_interval_and_is_part_of_the_key(
    tmp_path, heads, monkeypatch, generator
):
    monkeypatch.setattr("test_evaluation_run.MATRIX", (61, 48))
    methods = named(narrow=Uncertain(generator, told=0.03, factor=1.0))
    noisy = [replace(heads[0], scan=replace(heads[0].scan, reference_noise_std=0.04))]  # 0.03, 0.04, 0.05
    narrow, widened = (
        run_evaluation(tmp_path, cases, methods, pictures=False).rows[0] for cases in (heads[:1], noisy)
    )
    assert narrow["coverage_90"] < 0.75
    assert widened["coverage_90"] == pytest.approx(0.9, abs=0.035)
    assert methods["narrow"].method.runs == 2


def test_a_method_without_an_image_leaves_a_row_with_the_reason(tmp_path, cases):
    def too_short(_case):
        raise MethodError("no posterior mean: too short")

    result = run_evaluation(tmp_path, cases[:1], named(short=too_short, good=Counting(0.1)))
    assert result.rows[0]["failed"] == "no posterior mean: too short"
    assert "PSNR" in result.rows[1]
