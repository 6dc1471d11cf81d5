"""Settings of a training run, as a YAML file holds them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkSettings(_Section):
    """Sizes of the local energy."""

    widths: tuple[Count, ...] = Field(default=(16, 32, 48, 64, 96), description="channels per resolution")
    input_gain: Positive = Field(default=10.0, description="fixed factor on the image")


class DataSettings(_Section):
    """What the network sees."""

    patch: Annotated[int, Field(ge=32)] = Field(
        default=64, description="side of the training patches in pixels"
    )
    margin: Annotated[int, Field(ge=0)] = Field(
        default=4, description="rim of a patch that does not enter the loss"
    )
    fourier_crop: tuple[Count, ...] = Field(
        default=(256, 192, 160),
        description="matrices to which images are cut in k-space, drawn with equal chance",
    )
    intensity: tuple[Positive, Positive] = Field(
        default=(0.4, 1.3), description="range of the random intensity scale"
    )


class CardSettings(_Section):
    """What the card of the finished prior says about it."""

    version: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] = "0.1"
    description: str = "local energy, trained by score matching"
    anatomy: str = "as the training images"
    licence: str = "not stated"
    data: tuple[str, ...] = Field(default=(), description="training images: source, contents, licence")
    noise_level: Positive = Field(default=0.015, description="the level at which the energy is used")
    gradient_noise_std: NotNegative = Field(
        default=0.015, description="noise on the point where the energy is evaluated"
    )
    image_phase: Literal["real", "soft"] = "soft"
    prior_weight_factor: Positive = Field(default=1.0, description="correction of the noise rule")


class TrainSettings(_Section):
    """One training run by multi-noise denoising score matching."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="name of the prior that is made")]
    objective: Literal["score-matching"] = "score-matching"
    network: NetworkSettings = NetworkSettings()
    data: DataSettings = DataSettings()
    noise_range: tuple[Positive, Positive] = Field(
        default=(0.006, 0.2), description="noise levels, drawn log-uniformly"
    )
    n_updates: Count = 13_000
    batch: Count = 16
    learning_rate: Positive = 2e-3
    warmup_updates: Count = 300
    weight_decay: NotNegative = 1e-4
    gradient_clip: Positive = Field(default=1.0, description="largest gradient norm")
    ema: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.002, description="weight of the newest weights in their running average, the result"
    )
    compile: bool = Field(default=False, description="torch.compile the loss (needs a C++ compiler)")
    seed: int = 0
    card: CardSettings = CardSettings()
