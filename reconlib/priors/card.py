"""The card of a prior: what it is, how it was made, how it is to be used.

``card.yaml`` is checked against :class:`PriorCard`: an unknown key, a wrong type or a number out of its range
is refused, all faults at once. Only ``training.settings``, ``posterior.coverage`` and
``validation`` are free mappings, for readers.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Width = Annotated[int, Field(ge=1, le=4096)]
Side = Annotated[int, Field(ge=1, le=8192)]
Percent = Annotated[float, Field(ge=0, le=100)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class LocalArchitecture(_Section):
    """:class:`reconlib.energies.local.LocalEnergyNetwork`."""

    kind: Literal["local"]
    widths: Annotated[tuple[Width, ...], Field(min_length=2, max_length=8)]
    input_gain: Positive
    noise_level: Positive = Field(description="the noise level at which the energy is used")


class PaperArchitecture(_Section):
    """:class:`reconlib.energies.paper.PaperNetwork`."""

    kind: Literal["paper"]
    outside_weight: NotNegative = Field(
        default=10.0,
        description="weight, over the temperature, of the total variation of what lies outside 320 x 320; "
        "10 is about that of the shipped total variation at a noise level of 0.01",
    )


class TotalVariationArchitecture(_Section):
    """:class:`reconlib.energies.total_variation.TotalVariation`; it has no weights file."""

    kind: Literal["total-variation"]
    epsilon: Positive


Architecture = Annotated[
    LocalArchitecture | PaperArchitecture | TotalVariationArchitecture, Field(discriminator="kind")
]


class InputCard(_Section):
    """What images the energy expects."""

    matrix: Literal["any"] | tuple[Side, Side] = Field(
        default="any", description="(y, x) of the training images, or any"
    )
    transpose: bool = Field(
        default=False, description="the energy sees the image with x and y exchanged; before the rotation"
    )
    rotation_degrees: Literal[0, 90, 180, 270] = Field(
        default=0, description="the energy sees the image turned by this, counter-clockwise"
    )
    orientation: str | None = Field(
        default=None, description="plane, and what rows and columns are in the patient, in words"
    )
    values: Literal["magnitude", "signed"] = Field(
        default="magnitude",
        description="signed: the energy knows images whose regions turn negative, as where blood flows; "
        "magnitude: it has only seen magnitudes, and is given |x|",
    )
    scaling: Literal["percentile", "maximum", "as-is"] = Field(
        default="percentile", description="what was scaled to 1 in the training images"
    )
    percentile: Percent = Field(default=99.95, description="of the pixels; for the scaling 'percentile'")
    pixel_spacing_mm: tuple[Positive, Positive] | None = Field(
        default=None, description="smallest and largest pixel spacing of the training images"
    )

    @model_validator(mode="after")
    def _spacing_is_a_range(self) -> "InputCard":
        spacing = self.pixel_spacing_mm
        if spacing is not None and spacing[0] > spacing[1]:
            raise ValueError(f"pixel_spacing_mm is a range, smallest first, not {list(spacing)}")
        return self


class TrainingData(_Section):
    """One source of training images."""

    source: str
    licence: str | None = None
    subjects: Count | None = None
    images: Count | None = None


class TrainingCard(_Section):
    """How the weights were made. All of it is for the reader."""

    data: tuple[TrainingData, ...] = ()
    n_images: int | None = Field(default=None, ge=0)
    n_subjects: int | None = Field(default=None, ge=0)
    n_validation_images: int | None = Field(default=None, ge=0)
    n_validation_subjects: int | None = Field(default=None, ge=0)
    objective: str | None = None
    n_updates: int | None = Field(default=None, ge=0)
    settings: dict[str, object] = Field(default_factory=dict)
    hardware: str | None = None
    hours: NotNegative | None = None
    command: str | None = None
    torch: str | None = None
    note: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_short_forms(cls, content: object) -> object:
        """Take a bare text for a source of data, and ``device`` for ``hardware``."""
        if not isinstance(content, dict):
            return content
        content = dict(content)
        if "device" in content and "hardware" not in content:
            content["hardware"] = content.pop("device")
        data = content.get("data")
        if isinstance(data, list | tuple):
            content["data"] = [{"source": one} if isinstance(one, str) else one for one in data]
        return content


class PublishedDataWeight(_Section):
    r"""The data weight that the authors of a prior publish, kept for the reader; nothing is computed from it.

    .. math:: 1 / \lambda = \max(smallest, intercept + slope\, r_0)

    with :math:`r_0` half the squared residual of their start.
    """

    contrast: str
    smallest: Positive
    intercept: float
    slope: float
    coil_smoothness_slope: float | None = Field(default=None, description="mu = this times r_0")
    note: str | None = None


class PriorWeightCard(_Section):
    """How the weight lambda follows from the scan; see :mod:`reconlib.joint.prior_weight`."""

    rule: Literal["noise", "fit"]
    factor: Positive = Field(default=1.0, description="correction of the noise rule, found by validation")
    intercept: float = Field(default=0.0, description="fit rule: lambda = intercept + slope * noise level")
    slope: float | None = None
    coil_smoothness: Positive | None = Field(default=None, description="mu found with it, by validation")
    fitted_on: str | None = Field(default=None, description="the validation scans, in words")
    published: PublishedDataWeight | None = None


def _rising(percentiles: dict[float, float]) -> dict[float, float]:
    values = [percentiles[percent] for percent in sorted(percentiles)]
    if values != sorted(values):
        raise ValueError("the values have to rise with the percentile")
    return percentiles


Percentiles = Annotated[dict[Percent, float], Field(min_length=1), AfterValidator(_rising)]
"""Percentile -> value."""


class RegionPercentiles(_Section):
    """The same of the square regions of those images, for a local energy."""

    side: Side = Field(description="of a region, in pixels")
    per_pixel: Percentiles = Field(description="over all regions of all images")
    unusual_share: Percentiles = Field(
        description="percentile over the images -> share of an image's regions whose energy lies below the "
        "1st or above the 99th percentile of per_pixel"
    )


class EnergyPercentiles(_Section):
    """Energies of real validation images: the yardstick for how typical a reconstruction is.

    What is measured is said in :mod:`reconlib.priors.signal_energy`.
    """

    per_pixel: Percentiles = Field(
        description="percentile -> energy of an image, over the pixels of its signal"
    )
    noise_std: NotNegative = Field(description="standard deviation of the noise on the images")
    n_images: Count
    brightness: Positive | None = Field(
        default=None,
        description="to which the images are scaled; none in older cards, whose energies are of all pixels, "
        "air and noise included, and tell little",
    )
    resolutions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        default=(1.0,), description="every image is counted at each of these fractions of its matrix"
    )
    regions: RegionPercentiles | None = None


class PosteriorCard(_Section):
    """How wide the posterior has to be taken, found on simulated scans of validation images."""

    std_factor: Positive = Field(
        default=1.0, description="the standard deviation of the draws is multiplied by this"
    )
    fitted_on: str | None = Field(default=None, description="the simulated scans, in words")
    coverage: dict[str, object] = Field(
        default_factory=dict, description="how often intervals held the truth, for the reader"
    )


class PriorCard(_Section):
    """Everything that ``card.yaml`` holds."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=100)]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")]
    description: str
    architecture: Architecture
    temperature: Positive = Field(description="T in the density exp(-R / T)")
    gradient_noise_std: NotNegative = Field(
        default=0.0, description="noise on the point where R is evaluated"
    )
    symmetric_views: bool = Field(
        default=False,
        description="the energy knows all orientations: it sees the image shifted and turned, by a draw for "
        "each evaluation",
    )
    image_phase: Literal["real", "soft"] = "soft"
    input: InputCard = InputCard()
    prior_weight: PriorWeightCard
    posterior: PosteriorCard | None = None
    energy_percentiles: EnergyPercentiles | None = None
    anatomy: str
    contrasts: tuple[str, ...] = ()
    licence: str
    training: TrainingCard = TrainingCard()
    validation: dict[str, object] = Field(default_factory=dict, description="results, for the reader")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        default=None, description="of prior.safetensors; none where there are no weights"
    )
