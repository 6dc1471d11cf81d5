"""The search for the best weight, with qualities that are written down."""

import itertools
import math

import pytest
import torch

from reconlib.evaluation.bart import Bart, BartError, BartImage
from reconlib.evaluation.best_weight import (
    FACTORS,
    MOST_EXTENSIONS,
    at_best_weight,
    best_factor,
    best_of_newton_steps,
    espirit_with,
    search_factors,
)
from reconlib.evaluation.study import Case, FullScan, MethodImage


def test_seven_factors_two_apart_are_tried():
    assert len(FACTORS) == 7
    assert all(b / a == 2 for a, b in itertools.pairwise(FACTORS))
    assert list(search_factors(lambda factor: -abs(math.log2(factor)))) == list(FACTORS)


@pytest.mark.parametrize("best", [-6, -4, -3, 0, 3, 4, 6])
def test_the_grid_grows_until_the_best_lies_inside(best):
    tried = search_factors(lambda factor: -((math.log2(factor) - best) ** 2))
    assert best_factor(tried) == 2.0**best
    assert min(tried) < 2.0**best < max(tried)
    assert list(tried) == sorted(tried)


def test_a_quality_that_grows_for_ever_ends_the_search():
    tried = search_factors(lambda factor: factor)
    assert len(tried) == len(FACTORS) + MOST_EXTENSIONS


def test_a_quality_that_is_no_number_is_the_worst():
    assert best_factor(search_factors(lambda factor: math.nan if factor >= 1 else factor)) == 0.5
    assert best_factor(search_factors(lambda factor: math.nan if factor <= 1 else -factor)) == 2.0


@pytest.fixture
def case(generator):
    samples = torch.randn(1, 2, 9, 8, dtype=torch.complex64, generator=generator)
    scan = FullScan(name="scan", samples=samples, noise_std=0.1, noise_source="made up")
    return Case(scan=scan, pattern="full", mask=torch.ones(1, 1, 9, 8, dtype=torch.bool))


def wrong_by(case, size):
    """The reference with an error of that size that no scale takes away."""
    checkers = torch.ones(1, 1, 9, 8)
    checkers[..., ::2] = -1
    return case.reference + size * checkers


def test_a_method_is_taken_at_its_best_factor(case):
    def with_factor(factor):
        return lambda one: MethodImage(
            image=wrong_by(one, abs(math.log2(factor) - 1)), facts={"weight": 10 * factor}
        )

    facts = at_best_weight(with_factor)(case).facts
    assert facts == {"weight": 20.0, "factor": 2.0, "inside grid": "yes"}


class Recorded(Bart):
    """BART whose images are known."""

    def nlinv(self, samples, newton_steps):
        return BartImage(image=wrong_by(self_case[0], abs(newton_steps - 9) / 10), coils=samples)

    def espirit_maps(self, samples):  # noqa: ARG002 - the signature is BART's
        raise BartError("not asked for maps")

    def pics(self, samples, maps, regulariser, iterations=100):  # noqa: ARG002 - the signature is BART's
        weight = float(regulariser.rpartition(":")[2])
        return BartImage(image=wrong_by(self_case[0], abs(math.log2(weight / 0.04))), coils=maps)


self_case = []


@pytest.fixture
def bart(case, tmp_path):
    self_case[:] = [case]
    return Recorded(tmp_path / "bart")


def test_nlinv_is_taken_at_its_best_number_of_steps(bart, case):
    facts = best_of_newton_steps(bart)(case).facts
    assert facts == {"Newton steps": 9.0, "inside grid": "yes"}


def test_a_best_number_of_steps_at_the_end_is_said_to_be_at_the_end(bart, case):
    facts = best_of_newton_steps(bart, fewest=5, most=8)(case).facts
    assert facts == {"Newton steps": 8.0, "inside grid": "no"}


def test_given_maps_take_the_place_of_espirits_and_nlinv_has_none(bart, case):
    maps = torch.ones_like(case.scan.samples)
    scan = FullScan(name="scan", samples=case.scan.samples, noise_std=0.1, noise_source="made up", coils=maps)
    given = Case(scan=scan, pattern="full", mask=case.mask)
    result = espirit_with(bart, "T:3:0:{}")(given)
    assert result.coils is maps
    assert result.facts == {"weight": 0.04, "factor": 4.0, "inside grid": "yes"}
    with pytest.raises(BartError, match="NLINV estimates the coil maps"):
        best_of_newton_steps(bart)(given)
    with pytest.raises(BartError, match="not asked for maps"):
        espirit_with(bart, "T:3:0:{}")(case)
