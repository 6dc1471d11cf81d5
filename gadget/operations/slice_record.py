"""What the monitor knows of one slice: pictures of its images, and what their meta says, in words.

Only attributes of our own are read, by name: an image that came in and is passed on has others, and they may
name the patient.
"""

from dataclasses import dataclass, field

from gadget.operations.latency import in_seconds
from gadget.operations.picture import Picture, picture_of
from gadget.wire.messages import Image

RECONSTRUCTIONS = ("RECONSTRUCTED", "OUT_OF_TIME", "ALL_ZERO", "FALLBACK")
"""``EBM_Image`` of a reconstruction: how it ended."""
POSTERIOR_MEAN, POSTERIOR_STD = "POSTERIOR_MEAN", "POSTERIOR_STD"
KINDS = (*RECONSTRUCTIONS, POSTERIOR_MEAN, POSTERIOR_STD)
PASSED_ON = "PASSED_ON"
"""The kind of images that are not ours."""

_TONES = {"OUT_OF_TIME": "warning", "ALL_ZERO": "warning", "FALLBACK": "error"}
_BADGES = {"OUT_OF_TIME": "stopped by its time limit", "ALL_ZERO": "all zero", "FALLBACK": "FALLBACK"}
_UNRELIABLE = ("TOO_SHORT", "NOT_MIXED")
_COMPONENTS = ("phase", "complex", "real")
_COUNTERS = ("contrast", "phase", "repetition", "set", "average")
_LONGEST_TEXT = 400


def kind_of(meta: dict[str, str]) -> str:
    """Return what an image is, one of a few words whatever a peer has sent."""
    kind = meta.get("EBM_Image", "")
    return kind if kind in KINDS else PASSED_ON


@dataclass(slots=True)
class SliceRecord:
    """One slice of a scan and the images that were sent of it."""

    number: int
    """Counts the slices that the monitor has seen."""
    scan: int
    index: int
    """``image_index`` of all its images."""
    label: str
    at: float
    """When its first image was sent, seconds since the epoch."""
    facts: dict[str, str] = field(default_factory=dict)
    badges: dict[str, str] = field(default_factory=dict)
    """Short warnings, and how bad: warning or error."""
    pictures: list[Picture] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        """Memory of the pictures."""
        return sum(picture.levels.nbytes for picture in self.pictures)

    def picture_of(self, image: Image, meta: dict[str, str]) -> Picture | None:
        """Make the picture of an image of this slice; a mean has the window of the reconstruction."""
        kind = kind_of(meta)
        component = meta.get("EBM_Component", "")
        names = {POSTERIOR_MEAN: "posterior mean", POSTERIOR_STD: "standard deviation"}
        name = names.get(kind) or (component if component in _COMPONENTS else "image")
        window = next((one.window for one in self.pictures if one.name == "image"), None)
        return picture_of(image, meta, name, window if kind == POSTERIOR_MEAN else None)

    def add(self, kind: str, meta: dict[str, str], latency_s: float | None, picture: Picture | None) -> None:
        """Take note of an image of this slice that was sent."""
        if kind in RECONSTRUCTIONS:
            self._add_reconstruction(kind, meta, latency_s)
        else:
            self._add_posterior(meta, latency_s)
        if picture is not None and all(one.name != picture.name for one in self.pictures):
            self.pictures.append(picture)

    def _add_reconstruction(self, kind: str, meta: dict[str, str], latency_s: float | None) -> None:
        if kind in _BADGES:
            self.badges[_BADGES[kind]] = _TONES[kind]
        if "INCOMPLETE DATA" in meta.get("ImageComments", ""):
            self.badges["incomplete data"] = "warning"
        if meta.get("EBM_Typicality") in ("outside", "unusual"):
            self.badges[f"{meta['EBM_Typicality']} for the prior"] = "warning"
        if latency_s is not None and "latency" not in self.facts:
            self.facts["latency"] = f"{in_seconds(latency_s)} s"
        weight = _rounded(meta, "EBM_PriorWeight")
        self._tell("prior", meta.get("EBM_Prior"), meta.get("EBM_PriorVersion"))
        self._tell("weight", weight, weight and f"(rule {meta.get('EBM_PriorWeightRule', 'unknown')})")
        self._tell("outcome", meta.get("EBM_Outcome"))
        self._tell("iterations", meta.get("EBM_Iterations"))
        self._tell("reconstruction", _rounded(meta, "EBM_Seconds", ".1f"), "s")
        self._tell("noise level", _rounded(meta, "EBM_NoiseLevel"))
        self._tell("settings rule", meta.get("EBM_Rule"))
        if meta.get("EBM_Typicality") != "unknown":
            self._tell("typicality", meta.get("EBM_TypicalityDetails"))
        self._tell("prior mismatch", meta.get("EBM_PriorMismatch"))

    def _add_posterior(self, meta: dict[str, str], latency_s: float | None) -> None:
        if meta.get("EBM_Posterior") in _UNRELIABLE:
            self.badges["uncertainty not reliable"] = "warning"
        if latency_s is not None:
            self.facts["latency of the uncertainty"] = f"{in_seconds(latency_s)} s"
        self._tell("uncertainty", meta.get("EBM_PosteriorOutcome"))
        if meta.get("EBM_Chains") and meta.get("EBM_Draws"):
            self._tell("draws", f"{meta['EBM_Chains']} x {meta['EBM_Draws']} ({meta.get('EBM_Sampler')})")
        self._tell("worst R-hat", _rounded(meta, "EBM_WorstRhat", ".3f"))
        self._tell("smallest effective sample size", _rounded(meta, "EBM_SmallestEffectiveSampleSize", ".0f"))
        self._tell("sampling", _rounded(meta, "EBM_SamplingSeconds", ".1f"), "s")

    def _tell(self, name: str, value: str | None, more: str | None = "") -> None:
        if value:
            self.facts[name] = short_text(f"{value} {more}".strip())


def label_of(image: Image) -> str:
    """Return the name of a slice as the log writes it, from the counters of an image's header."""
    parts = [f"slice {int(image.header['slice'])}"]
    parts += [f"{name} {int(image.header[name])}" for name in _COUNTERS if image.header[name]]
    return ", ".join(parts)


def short_text(text: str) -> str:
    """Return a text that fits into memory and onto a page, whatever its length."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _rounded(meta: dict[str, str], name: str, spec: str = ".3g") -> str:
    """Return a number of the meta as the log writes it; empty where it has none."""
    try:
        return format(float(meta[name]), spec)
    except (KeyError, ValueError):
        return ""
