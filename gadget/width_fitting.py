"""Fit the factor on a prior's posterior standard deviations to simulated scans, and write it to its card."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gadget.errors import SettingsError
from gadget.evaluation import NamedMethod, run_evaluation, stored_errors
from gadget.kept_rows import SAMPLING, identity_of, identity_of_code
from reconlib.evaluation.coverage import LEVELS, PixelErrors, factor_for_coverage, pooled
from reconlib.evaluation.posterior_mean import posterior_mean
from reconlib.evaluation.study import Case
from reconlib.evaluation.summary import Row
from reconlib.evaluation.tables import ResultTable
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.card import PosteriorCard, PriorCard
from reconlib.priors.library import Prior
from reconlib.reconstruction import ReconstructionSettings

DIGITS = {f"{when} {100 * level:.0f} %": 1 for when in ("before", "after") for level in LEVELS}
METHOD = "posterior mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthFit:
    """A factor, and how often intervals hold the truth without and with it."""

    factor: float
    fitted: tuple[PixelErrors, ...]
    """Of the scans that the factor was fitted on, without a factor."""
    held_out: tuple[tuple[str, PixelErrors], ...]
    """The others, by name, without a factor."""
    notes: tuple[str, ...] = ()
    """Samplings that did not end as they should."""

    def mean_coverage(self, level: float, factor: float) -> float:
        """Mean over the scans that were not fitted on."""
        return float(np.mean([errors.coverage(level, factor) for _, errors in self.held_out]))


def fit_width(
    prior: Prior,
    fit_on: Sequence[Case],
    report_on: Sequence[Case],
    settings: ReconstructionSettings,
    sampling: PosteriorSettings,
    *,
    seed: int,
    device: torch.device,
    keep: Path | None,
    on_case: Callable[[], None],
) -> WidthFit:
    """Sample the posterior of every case, without a factor, and fit one to the pixels of ``fit_on``.

    ``keep`` is a folder for what is finished, so that the same fit goes on where it was stopped.

    Raises
    ------
    SettingsError
        The sampling of a case ended without an image, or no factor makes the coverage right.
    """
    bare = replace(prior, card=prior.card.model_copy(update={"posterior": None}))
    identity = identity_of(bare.card, settings, sampling, seed, str(device), identity_of_code(SAMPLING))
    method = NamedMethod(posterior_mean(bare, settings, sampling, seed=seed, device=device), identity)

    notes = []

    def on_row(row: Row) -> None:
        case = f"{row['scan']}, {row['pattern']}"
        if "failed" in row:
            raise SettingsError(f"fit-width: {case}: {row['failed']}; change the settings posterior.*.")
        if row["outcome"] != PosteriorOutcome.DONE.value:
            notes.append(f"{case}: {row['outcome']}")
        on_case()

    with tempfile.TemporaryDirectory(prefix="fit-width-") as temporary:
        folder = Path(temporary) if keep is None else keep
        run_evaluation(folder, [*fit_on, *report_on], {METHOD: method}, on_row=on_row, pictures=False)

        def errors_of(case: Case) -> PixelErrors:
            errors = stored_errors(folder, case, METHOD, method)
            if errors is None:
                raise SettingsError(f"fit-width: {folder} has lost the images of {case.scan.name}; empty it.")
            return errors

        fitted = tuple(errors_of(case) for case in fit_on)
        held_out = tuple((f"{case.scan.name}, {case.pattern}", errors_of(case)) for case in report_on)
    try:
        factor = factor_for_coverage(pooled(fitted))
    except ValueError as error:
        raise SettingsError(f"fit-width: {error}") from error
    return WidthFit(factor=factor, fitted=fitted, held_out=held_out, notes=tuple(notes))


def coverage_table(fit: WidthFit) -> ResultTable:
    """Coverage in percent of scans that the fit did not use, before and after."""
    factors = {"before": 1.0, "after": fit.factor}
    rows = {
        name: {
            f"{when} {100 * level:.0f} %": 100 * errors.coverage(level, factor)
            for when, factor in factors.items()
            for level in LEVELS
        }
        for name, errors in fit.held_out
    }
    rows[f"mean of {len(rows)}"] = {
        f"{when} {100 * level:.0f} %": 100 * fit.mean_coverage(level, factor)
        for when, factor in factors.items()
        for level in LEVELS
    }
    return ResultTable.from_rows("not used in the fit", rows)


def with_factor(card: PriorCard, fit: WidthFit, fitted_on: str) -> PriorCard:
    """Return the card with the factor, the scans of the fit in words, and the coverages of the others."""
    coverage: dict[str, object] = {
        "scans_not_used_in_the_fit": len(fit.held_out),
        **{
            when: {f"{100 * level:.0f}": round(fit.mean_coverage(level, factor), 3) for level in LEVELS}
            for when, factor in (("before", 1.0), ("after", round(fit.factor, 3)))
        },
    }
    section = PosteriorCard(std_factor=round(fit.factor, 3), fitted_on=fitted_on, coverage=coverage)
    return card.model_copy(update={"posterior": section})


def in_words(
    cases: Sequence[Case], patterns: Sequence[str], n_coils: int, sampling: PosteriorSettings
) -> str:
    """Return what the card says about the scans of the fit: no path, no name."""
    shares = [case.scan.noise_std / float(case.reference.max()) for case in cases]
    n_scans = len({case.scan.name for case in cases})
    return (
        f"{n_scans} scan{'s' * (n_scans > 1)} of {n_coils} coils, simulated from magnitude images, noise "
        f"{min(shares):.4f} to {max(shares):.4f} of the maximum, {', '.join(patterns)}; 90 % interval inside "
        f"the head; {sampling.sampler}, {sampling.chains} chains, {sampling.warmup} + "
        f"{sampling.draws} x {sampling.thin} steps"
    )
