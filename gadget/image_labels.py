"""What is said about each image: in its meta attributes, in the log, and in the summary of a stream."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gadget.finished_slice import SampledSlice
from gadget.prior_suitability import Mismatch
from gadget.reconstructor import ImageKind, SliceResult
from gadget.scan.context import ScanContext
from gadget.scan.directions import direction_warnings
from gadget.series import MetaValue
from gadget.version import software
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.priors.typicality import Typicality

NO_SERIES = "no uncertainty images"
NO_PHASE = "no image with a phase"


@dataclass(slots=True)
class StreamSummary:
    """What came of a stream, counted while its images leave."""

    counts: dict[ImageKind, int] = field(default_factory=lambda: dict.fromkeys(ImageKind, 0))
    labelled: list[str] = field(default_factory=list)
    """A line for each fallback, each all-zero image, each image that its time limit stopped, and each slice
    whose uncertainty or phase is missing."""
    rough: list[str] = field(default_factory=list)
    """A line for each slice whose uncertainty was sent but is too roughly known to be relied on."""
    seconds: float = 0.0
    """Spent in reconstructions."""
    n_sampled: int = 0
    """Images that were followed by uncertainty images."""
    sampling_seconds: float = 0.0
    """Spent in sampling."""

    @property
    def n_images(self) -> int:
        """Images so far."""
        return sum(self.counts.values())

    def add(self, context: ScanContext, result: SliceResult) -> None:
        """Take note of an image."""
        self.counts[result.kind] += 1
        self.seconds += result.seconds
        if result.kind is not ImageKind.RECONSTRUCTED:
            self.labelled.append(f"{context.label()}: {describe(result)}")

    def add_sampled(self, sampled: SampledSlice) -> None:
        """Take note of a slice whose posterior was sampled, or could not be."""
        self.n_sampled += sampled.images() is not None
        self.sampling_seconds += sampled.seconds
        # Of an image of zeros it is told already.
        if not sampled.is_reliable and sampled.outcome is not PosteriorOutcome.ALL_ZERO:
            lines = self.labelled if sampled.images() is None else self.rough
            lines.append(f"{sampled.finished.slice.context.label()}: {describe_sampled(sampled)}")

    def add_missing(self, context: ScanContext, what: str, reason: str) -> None:
        """Take note of images of a slice that were asked for and are not made."""
        self.labelled.append(f"{context.label()}: {what}: {reason}")


def describe(result: SliceResult) -> str:
    """Say what an image is, and why where it is a fallback."""
    return (
        f"{result.kind.value} ({result.outcome})" if result.kind is ImageKind.FALLBACK else result.kind.value
    )


def describe_sampled(sampled: SampledSlice) -> str:
    """Say what a slice's uncertainty images are worth, or why there are none."""
    if sampled.images() is None:
        return f"{NO_SERIES}: {sampled.words}"
    return f"uncertainty {'' if sampled.is_reliable else 'NOT RELIABLE, '}{sampled.words}"


def log_line(result: SliceResult) -> str:
    """Return the line that the log gets for each image: outcome, iterations, seconds, prior, weight."""
    prior = f"prior {result.prior_name} {result.prior_version}"
    if result.kind is ImageKind.FALLBACK:
        return f"{describe(result)}, {result.seconds:.1f} s, {prior}"
    line = (
        f"{result.kind.value}: {result.outcome}, {result.iterations} iterations, {result.seconds:.1f} s, "
        f"{prior}, weight {result.prior_weight:.3g} (rule {result.prior_weight_rule})"
    )
    found = result.typicality
    return line if found is None or found.word == "unknown" else f"{line}; {found.sentence}"


def image_meta(
    result: SliceResult, context: ScanContext, mismatches: Sequence[Mismatch] = ()
) -> dict[str, MetaValue]:
    """Return the attributes that say how an image was made; they stand beside the standard ones.

    The comment, which viewers show, says so where the image is not an ordinary reconstruction.
    """
    meta: dict[str, MetaValue] = {
        "EBM_Image": result.kind.name,
        "EBM_Outcome": result.outcome,
        "EBM_Prior": result.prior_name,
        "EBM_PriorVersion": result.prior_version,
        "EBM_ImagePhase": result.image_phase,
        "EBM_PriorWeightRule": result.prior_weight_rule,
        "EBM_Seconds": round(result.seconds, 3),
        "EBM_Software": software(),
    }
    known: dict[str, MetaValue | None] = {
        "EBM_PriorWeight": result.prior_weight,
        "EBM_NoiseLevel": result.noise_level,
        "EBM_Scale": result.scale,
        "EBM_MeanCoilMagnitude": result.mean_coil_magnitude,
        "EBM_Solver": result.solver,
        "EBM_Iterations": result.iterations,
    }
    meta |= {name: value for name, value in known.items() if value is not None}
    if result.typicality is not None:
        meta |= _typicality_meta(result.typicality)
    if mismatches:
        meta["EBM_PriorMismatch"] = [one.sentence for one in mismatches]
    if warnings := direction_warnings(context.read_dir, context.phase_dir, context.slice_dir):
        meta["EBM_DirectionWarnings"] = warnings
    remarks = [] if result.kind is ImageKind.RECONSTRUCTED else [describe(result)]
    meta["ImageComments"] = image_comment(*remarks, *warnings_on(result, context, mismatches))
    return meta


def is_outside(result: SliceResult) -> bool:
    """Whether an image is outside of what its prior knows."""
    return result.typicality is not None and result.typicality.word == "outside"


def image_comment(*remarks: str) -> str:
    """Return the comment that viewers show."""
    return ": ".join(filter(None, ["gadgetron-ebm", "; ".join(remarks)]))


def warnings_on(result: SliceResult, context: ScanContext, mismatches: Sequence[Mismatch] = ()) -> list[str]:
    """Return the remarks that belong into the comment of each image of a slice, whatever its series."""
    warnings = [] if context.is_complete else ["INCOMPLETE DATA"]
    if (found := result.typicality) is not None and found.word == "outside":
        warnings.append(f"WARNING, {found.sentence}")
    warnings += [f"WARNING, {one.remark}" for one in mismatches]
    return warnings


def _typicality_meta(found: Typicality) -> dict[str, MetaValue]:
    numbers = {
        "EBM_EnergyPerPixel": found.energy_per_pixel,
        "EBM_EnergyPercentile": found.percentile,
        "EBM_UnusualRegions": math.nan if found.unusual_share is None else found.unusual_share,
    }
    return {
        "EBM_Typicality": found.word,
        "EBM_TypicalityDetails": found.sentence,
        **{name: value for name, value in numbers.items() if math.isfinite(value)},
    }
