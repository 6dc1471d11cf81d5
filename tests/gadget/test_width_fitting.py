"""``prior fit-width``: what it writes, what it refuses, and the factor that it finds."""

import re
from functools import partial

import numpy as np
import pytest
import torch

from gadget import width_fitting
from gadget.configs import config_folder
from gadget.errors import SettingsError
from gadget.width_fitting import WidthFit, coverage_table, with_factor
from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.evaluation.coverage import PixelErrors
from reconlib.evaluation.study import Case, FullScan, MethodError, MethodImage
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import load_prior, read_card, write_prior
from reconlib.reconstruction import ReconstructionSettings

QUICK = (
    *("--set", "solver.iterations=2", "--device", "cpu", "--coils", "3", "--slices", "1"),
    *("--set", "posterior.chains=2", "--set", "posterior.warmup=2", "--set", "posterior.draws=4"),
)


@pytest.fixture
def run(run):
    """Return a function that runs the command and returns exit code, stdout and stderr."""
    return partial(run, "prior", "fit-width")


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(np.linspace(-1, 1, 40), np.linspace(-1, 1, 36), indexing="ij")
    heads = np.exp(-3 * (x**2 + y**2))[None] + 0.01 * rng.random((4, 40, 36))
    np.save(tmp_path / "heads.npy", heads.astype(np.float32))
    return tmp_path / "heads.npy"


@pytest.fixture
def learned(tmp_path):
    """A small learned prior with random weights, in a folder of its own."""
    torch.manual_seed(0)
    shipped = read_card(config_folder() / "priors" / "brain-local")
    architecture = shipped.architecture.model_copy(update={"widths": (4, 4)})
    network = LocalEnergyNetwork(
        LocalEnergySizes(widths=architecture.widths, input_gain=architecture.input_gain)
    )
    changes = {"architecture": architecture, "energy_percentiles": None, "posterior": None}
    write_prior(tmp_path / "learned", shipped.model_copy(update=changes), network.state_dict())
    return tmp_path / "learned"


@pytest.fixture
def cases(generator):
    """Two cases to fit on and two others: discs of brightness 2."""
    y, x = torch.meshgrid(torch.linspace(-1, 1, 61), torch.linspace(-1, 1, 48), indexing="ij")
    reference = torch.where(x**2 + y**2 < 0.6, 2.0, 0.0)[None, None]
    mask = torch.ones(1, 1, 61, 48, dtype=torch.bool)
    scans = [
        FullScan(
            name=f"disc {number}",
            samples=torch.randn(1, 2, 61, 48, dtype=torch.complex64, generator=generator),
            noise_std=0.1,
            noise_source="made up",
            reference=reference,
        )
        for number in range(4)
    ]
    return [Case(scan=scan, pattern="all", mask=mask) for scan in scans]


def fit(monkeypatch, learned, cases, method, keep=None):
    monkeypatch.setattr(width_fitting, "posterior_mean", lambda *_args, **_kwargs: method)
    return width_fitting.fit_width(
        load_prior(learned, torch.device("cpu")),
        cases[:2],
        cases[2:],
        ReconstructionSettings(),
        PosteriorSettings(),
        seed=0,
        device=torch.device("cpu"),
        keep=keep,
        on_case=lambda: None,
    )


def test_widths_that_are_off_by_two_get_the_factor_two_whatever_the_other_scans_are_like(
    monkeypatch, learned, cases, tmp_path, generator
):
    runs = []

    def half_as_wide(case):
        runs.append(case)
        error = 0.06 if any(case is one for one in cases[:2]) else 0.09
        noise = error * torch.randn(case.reference.shape, generator=generator)
        std = torch.full_like(case.reference, 0.03)
        outcome = (
            {"outcome": "not mixed"} if case is cases[0] else {"outcome": "all draws made, the chains agree"}
        )
        return MethodImage(image=(case.reference + noise).abs(), std=std, facts=outcome)

    found = fit(monkeypatch, learned, cases, half_as_wide, tmp_path / "kept")
    # the relative standard error of the quantile over 2 x 1400 pixels is 2 %
    assert found.factor == pytest.approx(2.0, rel=0.08)
    assert found.mean_coverage(0.9, 1.0) == pytest.approx(0.4165, abs=0.05)  # P(|n| < 1.645 / 3)
    assert found.mean_coverage(0.9, 2.0) == pytest.approx(0.727, abs=0.05)  # P(|n| < 1.645 * 2 / 3)
    assert [name for name, _ in found.held_out] == ["disc 2, all", "disc 3, all"]
    assert found.notes == ("disc 0, all: not mixed",)
    again = fit(monkeypatch, learned, cases, half_as_wide, tmp_path / "kept")
    assert (again.factor, len(runs)) == (found.factor, 4)


def test_a_sampling_without_an_image_ends_the_fit(monkeypatch, learned, cases):
    def lost(_case):
        raise MethodError("no posterior mean: a chain has infinities or NaNs")

    with pytest.raises(SettingsError, match=r"fit-width: disc 0, all: no posterior mean: a chain has inf"):
        fit(monkeypatch, learned, cases, lost)


def test_the_card_and_the_table_say_what_the_others_got(learned):
    rng = np.random.default_rng(1)
    std = np.full(5000, 0.01)
    errors = PixelErrors(error=0.03 * rng.standard_normal(5000), std=std, reference_std=np.zeros_like(std))
    fitted = WidthFit(factor=3.0, fitted=(errors,), held_out=(("a", errors), ("b", errors)))
    card = with_factor(read_card(learned), fitted, "one scan")
    assert card.posterior.std_factor == 3.0
    assert card.posterior.fitted_on == "one scan"
    assert card.posterior.coverage["scans_not_used_in_the_fit"] == 2
    assert card.posterior.coverage["after"]["90"] == pytest.approx(0.9, abs=0.025)
    assert card.posterior.coverage["before"]["90"] == pytest.approx(0.4165, abs=0.04)  # P(|n| < 1.645 / 3)
    table = coverage_table(fitted)
    assert [name for name, _ in table.rows] == ["a", "b", "mean of 2"]
    mean = dict(zip(table.columns, table.rows[-1][1], strict=True))
    assert mean["after 90 %"] == pytest.approx(90, abs=2.5)


def test_the_command_samples_and_writes_the_card(run, learned, images, tmp_path):
    weights = (learned / "prior.safetensors").read_bytes()
    code, out, err = run(learned, images, *QUICK, "--keep", tmp_path / "kept")
    assert code == 0, err
    assert (learned / "prior.safetensors").read_bytes() == weights
    posterior = load_prior(learned, torch.device("cpu")).card.posterior
    assert f"factor on the standard deviation: {posterior.std_factor:.3f}" in out
    assert "1 scan of 3 coils, simulated from magnitude images, noise 0." in posterior.fitted_on
    assert (
        "cartesian-4; 90 % interval inside the head; kinetic, 2 chains, 2 + 4 x 1 steps"
        in posterior.fitted_on
    )
    assert set(posterior.coverage) == {"scans_not_used_in_the_fit", "before", "after"}
    assert "| not used in the fit " in out
    assert "heads image 3, cartesian-4" in out  # the odd one of the two that were taken
    assert re.search(r"Note: heads image \d, cartesian-4: not mixed", err)
    # a second fit starts from no factor, so it finds the same
    assert run(learned, images, *QUICK, "--keep", tmp_path / "kept")[0] == 0
    assert load_prior(learned, torch.device("cpu")).card.posterior == posterior


def test_what_cannot_be_done_is_refused_before_the_work(run, images, tmp_path):
    shipped = run("tv", images, *QUICK)
    assert shipped[0] == 2
    assert "is a shipped prior or cannot be written; name a folder for a copy" in shipped[2]
    there = run("tv", images, *QUICK, "--out", tmp_path)
    assert there[0] == 2
    assert "exists; name a new folder" in there[2]
    pattern = run("tv", images, *QUICK, "--out", tmp_path / "new", "--patterns", "zigzag")
    assert pattern[0] == 2
    assert "there is no pattern 'zigzag'" in pattern[2]
    np.save(tmp_path / "one.npy", np.load(images)[:1])
    single = run("tv", tmp_path / "one.npy", *QUICK, "--out", tmp_path / "new")
    assert single[0] == 1
    assert "has 1 image to scan; two parts need at least two" in single[2]
    assert not (tmp_path / "new").exists()
