"""What ``evaluate`` is run on: scans by study, and the patterns that leave samples out of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from gadget.evaluation_images import Part
    from gadget.settings import Settings
    from reconlib.evaluation.study import Case, FullScan

Study = Literal["parallel-imaging", "single-coil", "simulated"]
Reference = Literal["rss", "corrected", "truth"]
NOISE_FACTOR = 2.0
N_IMAGES = 10
N_COILS = 8
NOISE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOptions:
    """What the command line says about scans and patterns; None: not said."""

    study: Study
    settings: "Settings"
    patterns: str | None = None
    slices: int | None = None
    part: "Part" = "all"
    reference: Reference = "rss"
    coil_maps: Path | None = None
    coils: int | None = None
    add_noise: float | None = None
    noise_factor: float = NOISE_FACTOR

    def __post_init__(self) -> None:
        """Refuse options of other studies."""
        images = self.study != "parallel-imaging"
        wrong = {
            "--reference": images and self.reference != "rss",
            "--coil-maps": images and self.coil_maps is not None,
            "--part": not images and self.part != "all",
            "--coils": self.study != "simulated" and self.coils is not None,
            "--add-noise": self.study == "single-coil" and self.add_noise is not None,
        }
        named = [option for option, given in wrong.items() if given]
        if named:
            does = "does" if len(named) == 1 else "do"
            raise typer.BadParameter(f"{', '.join(named)} {does} not go with --study {self.study}.")

    def pattern_names(self) -> list[str]:
        """Return the patterns by name, sets of them resolved; none where none are named."""
        from gadget.evaluation_shots import kept_of
        from reconlib.evaluation.grid_patterns import PARALLEL_IMAGING, PATTERNS, SINGLE_COIL
        from reconlib.evaluation.off_grid import OFF_GRID

        if self.patterns is None:
            return []
        sets = {"parallel": PARALLEL_IMAGING, "single-coil": SINGLE_COIL, "off-grid": tuple(OFF_GRID)}
        names = list(
            dict.fromkeys(name for part in parts_of(self.patterns) for name in sets.get(part, (part,)))
        )
        for name in names:
            if name not in PATTERNS and name not in OFF_GRID and kept_of(name) is None:
                known = ", ".join([*PATTERNS, *OFF_GRID, *sets])
                raise typer.BadParameter(f"there is no pattern {name!r}; choose from {known}, every-K.")
        if not names:
            raise typer.BadParameter("no pattern is named.")
        return names

    def cases_of(self, paths: Sequence[Path]) -> "list[Case]":
        """Read the scans, say their noise level on stderr, and leave samples out by every pattern."""
        from gadget.evaluation_inputs import with_names_of_their_own

        found = [pair for path in paths for pair in self._read(path)]
        named = with_names_of_their_own([scan for scan, _ in found])
        return [
            replace(case, scan=scan) for scan, (_, cases) in zip(named, found, strict=True) for case in cases
        ]

    def _read(self, path: Path) -> "list[tuple[FullScan, list[Case]]]":
        """Read a file's scans, each with its cases."""
        from gadget.evaluation_assembly import is_non_cartesian
        from gadget.evaluation_shots import DEFAULT_PATTERNS

        names = self.pattern_names()
        if self.study == "parallel-imaging" and is_non_cartesian(path):
            return self._thinned(path, names or DEFAULT_PATTERNS)
        found = []
        for scan in self._scans_of(path):
            _say_noise(scan)
            found.append((scan, self._cases(scan, names or self._default_patterns())))
        return found

    def _thinned(self, path: Path, names: Sequence[str]) -> "list[tuple[FullScan, list[Case]]]":
        """Read a non-Cartesian scan, and leave readouts out."""
        from gadget.evaluation_shots import kept_of, read_shot_cases

        wrong = {
            "--coil-maps": self.coil_maps is not None,
            "--add-noise": self.add_noise is not None,
            "--reference corrected": self.reference == "corrected",
        }
        for option in (option for option, given in wrong.items() if given):
            raise typer.BadParameter(f"{option} does not go with {path}, which is not Cartesian.")
        for name in names:
            if kept_of(name) is None:
                raise typer.BadParameter(
                    f"{path} is not Cartesian, and the pattern {name} is for Cartesian scans; choose "
                    "every-K, such as every-3."
                )
        found = read_shot_cases(
            path, self.settings, names, n_slices=self.slices, use_truth=self.reference == "truth"
        )
        for scan, _ in found:
            _say_noise(scan)
        return found

    def _default_patterns(self) -> Sequence[str]:
        from reconlib.evaluation.grid_patterns import PARALLEL_IMAGING, SINGLE_COIL

        return {
            "parallel-imaging": PARALLEL_IMAGING,
            "single-coil": SINGLE_COIL,
            "simulated": ("cartesian-4",),
        }[self.study]

    def _cases(self, scan: "FullScan", names: Sequence[str]) -> "list[Case]":
        """Leave samples out of a Cartesian scan, on the grid and off it."""
        from reconlib.evaluation.grid_patterns import PATTERNS
        from reconlib.evaluation.off_grid import OFF_GRID, off_grid_cases
        from reconlib.evaluation.study import Case

        off_grid = off_grid_cases(scan, [name for name in names if name in OFF_GRID])
        cases = {case.pattern: case for case in off_grid}
        for name in names:
            if name in PATTERNS:
                try:
                    mask = PATTERNS[name](scan.matrix)
                except ValueError as error:
                    raise typer.BadParameter(f"{scan.name}, pattern {name}: {error}") from error
                cases[name] = Case(scan=scan, pattern=name, mask=mask)
            elif name not in cases:
                raise typer.BadParameter(
                    f"{scan.name} is Cartesian, and the pattern {name} is for radial and spiral scans."
                )
        return [cases[name] for name in names]

    def _scans_of(self, path: Path) -> "list[FullScan]":
        from gadget import evaluation_images as images
        from gadget import evaluation_inputs as inputs

        n_images = self.slices or N_IMAGES
        if self.study == "single-coil":
            return images.read_single_coil_scans(
                path, n_images=n_images, noise_factor=self.noise_factor, part=self.part
            )
        if self.study == "simulated":
            return images.read_multi_coil_scans(
                path,
                n_images=n_images,
                n_coils=self.coils or N_COILS,
                noise=NOISE if self.add_noise is None else self.add_noise,
                noise_factor=self.noise_factor,
                part=self.part,
            )
        use_truth = self.reference == "truth"
        scans = inputs.read_full_scans(path, self.settings, n_slices=self.slices, use_truth=use_truth)
        if self.reference == "corrected":
            scans = [inputs.with_corrected_reference(scan) for scan in scans]
        if self.add_noise is not None:
            scans = [inputs.with_added_noise(scan, self.add_noise) for scan in scans]
        if self.coil_maps is not None:
            return [inputs.with_coil_maps(scan, self.coil_maps) for scan in scans]
        return [inputs.with_coil_of_one(scan) for scan in scans] if self.settings.coils == "fixed" else scans


def _say_noise(scan: "FullScan") -> None:
    typer.echo(f"{scan.name}: noise level {scan.noise_std:.4g}, {scan.noise_source}", err=True)
    if scan.caution:
        typer.echo(f"{scan.name}: WARNING: {scan.caution}.", err=True)


def refuse_common(cases: "list[Case]", calibration: "list[Case]") -> None:
    """Refuse to calibrate on what is evaluated."""
    import torch

    for case in cases:
        for other in calibration:
            mine, its = case.scan.samples, other.scan.samples
            if mine.shape == its.shape and torch.equal(mine, its):
                raise typer.BadParameter(
                    f"--calibrate-on has {case.scan.name}, which is evaluated; calibrate on other scans."
                )


def about(study: Study, reference: Reference, cases: "list[Case]") -> str:
    """Say above the tables what they show."""
    against = {
        "rss": "the root sum of squares of all samples",
        "corrected": "the root sum of squares (RSS) of all samples less its noise floor, sqrt(max(RSS^2 - "
        "2 N sigma^2, 0)) with N coils and the scan's noise level sigma, before any is added",
        "truth": "the stored truth",
    }[reference]
    made = (
        "magnitude images that others reconstructed, cut to what was measured, and noise added. They compare "
        "methods; they do not say how good an image is on a scanner. Measures after one scale fit, against "
        "the image without the noise that was added."
    )
    what = {
        "single-coil": f"Simulated scans: one coil of sensitivity 1 that is known, a real image, {made}",
        "simulated": f"Simulated scans: smooth coils that are not known, smooth and some rough phase, {made}",
        "parallel-imaging": f"Measures after one scale fit per image, against {against}. Oracle: the weight "
        "(of CG-SENSE the number of iterations) was chosen with the reference in hand.",
    }[study]
    if study != "single-coil":
        what += (
            " coverage_90: share of the head's pixels whose reference lies inside the 90 % interval of the "
            "posterior, widened by the reference's own noise; mean_std and rms_error_in_head: predicted and "
            "actual error, of the maximum."
        )
    if any(case.pattern.startswith("true-") for case in cases):
        what += " true-: samples off the grid, of coil images on twice as many pixels along each axis."
    if any(case.pattern.startswith("every-") for case in cases):
        whole = "the stored truth" if reference == "truth" else "CG-SENSE of all of them"
        what += f" every-K: one readout in K of a radial or spiral scan, against {whole}."
    lines = (
        f"* {case.scan.name}: noise level {case.scan.noise_source}"
        f"{'. WARNING: ' * bool(case.scan.caution)}{case.scan.caution}"
        for case in cases
    )
    return what + "\n\n" + "\n".join(dict.fromkeys(lines))


def parts_of(text: str) -> list[str]:
    """Split at commas, each part once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
