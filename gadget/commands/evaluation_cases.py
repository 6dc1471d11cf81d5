"""What ``evaluate`` is run on: scans by study, and the patterns that leave samples out of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from gadget.evaluation_images import Part
    from gadget.settings import Settings
    from reconlib.evaluation.study import Case, FullScan

Study = Literal["parallel-imaging", "single-coil", "simulated"]
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
    reference: Literal["rss", "truth"] = "rss"
    coil_maps: Path | None = None
    coils: int | None = None
    add_noise: float | None = None
    noise_factor: float = NOISE_FACTOR

    def __post_init__(self) -> None:
        """Refuse options of other studies."""
        images = self.study != "parallel-imaging"
        wrong = {
            "--reference": images and self.reference == "truth",
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
        """Return the patterns by name, sets of them resolved."""
        from reconlib.evaluation.grid_patterns import PARALLEL_IMAGING, PATTERNS, SINGLE_COIL

        default = {"parallel-imaging": "parallel", "single-coil": "single-coil", "simulated": "cartesian-4"}
        sets = {"parallel": PARALLEL_IMAGING, "single-coil": SINGLE_COIL}
        chosen = parts_of(self.patterns or default[self.study])
        names = list(dict.fromkeys(name for part in chosen for name in sets.get(part, (part,))))
        for name in names:
            if name not in PATTERNS:
                raise typer.BadParameter(
                    f"there is no pattern {name!r}; choose from {', '.join([*PATTERNS, *sets])}."
                )
        if not names:
            raise typer.BadParameter("no pattern is named.")
        return names

    def cases_of(self, paths: Sequence[Path]) -> "list[Case]":
        """Read the scans, say their noise level on stderr, and leave samples out by every pattern."""
        from gadget.evaluation_inputs import with_names_of_their_own
        from reconlib.evaluation.grid_patterns import PATTERNS
        from reconlib.evaluation.study import Case

        names = self.pattern_names()
        scans = with_names_of_their_own([scan for path in paths for scan in self._scans_of(path)])
        cases = []
        for scan in scans:
            typer.echo(f"{scan.name}: noise level {scan.noise_std:.4g}, {scan.noise_source}", err=True)
            for name in names:
                try:
                    mask = PATTERNS[name](scan.matrix)
                except ValueError as error:
                    raise typer.BadParameter(f"{scan.name}, pattern {name}: {error}") from error
                cases.append(Case(scan=scan, pattern=name, mask=mask))
        return cases

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
        if self.add_noise is not None:
            scans = [inputs.with_added_noise(scan, self.add_noise) for scan in scans]
        if self.coil_maps is not None:
            return [inputs.with_coil_maps(scan, self.coil_maps) for scan in scans]
        return [inputs.with_coil_of_one(scan) for scan in scans] if self.settings.coils == "fixed" else scans


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


def about(study: Study, cases: "list[Case]") -> str:
    """Say above the tables what they show."""
    made = (
        "magnitude images that others reconstructed, cut to what was measured, and noise added. They compare "
        "methods; they do not say how good an image is on a scanner. Measures after one scale fit, against "
        "the image without the noise that was added."
    )
    what = {
        "single-coil": f"Simulated scans: one coil of sensitivity 1 that is known, a real image, {made}",
        "simulated": f"Simulated scans: smooth coils that are not known, smooth and some rough phase, {made}",
        "parallel-imaging": "Measures after one scale fit per image, against the root sum of squares of all "
        "samples, or the stored truth. Oracle: the weight was chosen with the reference in hand.",
    }[study]
    if study != "single-coil":
        what += (
            " coverage_90: share of the head's pixels whose reference lies inside the 90 % interval of the "
            "posterior, widened by the reference's own noise; mean_std and rms_error_in_head: predicted and "
            "actual error, of the maximum."
        )
    lines = (f"* {case.scan.name}: noise level {case.scan.noise_source}" for case in cases)
    return what + "\n\n" + "\n".join(dict.fromkeys(lines))


def parts_of(text: str) -> list[str]:
    """Split at commas, each part once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
