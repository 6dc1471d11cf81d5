"""Methods at their best weight: the weight is chosen with the reference in hand ("oracle").

What they reach is an upper bound for what a user of the method gets, and is called so in tables.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from reconlib.evaluation.bart import Bart, BartError
from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.evaluation.study import Case, Method, MethodImage

FACTORS = tuple(2.0**power for power in range(-3, 4))
"""Multiples of a weight that are tried: seven, a factor 2 apart."""
MOST_EXTENSIONS = 6
"""Further factors that are tried while the best one is the last on its side."""


def search_factors(quality: Callable[[float], float]) -> dict[float, float]:
    """Return the quality by factor: of seven factors, and of further ones until the best lies inside.

    At most ``MOST_EXTENSIONS`` are added, for a quality may grow for ever. NaN counts as the worst.
    """
    tried: dict[float, float] = {}

    def attempt(factor: float) -> None:
        value = quality(factor)
        tried[factor] = -math.inf if math.isnan(value) else value

    for factor in FACTORS:
        attempt(factor)
    for _ in range(MOST_EXTENSIONS):
        best = best_factor(tried)
        if best == min(tried):
            attempt(best / 2)
        elif best == max(tried):
            attempt(best * 2)
        else:
            break
    return dict(sorted(tried.items()))


def best_factor(tried: dict[float, float]) -> float:
    """Return the factor with the highest quality."""
    return max(tried, key=lambda factor: tried[factor])


def at_best_weight(method_with: Callable[[float], Method]) -> Method:
    """Return the method at the factor on its weight that is best against the reference (oracle).

    ``method_with`` makes the method for a factor.
    """

    def method(case: Case) -> MethodImage:
        reference, results = case.reference, dict[float, MethodImage]()

        def quality(factor: float) -> float:
            results[factor] = method_with(factor)(case)
            return float(psnr_after_scale_fit(results[factor].image, reference))

        tried = search_factors(quality)
        best = best_factor(tried)
        inside = "yes" if min(tried) < best < max(tried) else "no"
        result = results[best]
        return replace(result, facts={**result.facts, "factor": best, "inside grid": inside})

    return method


def best_of_newton_steps(bart: Bart, fewest: int = 5, most: int = 14) -> Method:
    """NLINV at the number of Newton steps that is best against the reference (oracle).

    The number of steps is what NLINV is regularised by; quality is taken to have one maximum, so the search
    ends when it falls.
    """

    def method(case: Case) -> MethodImage:
        if case.scan.coils is not None:
            raise BartError("NLINV estimates the coil maps, and those of this scan are given.")
        reference = case.reference
        tried: dict[int, tuple[float, MethodImage]] = {}
        for steps in range(fewest, most + 1):
            found = bart.nlinv(case.on_grid.samples, steps)
            quality = float(psnr_after_scale_fit(found.image, reference))
            falls = bool(tried) and quality < tried[steps - 1][0]
            tried[steps] = (
                quality,
                MethodImage(image=found.image, coils=found.coils, facts={"Newton steps": float(steps)}),
            )
            if falls:
                break
        best = max(tried, key=lambda steps: tried[steps][0])
        result = tried[best][1]
        inside = "yes" if fewest < best < most else "no"
        return replace(result, facts={**result.facts, "inside grid": inside})

    return method


def espirit_with(bart: Bart, regulariser: str) -> Method:
    """ESPIRiT maps or given ones, then ``pics``; ``regulariser`` leaves the weight open: ``W:3:0:{}``."""

    def method_with(maps: Tensor) -> Callable[[float], Method]:
        def with_factor(factor: float) -> Method:
            def method(case: Case) -> MethodImage:
                weight = 0.01 * factor
                result = bart.pics(case.on_grid.samples, maps, regulariser.format(f"{weight:g}"))
                return MethodImage(image=result.image, coils=result.coils, facts={"weight": weight})

            return method

        return with_factor

    def method(case: Case) -> MethodImage:
        given = case.scan.coils
        maps = bart.espirit_maps(case.on_grid.samples) if given is None else given
        return at_best_weight(method_with(maps))(case)

    return method


BART_NAMES = ("BART ESPIRiT + l1-wavelet (oracle)", "BART ESPIRiT + TV (oracle)", "BART NLINV (oracle)")


def bart_methods(bart: Bart) -> dict[str, Method]:
    """BART's methods, each at its best weight (oracle)."""
    methods = (espirit_with(bart, "W:3:0:{}"), espirit_with(bart, "T:3:0:{}"), best_of_newton_steps(bart))
    return dict(zip(BART_NAMES, methods, strict=True))
