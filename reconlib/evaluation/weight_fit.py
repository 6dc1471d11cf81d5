r"""Fit the rule of a prior's weight, and mu, to validation scans.

For each scan, and each mu of a small grid, the weight lambda that is best against the reference is searched:
factors 2 apart, then the top of the parabola through the best three in log lambda. mu is the one whose best
weights give the highest mean PSNR. The rule is fitted to the best weights at that mu:

* ``noise``: lambda = f max(sigma^2, 1e-5) / T, with f the geometric mean over the scans of best lambda over
  the rule's with f = 1;
* ``fit``: lambda = a + b sigma, by least squares of the relative errors, for a weight that is wrong by some
  factor costs about the same at any noise level. Neither a nor b is negative, so that lambda is positive for
  every scan.

What a rule is worth is told by scans that were not used: given ones, or each in turn left out of the fit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from reconlib.evaluation.best_weight import best_factor, search_factors
from reconlib.evaluation.study import Case
from reconlib.joint.prior_weight import SMALLEST_NOISE_VARIANCE
from reconlib.priors.card import PriorCard
from reconlib.reconstruction import ReconstructionSettings, zero_filled

Rule = Literal["noise", "fit"]
COIL_SMOOTHNESS_GRID = (0.1, 0.3, 1.0, 3.0)
SMALLEST_SPREAD = 1.05
"""Largest over smallest noise level; below it a line through them is a guess."""
FEWEST_FOR_A_LINE = 3
DIGITS = 4
"""Significant digits of what is written to a card."""


class FitError(Exception):
    """The rule cannot be fitted to these scans; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One reconstruction of a case: what it is worth, and the numbers that were used."""

    psnr: float
    """dB, after a scale fit."""
    weight: float
    """lambda"""
    noise_level: float
    """sigma after scaling, per real component."""


Run = Callable[[Case, PriorCard, ReconstructionSettings], Measured]
"""Reconstructs a case with the weight that card and settings give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCase:
    """A case, and which scan it is of: slices of one scan are left out together."""

    case: Case
    scan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BestWeight:
    """The weight at which a case is best."""

    name: str
    scan: str
    noise_level: float
    weight: float
    """lambda at the top of the parabola."""
    psnr: float
    """dB, there."""
    inside: bool
    """Whether smaller and larger weights were tried and are worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRule:
    """A rule and what it was fitted to."""

    rule: Rule
    coil_smoothness: float
    factor: float = 1.0
    intercept: float = 0.0
    slope: float | None = None
    spread: float
    """Typical factor between the best weights and the rule's: exp of the rms log ratio."""
    r_squared: float | None = None
    """Of the rule ``fit``: share of the variance of the best weights that the line explains."""

    def on(self, card: PriorCard, fitted_on: str) -> PriorCard:
        """Return the card with this rule; what it says for the other rule stays."""
        numbers = (
            {"factor": self.factor}
            if self.rule == "noise"
            else {"intercept": self.intercept, "slope": self.slope}
        )
        section = card.prior_weight.model_copy(
            update={
                "rule": self.rule,
                **numbers,
                "coil_smoothness": self.coil_smoothness,
                "fitted_on": fitted_on,
            }
        )
        return card.model_copy(update={"prior_weight": section})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A scan that the fit did not use: PSNR with the card as it was, and with the fitted one."""

    name: str
    noise_level: float
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFit:
    """What a fit gave."""

    rule: FittedRule
    best: Mapping[float, tuple[BestWeight, ...]]
    """By mu."""
    held_out: tuple[HeldOut, ...]
    left_out_in_turn: bool
    """The held-out scans are those of the fit, each left out of it in turn."""
    no_report: str = ""
    """Why there are no held-out scans."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the fit."""
        notes = []
        tried = sorted(self.best)
        if len(tried) > 1 and self.rule.coil_smoothness in (tried[0], tried[-1]):
            notes.append(
                f"the best mu, {self.rule.coil_smoothness:g}, is the last one of those tried; try others."
            )
        notes += [
            f"{one.name}: the best weight lies outside what was tried."
            for one in self.best[self.rule.coil_smoothness]
            if not one.inside
        ]
        if self.rule.rule == "fit" and (self.rule.slope == 0 or self.rule.intercept == 0):
            which = "slope" if self.rule.slope == 0 else "intercept"
            notes.append(f"the {which} of the line would have been negative, and is 0.")
        return tuple(notes)


def fit_weight(
    card: PriorCard,
    cases: Sequence[FitCase],
    run: Run,
    settings: ReconstructionSettings,
    *,
    rule: Rule,
    coil_smoothness: Sequence[float] = COIL_SMOOTHNESS_GRID,
    report_on: Sequence[FitCase] = (),
) -> WeightFit:
    """Search the best weights of the cases, fit the rule and mu, and see what they are worth.

    ``settings`` may not choose the weight: that is what is fitted. Without ``report_on`` each scan is left
    out of the fit in turn, mu included.

    Raises
    ------
    FitError
        There are too few scans for the rule, or their noise levels are equal.
    """
    if not cases or not coil_smoothness:
        raise FitError("There is nothing to fit to; give at least one scan and one mu.")
    if rule == "fit":
        _check_levels(np.array([noise_level(one.case) for one in cases]))  # before hours of work
    settings = replace(settings, prior_weight_rule=None, prior_weight=None, prior_weight_factor=1.0)
    best = {
        mu: tuple(search_weight(one, card, run, replace(settings, coil_smoothness=mu)) for one in cases)
        for mu in coil_smoothness
    }
    fitted = fit_rule(best, rule, card.temperature)
    held_out, no_report = list[HeldOut](), ""

    def hold_out(one: FitCase, by: FittedRule) -> None:
        new = by.on(card, "")
        before = run(one.case, card, _usable(card, settings))
        after = run(one.case, new, replace(settings, coil_smoothness=by.coil_smoothness))
        name = f"{one.case.scan.name}, {one.case.pattern}"
        held_out.append(
            HeldOut(name=name, noise_level=before.noise_level, before=before.psnr, after=after.psnr)
        )

    if report_on:
        for one in report_on:
            hold_out(one, fitted)
    else:
        try:
            rules = {
                scan: fit_rule(_without(best, scan), rule, card.temperature)
                for scan in dict.fromkeys(one.scan for one in cases)
            }
        except FitError as error:
            no_report = f"no scan can be left out of the fit: {error}"
        else:
            for one in cases:
                hold_out(one, rules[one.scan])
    return WeightFit(
        rule=fitted,
        best=best,
        held_out=tuple(held_out),
        left_out_in_turn=not report_on,
        no_report=no_report,
    )


def search_weight(one: FitCase, card: PriorCard, run: Run, settings: ReconstructionSettings) -> BestWeight:
    """Search the weight that is best for one case: a factor on that of the noise rule."""
    noise_rule = replace(settings, prior_weight_rule="noise")
    found: dict[float, Measured] = {}

    def quality(factor: float) -> float:
        found[factor] = run(one.case, card, replace(noise_rule, prior_weight_factor=factor))
        return found[factor].psnr

    tried = search_factors(quality)
    best = best_factor(tried)
    inside = min(tried) < best < max(tried)
    power, psnr = math.log2(best), tried[best]
    if inside:
        power, psnr = parabola_top(power, [tried[best * factor] for factor in (0.5, 1.0, 2.0)])
    return BestWeight(
        name=f"{one.case.scan.name}, {one.case.pattern}",
        scan=one.scan,
        noise_level=found[best].noise_level,
        weight=found[best].weight * 2.0**power / best,
        psnr=psnr,
        inside=inside,
    )


def parabola_top(x: float, values: Sequence[float]) -> tuple[float, float]:
    """Return place and height of the top of the parabola through the values at x - 1, x and x + 1.

    The middle value is the largest of the three. Where no parabola goes through them (infinities) it is
    the top.
    """
    left, middle, right = values
    curvature = left - 2 * middle + right
    if not math.isfinite(curvature) or not curvature < 0:
        return x, middle
    shift = (left - right) / (2 * curvature)
    return x + shift, middle - curvature * shift**2 / 2


def fit_rule(best: Mapping[float, Sequence[BestWeight]], rule: Rule, temperature: float) -> FittedRule:
    """Choose mu, and fit the rule to the best weights there."""
    if not all(best.values()):
        raise FitError("no scan is left to fit to; give more.")
    mu = max(best, key=lambda value: float(np.mean([one.psnr for one in best[value]])))
    levels = np.array([one.noise_level for one in best[mu]])
    weights = np.array([one.weight for one in best[mu]])
    if rule == "noise":
        plain = np.maximum(levels**2, SMALLEST_NOISE_VARIANCE) / temperature
        factor = _rounded(float(np.exp(np.log(weights / plain).mean())))
        return FittedRule(
            rule="noise", coil_smoothness=mu, factor=factor, spread=_spread(weights, factor * plain)
        )
    intercept, slope = fit_line(levels, weights)
    line = intercept + slope * levels
    variance = float(((weights - weights.mean()) ** 2).sum())
    return FittedRule(
        rule="fit",
        coil_smoothness=mu,
        intercept=intercept,
        slope=slope,
        spread=_spread(weights, line),
        r_squared=1 - float(((weights - line) ** 2).sum()) / variance if variance > 0 else None,
    )


def fit_line(levels: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Return intercept and slope, neither negative, with the least squares of relative errors."""
    _check_levels(levels)
    scale = levels.mean()  # so that both columns are of one size
    matrix = np.stack([1 / weights, levels / scale / weights], axis=1) * weights.mean()
    coefficients, _ = nnls(matrix, np.ones(len(levels)))
    intercept, slope = coefficients * weights.mean()
    return _rounded(float(intercept)), _rounded(float(slope / scale))


def noise_level(case: Case) -> float:
    """Return the noise level sigma that a reconstruction of the case works with, after its scaling."""
    kspace = case.kspace
    return kspace.noise_std / float(zero_filled(kspace).max())


def _check_levels(levels: NDArray[np.float64]) -> None:
    """Refuse noise levels that no line goes through."""
    if len(levels) < FEWEST_FOR_A_LINE:
        raise FitError(
            f"the rule 'fit' is a line through at least {FEWEST_FOR_A_LINE} scans, and these are "
            f"{len(levels)}; give more, or fit the rule 'noise'."
        )
    if not levels.max() > SMALLEST_SPREAD * levels.min():
        raise FitError(
            f"the noise levels lie between {levels.min():.4g} and {levels.max():.4g}, too close together for "
            "a line; give scans of different noise, or fit the rule 'noise'."
        )


def _without(best: Mapping[float, Sequence[BestWeight]], scan: str) -> dict[float, tuple[BestWeight, ...]]:
    return {mu: tuple(one for one in row if one.scan != scan) for mu, row in best.items()}


def _usable(card: PriorCard, settings: ReconstructionSettings) -> ReconstructionSettings:
    """Return settings with the card's rule, or the noise rule where the card has no fit yet."""
    weight = card.prior_weight
    if weight.rule == "fit" and weight.slope is None:
        return replace(settings, prior_weight_rule="noise")
    return settings


def _spread(weights: NDArray[np.float64], rule: NDArray[np.float64]) -> float:
    return float(np.exp(np.sqrt((np.log(weights / rule) ** 2).mean())))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
