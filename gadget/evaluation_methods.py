"""The methods that an evaluation knows by name, made for settings and priors."""

import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gadget.evaluation import NamedMethod
from gadget.kept_rows import SAMPLING, identity_of, identity_of_case, identity_of_code
from gadget.reconstructor import Reconstructor, reconstruction_settings, sampling_settings
from gadget.settings import Settings, with_overrides
from reconlib.evaluation.bart import Bart
from reconlib.evaluation.best_weight import at_best_weight, bart_methods
from reconlib.evaluation.cg_sense import best_of_cg_sense
from reconlib.evaluation.intensity_calibration import calibrated
from reconlib.evaluation.posterior_mean import posterior_mean
from reconlib.evaluation.study import Case, Method, MethodImage, joint, zero_filling
from reconlib.reconstruction import Progress

ALL_METHODS = ("zero-filled", "cg-sense", "tv", "tv-best", "map", "map-best", "posterior", "bart")
CALIBRATED = ", calibrated"


def named_methods(
    chosen: Sequence[str],
    priors: Sequence[str],
    settings: Settings,
    *,
    bart: Bart | None,
    on_iteration: Callable[[Progress], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> dict[str, NamedMethod]:
    """Return the methods under the names that they have in tables, in the order that was asked for.

    ``priors`` are those of ``map``, ``map-best`` and ``posterior``. The image phase is the same for all: that
    of the settings, and where they leave it to the prior, that of the first one. Sampling has a time limit
    only where the settings were made with one. Without BART its methods are missing.
    """
    reconstructor = Reconstructor(settings.device)
    clock = _Clock(chosen_time_limit(settings))
    if settings.image_phase == "prior":
        first = reconstructor.load(with_overrides(settings, [("prior", priors[0])]))
        settings = with_overrides(settings, [("image_phase", first.card.image_phase)])
    methods: dict[str, NamedMethod] = {}

    def add(name: str, prior: str, *, best: bool) -> None:
        own = with_overrides(settings, [("prior", prior)])
        loaded, solver = reconstructor.load(own), reconstruction_settings(own)

        def at_factor(factor: float) -> Method:
            scaled = replace(solver, prior_weight_factor=factor * solver.prior_weight_factor)
            return joint(
                loaded,
                scaled,
                seed=settings.seed,
                device=reconstructor.device,
                on_iteration=on_iteration,
            )

        methods[_free(name, methods)] = NamedMethod(
            at_best_weight(at_factor) if best else at_factor(1.0),
            identity_of(
                best, solver, loaded.card, settings.seed, str(reconstructor.device), identity_of_code()
            ),
        )

    def add_posterior(prior: str) -> None:
        own = with_overrides(settings, [("prior", prior)])
        loaded, solver, sampling = (
            reconstructor.load(own),
            reconstruction_settings(own),
            sampling_settings(own),
        )
        name = _free(f"posterior mean {Path(prior).name}", methods)
        method = posterior_mean(
            loaded,
            solver,
            sampling,
            seed=settings.seed,
            device=reconstructor.device,
            start_clock=clock,
            on_iteration=on_iteration,
            on_step=on_step,
        )
        device, code = str(reconstructor.device), identity_of_code(SAMPLING)
        methods[name] = NamedMethod(
            method, identity_of(solver, sampling, clock, loaded.card, settings.seed, device, code)
        )

    for method in chosen:
        if method == "zero-filled":
            methods["zero-filled"] = NamedMethod(zero_filling, identity_of(identity_of_code()))
        elif method == "cg-sense":
            methods["CG-SENSE (oracle)"] = NamedMethod(best_of_cg_sense, identity_of(identity_of_code()))
        elif method in ("tv", "tv-best"):
            best = method == "tv-best"
            add("total variation" + (" (oracle)" if best else ""), "tv", best=best)
        elif method in ("map", "map-best"):
            best = method == "map-best"
            for prior in priors:
                add(f"MAP {Path(prior).name}" + (" (oracle)" if best else ""), prior, best=best)
        elif method == "posterior":
            for prior in priors:
                add_posterior(prior)
        elif bart is not None:
            identity = identity_of(bart.version(), identity_of_code())
            methods |= {name: NamedMethod(one, identity) for name, one in bart_methods(bart).items()}
    return methods


@dataclass(frozen=True, slots=True)
class _Clock:
    """Starts a time limit; its ``repr`` says how long."""

    limit_s: float | None

    def __call__(self) -> Callable[[], bool]:
        if self.limit_s is None:
            return lambda: False
        end = time.monotonic() + self.limit_s
        return lambda: time.monotonic() >= end


def chosen_time_limit(settings: Settings) -> float | None:
    """Return the seconds of sampling per slice where settings were made with that key; else none."""
    chosen = "time_limit_s" in settings.posterior.model_fields_set
    return settings.posterior.time_limit_s if chosen else None


def _free(name: str, methods: Container[str]) -> str:
    """Return a name that is not taken: two folders may have the same."""
    while name in methods:
        name += "'"
    return name


def with_calibrated(methods: dict[str, NamedMethod], calibration: Sequence[Case]) -> dict[str, NamedMethod]:
    """Return the methods and, after each, the same with intensities calibrated on other cases.

    Of ``calibration`` the cases with the pattern at hand are used.
    """
    identity = identity_of([identity_of_case(case) for case in calibration])

    def others(case: Case) -> list[Case]:
        return [other for other in calibration if other.pattern == case.pattern]

    both: dict[str, NamedMethod] = {}
    for name, one in methods.items():
        once = _remembers_last(one.method)
        both[name] = NamedMethod(once, one.identity)
        both[name + CALIBRATED] = NamedMethod(calibrated(once, others), identity_of(one.identity, identity))
    return both


def _remembers_last(method: Method) -> Method:
    """Return the method, which does not compute the same case twice in a row."""
    last: list[tuple[Case, MethodImage]] = []

    def once(case: Case) -> MethodImage:
        if not last or last[0][0] is not case:
            last[:] = [(case, method(case))]
        return last[0][1]

    return once
