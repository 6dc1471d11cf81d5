"""Fit the weight of a prior on files, and write it to the prior's card."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from gadget.configs import config_folder
from gadget.errors import FileError, SettingsError
from gadget.evaluation_inputs import read_full_scans, with_coil_of_one, with_names_of_their_own
from gadget.kept_rows import KeptRows, identity_of, identity_of_case, identity_of_code
from gadget.prior_faults import prior_faults_as_settings_faults
from gadget.settings import Settings
from reconlib.evaluation.grid_patterns import PATTERNS
from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.evaluation.study import Case, joint
from reconlib.evaluation.summary import Row
from reconlib.evaluation.tables import ResultTable
from reconlib.evaluation.weight_fit import FitCase, Measured, Run, WeightFit
from reconlib.priors.card import PriorCard
from reconlib.priors.card_file import card_text, rewrite_card
from reconlib.priors.library import WEIGHTS_FILE, Prior, write_package
from reconlib.priors.weights_file import read_weights_blob
from reconlib.reconstruction import ReconstructionSettings

DIGITS = {"noise level": 5, "lambda": 7, "PSNR": 2, "before": 2, "after": 2, "gain": 2}


def read_fit_cases(
    paths: Sequence[Path],
    patterns: Sequence[str],
    settings: Settings,
    *,
    n_slices: int | None,
    use_truth: bool,
) -> list[FitCase]:
    """Read fully sampled scans, and leave samples out by every pattern; slices of a file are one scan."""
    scans = [
        (str(number), scan)
        for number, path in enumerate(paths)
        for scan in read_full_scans(path, settings, n_slices=n_slices, use_truth=use_truth)
    ]
    named = with_names_of_their_own([scan for _, scan in scans])
    if settings.coils == "fixed":
        named = [with_coil_of_one(scan) for scan in named]
    return [
        FitCase(case=Case(scan=scan, pattern=name, mask=PATTERNS[name](scan.matrix)), scan=file)
        for (file, _), scan in zip(scans, named, strict=True)
        for name in patterns
    ]


def kept_runs(
    prior: Prior, device: torch.device, seed: int, keep: Path | None, on_run: Callable[[], None]
) -> Run:
    """Return the reconstruction with a prior, which keeps its numbers in the folder ``keep``, if given."""
    rows = KeptRows(keep)

    def run(case: Case, card: PriorCard, settings: ReconstructionSettings) -> Measured:
        def make() -> Row:
            result = joint(replace(prior, card=card), settings, seed=seed, device=device)(case)
            return {
                "PSNR": float(psnr_after_scale_fit(result.image, case.reference)),
                "weight": result.facts["weight"],
                "noise level": result.facts["noise level"],
            }

        key = identity_of(identity_of_case(case), card, settings, seed, str(device), identity_of_code())
        row = rows.get(key, make)
        on_run()
        return Measured(
            psnr=float(row["PSNR"]), weight=float(row["weight"]), noise_level=float(row["noise level"])
        )

    return run


def in_words(
    fit: WeightFit, cases: Sequence[FitCase], patterns: Sequence[str], chosen: tuple[str, int], reference: str
) -> str:
    """Return what the card says about the scans of the fit: no path, no name.

    ``chosen`` are solver and iterations.
    """
    solver, iterations = chosen
    levels = [one.noise_level for one in fit.best[fit.rule.coil_smoothness]]
    n_scans, n_slices = len({one.scan for one in cases}), len({one.case.scan.name for one in cases})
    scans = f"{n_scans} scan{'s' * (n_scans > 1)} ({n_slices} slice{'s' * (n_slices > 1)})"
    fits = f"the best weights lie within a factor of about {fit.rule.spread:.2f}"
    if fit.rule.r_squared is not None:
        fits += f", R^2 {fit.rule.r_squared:.3f}"
    return (
        f"{scans}, noise level {min(levels):.4g} to {max(levels):.4g}, {', '.join(patterns)}, "
        f"{iterations} iterations of the solver {solver} per slice, reference {reference}; {fits}"
    )


def rule_in_words(fit: WeightFit) -> str:
    """Return the fitted rule as a line."""
    rule = fit.rule
    if rule.rule == "noise":
        formula = f"lambda = {rule.factor:g} max(sigma^2, 1e-5) / T"
    else:
        formula = f"lambda = {rule.intercept:g} + {rule.slope:g} sigma"
    explained = "" if rule.r_squared is None else f", R^2 {rule.r_squared:.3f}"
    return (
        f"rule {rule.rule}: {formula}, mu = {rule.coil_smoothness:g} "
        f"(best weights within a factor of about {rule.spread:.2f}{explained})"
    )


def best_table(fit: WeightFit) -> ResultTable:
    """Best weight and PSNR of every case, at the chosen mu."""
    rows = {
        one.name: {"noise level": one.noise_level, "lambda": one.weight, "PSNR": one.psnr}
        for one in fit.best[fit.rule.coil_smoothness]
    }
    return ResultTable.from_rows(f"best weight, mu = {fit.rule.coil_smoothness:g}", rows)


def mu_table(fit: WeightFit) -> ResultTable:
    """Mean PSNR at the best weights, for every mu."""
    rows = {
        f"{mu:g}": {"PSNR": sum(one.psnr for one in best) / len(best)}
        for mu, best in sorted(fit.best.items())
    }
    return ResultTable.from_rows("mu", rows)


def held_out_table(fit: WeightFit) -> ResultTable:
    """PSNR of scans that the fit did not use."""
    title = "left out of the fit in turn" if fit.left_out_in_turn else "not used in the fit"
    rows = {
        one.name: {"before": one.before, "after": one.after, "gain": one.after - one.before}
        for one in fit.held_out
    }
    n = len(fit.held_out)
    before, after = (
        sum(values) / n for values in zip(*((o.before, o.after) for o in fit.held_out), strict=True)
    )
    rows["mean"] = {"before": before, "after": after, "gain": after - before}
    return ResultTable.from_rows(title, rows)


def write_fitted(folder: Path, card: PriorCard, out: Path | None) -> Path:
    """Write the card into the package, or into a copy of it; return where it is."""
    with prior_faults_as_settings_faults():
        if out is None:
            rewrite_card(folder, card)
            return folder
        weights = read_weights_blob(folder) if (folder / WEIGHTS_FILE).exists() else None
        try:
            write_package(out, card_text(card).encode("utf-8"), weights)
        except OSError as error:
            raise FileError(f"Cannot write {out}: {error}.") from error
    return out


def is_fixed(folder: Path) -> bool:
    """Whether the card is not ours to change: a shipped one, or one in a folder without write permission."""
    return folder.resolve().is_relative_to(config_folder().resolve()) or not os.access(folder, os.W_OK)


def refuse_same(fit_on: Sequence[Path], report_on: Sequence[Path]) -> None:
    """Raise where a scan is to be reported on that the fit uses."""
    used = {path.resolve() for path in fit_on}
    for path in report_on:
        if path.resolve() in used:
            raise SettingsError(
                f"{path} is used for the fit, so it cannot show what the fit is worth; report on other scans."
            )
