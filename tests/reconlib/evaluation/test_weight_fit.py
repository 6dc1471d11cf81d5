"""The fit of a weight's rule, on stand-ins whose best weight is known in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import curve_fit

from reconlib.energies.total_variation import TotalVariation
from reconlib.evaluation.study import Case, FullScan
from reconlib.evaluation.weight_fit import (
    FitCase,
    FitError,
    Measured,
    fit_line,
    fit_weight,
    noise_level,
    parabola_top,
    search_weight,
)
from reconlib.joint.prior_weight import prior_weight
from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior
from reconlib.reconstruction import ReconstructionSettings, coil_smoothness, reconstruct

TEMPERATURE = 0.25
BEST_MU = 1.0


def card(**weight) -> PriorCard:
    return PriorCard.model_validate(
        {
            "name": "some",
            "version": "1.0",
            "description": "for tests",
            "architecture": {"kind": "total-variation", "epsilon": 1e-3},
            "temperature": TEMPERATURE,
            "prior_weight": {"rule": "noise", "factor": 2.0} | weight,
            "anatomy": "any",
            "licence": "MIT",
        }
    )


def scan(level: float, name: str = "") -> FitCase:
    samples = torch.full((1, 1, 4, 4), 0.25 + 0j)  # the image is a point of 1, so the scale is 1
    full = FullScan(name=name or f"{level:g}", samples=samples, noise_std=level, noise_source="set")
    case = Case(scan=full, pattern="all", mask=torch.ones(1, 1, 4, 4, dtype=torch.bool))
    return FitCase(case=case, scan=full.name)


class Known:
    """A reconstruction whose PSNR is a parabola in log2 lambda and in log mu, with its top where we say."""

    def __init__(self, best_of, curvature=0.7):
        self.best_of = best_of
        self.curvature = curvature
        self.calls = []

    def __call__(self, case, of_card, settings):
        level = case.scan.noise_std
        weight, _ = prior_weight(
            of_card,
            level,
            rule=settings.prior_weight_rule,
            value=settings.prior_weight,
            factor=settings.prior_weight_factor,
        )
        mu = coil_smoothness(settings, of_card, (256, 256))
        off = math.log2(weight / self.best_of(case.scan))
        self.calls.append((case.scan.name, weight, mu))
        psnr = 40 - self.curvature * off**2 - math.log10(mu / BEST_MU) ** 2
        return Measured(psnr=psnr, weight=weight, noise_level=level)


SETTINGS = ReconstructionSettings()


@pytest.mark.parametrize("ratio", [1.0, 2.9, 0.07, 300.0])
def test_the_best_weight_is_found_between_the_factors_and_beyond_them(ratio):
    plain = 2.0 * 0.02**2 / TEMPERATURE
    found = search_weight(scan(0.02), card(), Known(lambda _: ratio * plain), SETTINGS)
    assert found.weight == pytest.approx(ratio * plain, rel=1e-9)
    assert found.psnr == pytest.approx(40 - math.log10(0.3) ** 2)
    assert found.inside
    assert found.noise_level == 0.02


def test_a_weight_out_of_reach_is_told():
    found = search_weight(scan(0.02), card(), Known(lambda _: 1e9), SETTINGS)
    assert not found.inside
    fit = fit_weight(card(), [scan(0.02)], Known(lambda _: 1e9), SETTINGS, rule="noise")
    assert any("lies outside what was tried" in note for note in fit.notes)


@pytest.mark.parametrize("values", [(-math.inf, 3.0, 1.0), (3.0, 3.0, 3.0)])
def test_where_there_is_no_parabola_the_middle_is_the_top(values):
    assert parabola_top(5.0, values) == (5.0, 3.0)


def test_the_parabola_is_that_of_a_polynomial_fit():
    values = (31.2, 33.9, 33.1)
    c2, c1, c0 = np.polyfit([4, 5, 6], values, 2)
    assert parabola_top(5.0, values) == pytest.approx((-c1 / 2 / c2, c0 - c1**2 / 4 / c2))


def test_the_noise_rule_gets_the_geometric_mean_of_the_factors_and_the_best_mu():
    factors = {"0.02": 0.5, "0.01": 8.0, "0.001": 2.0}

    def best_of(one):
        return factors[one.name] * max(one.noise_std**2, 1e-5) / TEMPERATURE

    fit = fit_weight(card(), [scan(0.02), scan(0.01), scan(0.001)], Known(best_of), SETTINGS, rule="noise")
    new = fit.rule.on(card(), "three scans")

    assert fit.rule.factor == pytest.approx(2.0, rel=1e-3)
    assert fit.rule.coil_smoothness == BEST_MU
    assert fit.rule.spread == pytest.approx(math.exp(math.log(4) * math.sqrt(2 / 3)), rel=1e-3)
    assert new.prior_weight.factor == pytest.approx(2.0, rel=1e-3)
    assert new.prior_weight.coil_smoothness == BEST_MU
    assert new.prior_weight.rule == "noise"
    assert fit.rule.on(card(slope=0.7), "").prior_weight.slope == 0.7
    assert new.prior_weight.fitted_on == "three scans"
    assert sorted(fit.best) == [0.1, 0.3, 1.0, 3.0]
    assert fit.notes == ()


def test_a_line_is_found_and_its_card_gives_the_best_weights():
    def best_of(one):
        return 0.003 + 0.2 * one.noise_std

    cases = [scan(level) for level in (0.002, 0.005, 0.011, 0.02)]
    fit = fit_weight(card(), cases, Known(best_of), SETTINGS, rule="fit")
    new = fit.rule.on(card(), "four scans")

    assert (fit.rule.intercept, fit.rule.slope) == (
        pytest.approx(0.003, rel=1e-3),
        pytest.approx(0.2, rel=1e-3),
    )
    assert fit.rule.r_squared == pytest.approx(1.0)
    for one in cases:
        weight, rule = prior_weight(new, one.case.scan.noise_std, rule=None, value=None, factor=1.0)
        assert rule == "fit"
        assert weight == pytest.approx(best_of(one.case.scan), rel=1e-3)


def test_the_line_is_that_of_a_relative_fit_by_scipy():
    levels = np.array([0.002, 0.004, 0.009, 0.02, 0.03])
    weights = np.array([1.1e-3, 2.3e-3, 4.1e-3, 9.7e-3, 1.2e-2])
    expected, _ = curve_fit(lambda x, a, b: a + b * x, levels, weights, sigma=weights, p0=(1e-3, 0.4))
    assert fit_line(levels, weights) == pytest.approx(tuple(expected), rel=1e-3)


def test_a_line_never_gives_a_negative_weight():
    levels = np.array([0.01, 0.02, 0.03])
    assert fit_line(levels, levels**2)[0] == 0.0
    intercept, slope = fit_line(levels, 1e-4 / levels)
    assert slope == 0.0
    assert intercept > 0
    fit = fit_weight(
        card(),
        [scan(level) for level in levels],
        Known(lambda one: one.noise_std**2),
        SETTINGS,
        rule="fit",
    )
    assert any("intercept of the line would have been negative" in note for note in fit.notes)


def test_too_few_scans_or_equal_noise_levels_make_no_line():
    known = Known(lambda _: 1e-3)
    with pytest.raises(
        FitError, match=r"at least 3 scans, and these are 2; give more, or fit the rule 'noise'"
    ):
        fit_weight(card(), [scan(0.01), scan(0.02)], known, SETTINGS, rule="fit")
    same = [scan(0.01, "a"), scan(0.01, "b"), scan(0.0101, "c")]
    with pytest.raises(FitError, match=r"between 0\.01 and 0\.0101, too close together for a line"):
        fit_weight(card(), same, known, SETTINGS, rule="fit")
    assert known.calls == []
    with pytest.raises(FitError, match="nothing to fit to"):
        fit_weight(card(), [], known, SETTINGS, rule="noise")


def test_held_out_scans_are_told_before_and_after():
    def best_of(one):
        return 16 * max(one.noise_std**2, 1e-5) / TEMPERATURE

    fit = fit_weight(
        card(),
        [scan(0.02), scan(0.01)],
        Known(best_of),
        ReconstructionSettings(coil_smoothness=BEST_MU),
        rule="noise",
        report_on=[scan(0.03, "new")],
    )
    (told,) = fit.held_out
    # the card's factor 2 is 3 powers of two off: 0.7 * 9 dB
    assert told.before == pytest.approx(40 - 6.3)
    assert told.after == pytest.approx(40.0, abs=1e-4)
    assert told.name == "new, all"
    assert not fit.left_out_in_turn


def test_without_other_scans_each_is_left_out_in_turn_with_all_its_slices():
    factors = {"a": 1.0, "b": 4.0, "c": 16.0}
    cases = [FitCase(case=scan(0.02, f"{name}{part}").case, scan=name) for name in factors for part in (1, 2)]
    known = Known(lambda one: factors[one.name[0]] * one.noise_std**2 / TEMPERATURE)
    fit = fit_weight(card(), cases, known, SETTINGS, rule="noise")

    assert fit.left_out_in_turn
    # left out: a -> factor 8 (3 off), b -> 4 (0 off), c -> 2 (3 off)
    assert [one.after for one in fit.held_out] == pytest.approx(
        [40 - 6.3, 40 - 6.3, 40, 40, 40 - 6.3, 40 - 6.3], abs=1e-2
    )


def test_a_single_scan_cannot_report_on_itself():
    fit = fit_weight(card(), [scan(0.02)], Known(lambda _: 1e-3), SETTINGS, rule="noise")
    assert fit.held_out == ()
    assert "no scan can be left out of the fit" in fit.no_report


def test_the_weight_that_the_settings_name_is_not_what_is_fitted():
    asked = ReconstructionSettings(prior_weight_rule="fixed", prior_weight=7.0, prior_weight_factor=3.0)
    runs = [
        fit_weight(card(), [scan(0.02), scan(0.01)], Known(lambda _: 1e-3), settings, rule="noise")
        for settings in (asked, SETTINGS)
    ]
    assert runs[0] == runs[1]


def test_a_card_without_its_fit_can_be_given_one():
    cases = [scan(level) for level in (0.01, 0.02, 0.03, 0.04)]
    fit = fit_weight(card(rule="fit"), cases, Known(lambda one: one.noise_std), SETTINGS, rule="fit")
    assert fit.rule.slope == pytest.approx(1.0, rel=1e-3)
    assert len(fit.held_out) == 4


def test_the_noise_level_is_the_one_that_the_reconstruction_uses(generator):
    samples = torch.randn(1, 3, 16, 12, generator=generator, dtype=torch.complex64)
    full = FullScan(name="a", samples=samples, noise_std=0.3, noise_source="set")
    case = Case(scan=full, pattern="half", mask=torch.rand(1, 1, 16, 12, generator=generator) < 0.5)
    prior = Prior(card(), TotalVariation(TEMPERATURE, 1e-3))
    result = reconstruct(case.kspace, prior=prior, settings=ReconstructionSettings(iterations=1))
    assert noise_level(case) == pytest.approx(result.noise_level[0], rel=1e-5)


def test_a_best_mu_at_the_edge_is_told():
    fit = fit_weight(
        card(),
        [scan(0.02), scan(0.01)],
        Known(lambda _: 1e-3),
        SETTINGS,
        rule="noise",
        coil_smoothness=(0.1, 0.3),
    )
    assert fit.rule.coil_smoothness == 0.3
    assert fit.notes == ("the best mu, 0.3, is the last one of those tried; try others.",)
