"""What is said about each image: in its meta attributes, in the log, and in the summary of a stream."""

from dataclasses import dataclass, field

from gadget.reconstructor import ImageKind, SliceResult
from gadget.scan.context import ScanContext
from gadget.series import MetaValue
from gadget.version import software


@dataclass(slots=True)
class StreamSummary:
    """What came of a stream, counted while its images leave."""

    counts: dict[ImageKind, int] = field(default_factory=lambda: dict.fromkeys(ImageKind, 0))
    labelled: list[str] = field(default_factory=list)
    """A line for each fallback, each all-zero image, and each image that its time limit stopped."""
    seconds: float = 0.0
    """Spent in reconstructions."""

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


def describe(result: SliceResult) -> str:
    """Say what an image is, and why where it is a fallback."""
    return (
        f"{result.kind.value} ({result.outcome})" if result.kind is ImageKind.FALLBACK else result.kind.value
    )


def log_line(result: SliceResult) -> str:
    """Return the line that the log gets for each image: outcome, iterations, seconds, prior, weight."""
    prior = f"prior {result.prior_name} {result.prior_version}"
    if result.kind is ImageKind.FALLBACK:
        return f"{describe(result)}, {result.seconds:.1f} s, {prior}"
    return (
        f"{result.kind.value}: {result.outcome}, {result.iterations} iterations, {result.seconds:.1f} s, "
        f"{prior}, weight {result.prior_weight:.3g} (rule {result.prior_weight_rule})"
    )


def image_meta(result: SliceResult, context: ScanContext) -> dict[str, MetaValue]:
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
    numbers: dict[str, MetaValue | None] = {
        "EBM_PriorWeight": result.prior_weight,
        "EBM_NoiseLevel": result.noise_level,
        "EBM_Scale": result.scale,
        "EBM_MeanCoilMagnitude": result.mean_coil_magnitude,
        "EBM_Iterations": result.iterations,
    }
    meta |= {name: value for name, value in numbers.items() if value is not None}
    comments = ["gadgetron-ebm"]
    if result.kind is not ImageKind.RECONSTRUCTED:
        comments.append(describe(result))
    if not context.is_complete:
        comments.append("INCOMPLETE DATA")
    meta["ImageComments"] = ": ".join([comments[0], "; ".join(comments[1:])]) if comments[1:] else comments[0]
    return meta
