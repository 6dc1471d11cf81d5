"""The rules for the weight of the prior."""

import pytest

from reconlib.joint.prior_weight import prior_weight
from reconlib.priors.card import PriorCard


def card(**weight: object) -> PriorCard:
    return PriorCard.model_validate(
        {
            "name": "some-prior",
            "version": "1.0",
            "description": "for tests",
            "architecture": {"kind": "total-variation", "epsilon": 0.001},
            "temperature": 0.5,
            "prior_weight": {"rule": "noise", **weight},
            "anatomy": "any",
            "licence": "MIT",
        }
    )


@pytest.mark.parametrize(
    ("noise_level", "expected"),
    [(0.02, 3 * 0.0004 / 0.5), (0.001, 3 * 1e-5 / 0.5), (0.01, 3 * 1e-4 / 0.5)],
    ids=["noisy", "below the floor", "in between"],
)
def test_the_noise_rule_is_variance_over_temperature_with_a_floor(noise_level, expected):
    found = prior_weight(card(factor=3.0), noise_level, rule=None, value=None, factor=1.0)
    assert found == (pytest.approx(expected, rel=1e-12), "noise")


def test_the_fit_rule_is_a_line():
    fitted = card(rule="fit", intercept=0.01, slope=2.0)
    assert prior_weight(fitted, 0.05, rule=None, value=None, factor=1.0) == (pytest.approx(0.11), "fit")


def test_the_fixed_rule_takes_the_users_number():
    assert prior_weight(card(), 0.05, rule="fixed", value=0.3, factor=1.0) == (0.3, "fixed")


@pytest.mark.parametrize("rule", ["noise", "fit", "fixed"])
def test_the_factor_multiplies_every_rule(rule):
    fitted = card(slope=2.0)
    once, _ = prior_weight(fitted, 0.05, rule=rule, value=0.3, factor=1.0)
    twice, _ = prior_weight(fitted, 0.05, rule=rule, value=0.3, factor=2.0)
    assert twice == pytest.approx(2 * once)


def test_the_users_rule_beats_the_cards():
    assert prior_weight(card(slope=2.0), 0.05, rule="fit", value=None, factor=1.0)[1] == "fit"


@pytest.mark.parametrize("value", [None, 0.0, -1.0, float("nan")])
def test_the_fixed_rule_needs_a_positive_number(value):
    with pytest.raises(ValueError, match="'fixed' needs a positive value"):
        prior_weight(card(), 0.05, rule="fixed", value=value, factor=1.0)


def test_a_card_without_a_fit_says_so():
    with pytest.raises(ValueError, match="'some-prior' has no fit"):
        prior_weight(card(), 0.05, rule="fit", value=None, factor=1.0)


def test_a_fit_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match=r"weight is -0\.05 at noise level 0\.05"):
        prior_weight(card(rule="fit", slope=-1.0), 0.05, rule=None, value=None, factor=1.0)
