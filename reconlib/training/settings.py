"""Settings of a training run, as a YAML file holds them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkSettings(_Section):
    """Sizes of the local energy."""

    widths: tuple[Count, ...] = Field((16, 32, 48, 64, 96), description="channels per resolution")
    input_gain: Positive = Field(10.0, description="fixed factor on the image")


class DataSettings(_Section):
    """What the network sees."""

    patch: Annotated[int, Field(ge=32)] = Field(64, description="side of the training patches in pixels")
    margin: Annotated[int, Field(ge=0)] = Field(4, description="rim of a patch that does not enter the loss")
    fourier_crop: tuple[Count, ...] = Field(
        (256, 192, 160), description="matrices to which images are cut in k-space, drawn with equal chance"
    )
    intensity: tuple[Positive, Positive] = Field((0.4, 1.3), description="range of the random intensity scale")


class TrainSettings(_Section):
    """One training run by multi-noise denoising score matching."""

    name: str = Field(description="name of the prior package that is made", pattern=r"^[a-z0-9][a-z0-9-]*$")
    objective: Literal["score-matching"] = "score-matching"
    network: NetworkSettings = NetworkSettings()
    data: DataSettings = DataSettings()
    noise_range: tuple[Positive, Positive] = Field((0.006, 0.2), description="noise levels, drawn log-uniformly")
    n_updates: Count = 15_000
    batch: Count = 16
    learning_rate: Positive = 2e-3
    warmup_updates: Count = 300
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    gradient_clip: Positive = Field(1.0, description="largest gradient norm")
    ema: Annotated[float, Field(gt=0, le=1)] = Field(0.002, description="weight of the newest weights in the average")
    compile: bool = Field(False, description="torch.compile the loss (needs a C++ compiler)")
    seed: int = 0
    noise_level: Positive = Field(0.015, description="the level at which the finished energy is used")
    gradient_noise_std: Annotated[float, Field(ge=0)] = Field(
        0.0, description="noise on the point where the gradient is taken"
    )
