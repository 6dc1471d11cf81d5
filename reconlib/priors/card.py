"""The card of a prior: what it is, how it was made, how it is to be used."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LocalArchitecture(_Section):
    """:class:`reconlib.energies.local.LocalEnergyNetwork`."""

    kind: Literal["local"]
    widths: Annotated[tuple[Count, ...], Field(min_length=2, max_length=8)]
    input_gain: Positive
    noise_level: Positive = Field(description="the noise level at which the energy is used")


class PaperArchitecture(_Section):
    """:class:`reconlib.energies.paper.PaperNetwork`."""

    kind: Literal["paper"]


class TotalVariationArchitecture(_Section):
    """:class:`reconlib.energies.total_variation.TotalVariation`; it has no weights file."""

    kind: Literal["total-variation"]
    epsilon: Positive


Architecture = Annotated[
    LocalArchitecture | PaperArchitecture | TotalVariationArchitecture, Field(discriminator="kind")
]


class PriorWeightCard(_Section):
    """How the weight lambda follows from the scan; see :mod:`reconlib.joint.prior_weight`."""

    rule: Literal["noise", "fit"]
    factor: Positive = Field(default=1.0, description="correction of the noise rule, found by validation")
    intercept: float = Field(default=0.0, description="fit rule: lambda = intercept + slope * noise level")
    slope: float | None = None


class PriorCard(_Section):
    """Everything that ``card.yaml`` holds."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")]
    description: str
    architecture: Architecture
    temperature: Positive = Field(description="T in the density exp(-R / T)")
    gradient_noise_std: NotNegative = Field(
        default=0.0, description="noise on the point where R is evaluated"
    )
    image_phase: Literal["real", "soft"] = "soft"
    prior_weight: PriorWeightCard
    anatomy: str
    licence: str
    training: dict[str, object] = Field(default_factory=dict, description="data, objective, settings, time")
    validation: dict[str, object] = Field(default_factory=dict, description="results, for the reader")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        default=None, description="of prior.safetensors; none where there are no weights"
    )
