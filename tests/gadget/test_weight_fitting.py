"""``prior fit-weight``: what it writes, what it refuses, and that it goes on where it was stopped."""

import json
from functools import partial

import pytest
import torch
import yaml
from simulated_scans import make_scan

from gadget.configs import config_folder
from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.priors.library import load_prior, read_card, verify_prior, write_prior

QUICK = ("--set", "solver.iterations=1", "--device", "cpu", "--mu", "1")


@pytest.fixture
def run(run):
    """Return a function that runs the command and returns exit code, stdout and stderr."""
    return partial(run, "prior", "fit-weight")


@pytest.fixture
def scans(tmp_path):
    """Three scans of different noise."""
    return [
        make_scan(tmp_path / f"scan{number}.h5", n_slices=1, noise=noise)
        for number, noise in enumerate((0.01, 0.02, 0.04))
    ]


@pytest.fixture
def learned(tmp_path):
    """A small learned prior with random weights, in a folder of its own."""
    torch.manual_seed(0)
    shipped = read_card(config_folder() / "priors" / "brain-local")
    architecture = shipped.architecture.model_copy(update={"widths": (4, 4)})
    network = LocalEnergyNetwork(
        LocalEnergySizes(widths=architecture.widths, input_gain=architecture.input_gain)
    )
    card = shipped.model_copy(update={"architecture": architecture, "energy_percentiles": None})
    write_prior(tmp_path / "learned", card, network.state_dict())
    return tmp_path / "learned"


def test_a_copy_of_a_shipped_prior_gets_the_line(run, scans, tmp_path):
    before = (config_folder() / "priors" / "total-variation" / "card.yaml").read_bytes()

    code, out, err = run(
        "tv", *scans, "--rule", "fit", "--out", tmp_path / "tv-fitted", *QUICK, "--mu", "0.3,1"
    )

    assert code == 0, err
    card = verify_prior(tmp_path / "tv-fitted")
    weight = card.prior_weight
    assert weight.rule == "fit"
    assert weight.slope is not None
    assert weight.slope >= 0
    assert weight.intercept >= 0
    assert weight.coil_smoothness in (0.3, 1.0)
    assert weight.fitted_on.startswith("3 scans (3 slices), noise level ")
    assert "cartesian-4, 1 iterations of the solver fast per slice, reference rss" in weight.fitted_on
    assert "scan0" not in weight.fitted_on
    for text in ("| best weight, mu = ", "| mu ", f"lambda = {weight.intercept:g} + {weight.slope:g} sigma"):
        assert text in out
    # two scans are left when one is left out: too few for a line
    assert "No report: no scan can be left out of the fit: the rule 'fit' is a line" in err
    assert (config_folder() / "priors" / "total-variation" / "card.yaml").read_bytes() == before


def test_a_prior_of_ones_own_is_changed_in_place_and_other_scans_tell_what_it_is_worth(run, learned, scans):
    weights = (learned / "prior.safetensors").read_bytes()

    code, out, err = run(
        learned, *scans[:2], "--report-on", scans[2], "--rule", "noise", "--reference", "truth", *QUICK
    )

    assert code == 0, err
    assert (learned / "prior.safetensors").read_bytes() == weights
    card = load_prior(learned, torch.device("cpu")).card
    assert card.prior_weight.rule == "noise"
    assert card.prior_weight.coil_smoothness == 1.0
    assert "2 scans (2 slices)" in card.prior_weight.fitted_on
    assert "reference truth" in card.prior_weight.fitted_on
    assert f"lambda = {card.prior_weight.factor:g} max(sigma^2, 1e-5) / T" in out
    assert "| not used in the fit " in out
    assert "scan2, cartesian-4" in out


def test_a_search_goes_on_where_it_was_stopped_and_says_the_same(run, scans, tmp_path):
    keep = tmp_path / "kept"
    arguments = ("tv", *scans[:2], "--rule", "noise", "--keep", keep, *QUICK)
    first = run(*arguments, "--out", tmp_path / "a")
    rows = (keep / "rows.jsonl").read_text().splitlines()
    (keep / "rows.jsonl").write_text("\n".join(rows[:5]) + "\n")
    second = run(*arguments, "--out", tmp_path / "b")
    marked = [json.loads(line) | {"PSNR": -1.0 - number} for number, line in enumerate(rows)]
    (keep / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in marked))
    third = run(*arguments, "--out", tmp_path / "c")

    assert first[0] == second[0] == third[0] == 0
    assert first[1].replace(str(tmp_path / "a"), "") == second[1].replace(str(tmp_path / "b"), "")
    assert third[1] != first[1]  # it is what was kept that is told
    cards = [yaml.safe_load((tmp_path / name / "card.yaml").read_text()) for name in "ab"]
    assert cards[0] == cards[1]
    assert "left out of the fit in turn" in first[1]


def test_what_cannot_be_done_is_refused_before_the_work(run, scans, tmp_path):
    shipped = run("tv", scans[0], *QUICK)
    assert shipped[0] == 2
    assert "is a shipped prior or cannot be written; name a folder for a copy" in shipped[2]
    same = run("tv", *scans[:2], "--report-on", scans[1], "--out", tmp_path / "new", *QUICK)
    assert same[0] == 2
    assert "is used for the fit, so it cannot show what the fit is worth" in same[2]
    there = run("tv", scans[0], "--out", tmp_path)
    assert there[0] == 2
    assert "exists; name a new folder" in there[2]
    for mu in ("0", "a", "", "inf", "nan"):
        wrong = run("tv", scans[0], "--out", tmp_path / "new", "--mu", mu)
        assert wrong[0] == 2, mu
        assert "--mu is" in wrong[2]
    pattern = run("tv", scans[0], "--out", tmp_path / "new", "--patterns", "zigzag")
    assert pattern[0] == 2
    assert "there is no pattern 'zigzag'; choose from cartesian-4" in pattern[2]
    unknown = run("nobody", scans[0], "--out", tmp_path / "new")
    assert unknown[0] == 1
    assert "there is no prior named 'nobody'" in unknown[2]
    assert not (tmp_path / "new").exists()


def test_scans_that_make_no_line_leave_the_card_as_it_is(run, learned, scans):
    before = (learned / "card.yaml").read_bytes()
    code, _, err = run(learned, *scans[:2], "--rule", "fit", *QUICK)
    assert code == 1
    assert "fit-weight: the rule 'fit' is a line through at least 3 scans" in err
    assert (learned / "card.yaml").read_bytes() == before
