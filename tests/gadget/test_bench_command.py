"""``bench``: what it prints and writes, that it goes on where it stopped, and what it refuses."""

import json
import platform
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tiny_bench import TINY, plan, total_variation

from gadget.benchmark import parts, peers, scaling
from gadget.benchmark import run as runs
from gadget.benchmark.cases import head, measured_case
from gadget.benchmark.peers import Peer, PeerError, bart_peers, measure_peer, missing_peers, sigpy_peers
from gadget.benchmark.report import Report
from reconlib.evaluation.bart import Bart
from reconlib.evaluation.study import MethodImage

SPEEDS = ("--quick", "--device", "cpu", "--prior", "tv")


@pytest.fixture
def without_growth(monkeypatch):
    """Leave out how cost grows, and its picture, which take the longest."""
    monkeypatch.setattr(scaling, "growth_of", lambda *_args, **_settings: iter(()))
    monkeypatch.setattr(runs, "save_curves", lambda *_args: None)


@pytest.fixture
def run(run, monkeypatch):
    """Return a function that runs the command on tiny sizes, without peers in reach."""
    monkeypatch.setattr("gadget.benchmark.sizes.QUICK", TINY)
    monkeypatch.setattr(Bart, "find", lambda: None)
    monkeypatch.setattr(runs, "sigpy_peers", list)
    return partial(run, "bench")


@pytest.mark.usefixtures("without_growth")
def test_tables_and_files(run, tmp_path):
    code, out, err = run("--case", "brain", *SPEEDS, "--out", tmp_path / "b")

    assert (code, err) == (0, "")
    for heading in ("Parts of an iteration", "Solvers", "Several slices", "Sampling"):
        assert f"## {heading}" in out
    assert "* brain: 40 x 36, 3 coils, cartesian-4, prior total-variation" in out
    written = (tmp_path / "b" / "results.md").read_text()
    assert written in out
    results = json.loads((tmp_path / "b" / "results.json").read_text())
    assert {"torch", "threads", "processor", "OMP_WAIT_POLICY", "device"} <= results["machine"].keys()
    sections = {row["section"] for row in results["rows"]}
    assert sections == {"solvers", "parts", "slices at once", "posterior"}
    assert results["unfinished"] == 0
    everything = written + json.dumps(results)
    assert str(tmp_path) not in everything
    assert not re.search(rf"\b{re.escape(platform.node())}\b", everything)


@pytest.mark.slow
def test_how_cost_grows_is_a_table_and_a_picture(run, tmp_path):
    code, out, _ = run("--case", "brain", *SPEEDS, "--out", tmp_path / "b")

    assert code == 0
    _, table = out.split("## How the cost of a slice grows")
    for along in ("slices of a scan, 2", "coils, 3", "matrix, 40", "spokes, 8"):
        assert f"| {along} " in table
    assert (tmp_path / "b" / "scaling.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.usefixtures("without_growth")
def test_peers_that_are_not_here_are_left_out_in_words(run, tmp_path):
    code, out, _ = run("--case", "brain", *SPEEDS, "--peers", "--out", tmp_path / "b")

    assert code == 0
    assert "BART is left out: bart is not on the PATH." in out
    assert "sigpy is left out: it is not installed (pip install sigpy)." in out
    assert "Others on the same k-space" not in out


@pytest.mark.usefixtures("without_growth")
def test_a_measured_scan_is_a_case_of_its_own(run, tmp_path):
    rng = np.random.default_rng(0)
    kspace = rng.normal(size=(3, 40, 36)) + 1j * rng.normal(size=(3, 40, 36))
    np.save(tmp_path / "measured.npy", kspace.astype(np.complex64))

    code, out, _ = run(tmp_path / "measured.npy", *SPEEDS, "--out", tmp_path / "b")

    assert code == 0
    assert "* measured: 40 x 36, 3 coils, cartesian-4, prior total-variation" in out
    assert "brain" not in out


@pytest.mark.usefixtures("without_growth")
def test_the_iterations_of_the_settings_hold(run, tmp_path):
    code, out, _ = run("--case", "brain", *SPEEDS, "--set", "solver.iterations=2", "--out", tmp_path / "b")

    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("| iterations  "))
    assert row.split("|")[2].strip() == "2"


def test_a_case_that_is_not_there_is_misuse(run, tmp_path):
    code, _, err = run("--case", "knee", *SPEEDS, "--out", tmp_path / "b")

    assert code == 2
    assert "there is no case 'knee'; choose from paper, brain, radial." in err


@pytest.mark.usefixtures("without_growth")
def test_a_run_that_was_interrupted_goes_on(tmp_path, monkeypatch):
    """What was measured before is read; what was not is measured; a report is there from the first row on."""
    measured = []
    times = parts.time_parts
    monkeypatch.setattr(parts, "time_parts", lambda *a, **k: measured.append("parts") or times(*a, **k))
    stop = KeyboardInterrupt()

    def stopped(row):
        if row["section"] == "parts":
            raise stop

    with pytest.raises(KeyboardInterrupt):
        runs.run_bench(tmp_path, plan("brain"), on_row=stopped)
    assert re.search(r"NOT FINISHED: \d+ rows are missing", (tmp_path / "results.md").read_text())
    first = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    report = runs.run_bench(tmp_path, plan("brain"))

    assert measured == ["parts"]
    assert [row["key"] for row in report.rows[:2]] == [row["key"] for row in first]
    assert report.rows[:2] == tuple(first)
    assert "NOT FINISHED" not in (tmp_path / "results.md").read_text()

    runs.run_bench(tmp_path, plan("brain", seed=1))
    assert measured == ["parts", "parts"]


@pytest.mark.usefixtures("without_growth")
@pytest.mark.slow
def test_radial_samples_have_no_row_of_sampling(tmp_path):
    report = runs.run_bench(tmp_path, plan("radial"))

    assert "9 spokes" in plan("radial").problems["radial"].case.case.pattern
    assert report.of("posterior") == []
    assert len(report.of("solvers")) == 1


def of_truth(case, factor):
    """Return the truth, brighter and with an error that shrinks with the distance from factor 2."""
    wave = 1 + 0.1 * abs(factor - 2) * (case.reference > 0.5 * case.reference.max())
    return MethodImage(image=3 * case.reference * wave + 1e-3, facts={"weight": factor})


def peer(again, **changes):
    def choose(case):
        return MethodImage(image=of_truth(case, 2.0).image, facts={"weight": 2.0, "inside grid": "yes"})

    return Peer(**{"name": "some peer", "choose": choose, "again": again, "identity": "1"} | changes)


def test_a_peer_is_timed_at_the_weight_that_was_chosen():
    case = plan("brain").problems["brain"].case.case
    used = []

    def again(case, facts):
        return lambda: used.append(facts["weight"]) or of_truth(case, facts["weight"])

    row = measure_peer(peer(again), case, repeats=3)

    assert used == [2.0] * 3
    assert row["setting"] == "weight 2"
    assert row["best inside the grid"] == "yes"
    assert row["PSNR"] > 60
    assert {"seconds", "CPU seconds", "SSIM", "load"} <= row.keys()


@pytest.mark.usefixtures("without_growth")
def test_a_peer_that_fails_says_why_and_is_tried_again(tmp_path, monkeypatch):
    fails = [True]

    def again(case, facts):
        def once():
            if fails[0]:
                raise PeerError("it has no image")
            return of_truth(case, facts["weight"])

        return once

    monkeypatch.setattr(runs, "sigpy_peers", lambda: [peer(again)])
    report = runs.run_bench(tmp_path, plan("brain", with_peers=True))
    assert "brain, some peer: it has no image" in report.markdown()

    fails[0] = False
    report = runs.run_bench(tmp_path, plan("brain", with_peers=True))
    table = report.tables()["peers"]
    assert [name for name, _ in table.rows] == [
        "brain, paper (default weight)",
        "brain, fast (default weight)",
        "brain, some peer",
    ]
    assert "it has no image" not in report.markdown()


def test_programs_get_as_many_threads_as_torch(monkeypatch):
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    seen = []

    def again(case, facts):
        import os

        return lambda: seen.append(os.environ["OMP_NUM_THREADS"]) or of_truth(case, facts["weight"])

    measure_peer(peer(again), plan("brain").problems["brain"].case.case, repeats=1)

    assert seen == [str(torch.get_num_threads())]
    import os

    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.slow
def test_bart_at_its_best_weight():
    bart = Bart.find()
    if bart is None:
        pytest.skip("bart is not on the PATH")
    case = measured_case(head((96, 96), 4), TINY, total_variation()).case

    rows = {one.name: measure_peer(one, case, repeats=1) for one in bart_peers(bart)}

    assert list(rows) == ["BART ecalib + pics, l1-wavelet", "BART ecalib + pics, TV", "BART nlinv"]
    assert all(row.get("PSNR", 0) > 15 for row in rows.values()), rows
    assert "Newton steps" in rows["BART nlinv"]["setting"]


def test_off_the_grid_bart_says_that_it_has_no_image(tmp_path, monkeypatch):
    case = plan("radial").problems["radial"].case.case
    monkeypatch.setattr(Bart, "version", lambda _self: "v0.8")

    row = measure_peer(bart_peers(Bart(tmp_path / "bart"))[0], case, repeats=1)

    assert row == {"failed": "this method reconstructs samples on the grid only"}


@pytest.mark.slow
def test_sigpy_at_its_best_weight():
    pytest.importorskip("sigpy")
    case = plan("brain").problems["brain"].case.case

    row = measure_peer(sigpy_peers()[0], case, repeats=1)

    assert row["PSNR"] > 12


def test_missing_peers_are_named():
    assert missing_peers(Bart(Path("bart")), [peer(None)]) == []
    assert len(missing_peers(None, [])) == 2


def test_a_report_without_rows_has_no_tables():
    report = Report(machine={"device": "CPU"}, sizes="tiny", cases={})

    assert report.tables() == {}
    assert "* device: CPU" in report.markdown()
    assert peers.THREADS == "OMP_NUM_THREADS"
