"""Settings of a training run, as a YAML file holds them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reconlib.priors.card import TrainingData
from reconlib.training.images.settings import ImageSettings

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
NotNegativeCount = Annotated[int, Field(ge=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkSettings(_Section):
    """Sizes of the local energy; the paper's network has one size only."""

    widths: Annotated[tuple[Count, ...], Field(min_length=2, max_length=8)] = Field(
        default=(16, 32, 48, 64, 96), description="channels per resolution"
    )
    input_gain: Positive = Field(default=10.0, description="fixed factor on the image")


class DataSettings(_Section):
    """What the network sees of the images."""

    patch: Annotated[int, Field(ge=8)] | None = Field(
        default=64, description="side of the training patches in pixels; null: whole images"
    )
    margin: NotNegativeCount = Field(
        default=4,
        description="rim of a patch that is not learned from: it does not enter the score-matching loss, "
        "and Langevin chains keep it as it is in a data patch",
    )
    resolutions: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)] = Field(
        default=(1.0, 0.75, 0.625),
        description="matrices to which images are cut in k-space, as fractions of their own, drawn with "
        "equal chance (patches only)",
    )
    symmetries: Literal["none", "flips", "all"] = Field(
        default="all", description="none; the two flips; or all eight symmetries of the square"
    )
    intensity: tuple[Positive, Positive] = Field(
        default=(0.4, 1.3), description="range of the random intensity scale, drawn log-uniformly"
    )
    signed: Share = Field(
        default=0.0,
        description="share of images in which connected regions turn their sign, as flow does to a real part",
    )

    @property
    def rim(self) -> int:
        """The margin of a patch; whole images have none."""
        return 0 if self.patch is None else self.margin

    @model_validator(mode="after")
    def _check(self) -> "DataSettings":
        if self.intensity[0] > self.intensity[1]:
            raise ValueError(f"intensity is a range low, high; found {list(self.intensity)}")
        if self.patch is not None and self.patch <= 2 * self.margin:
            raise ValueError(f"a patch of {self.patch} pixels has nothing inside a margin of {self.margin}")
        return self


class ScoreMatchingSettings(_Section):
    """Multi-noise denoising score matching."""

    noise_range: tuple[Positive, Positive] = Field(
        default=(0.006, 0.2), description="noise levels, drawn log-uniformly"
    )
    disturbed: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="share of images that are disturbed beyond the noise (reconlib.training.disturbances)",
    )

    @model_validator(mode="after")
    def _check(self) -> "ScoreMatchingSettings":
        if self.noise_range[0] > self.noise_range[1]:
            raise ValueError(f"noise_range is a range low, high; found {list(self.noise_range)}")
        return self


class MaximumLikelihoodSettings(_Section):
    """Maximum likelihood by Langevin chains from a replay buffer; the defaults are the paper's."""

    data_noise: Positive | None = Field(
        default=None, description="standard deviation of the noise on the data; null: the card's noise_level"
    )
    step_noise: Positive = Field(
        default=7.5e-3,
        description="standard deviation of the noise of one Langevin step (its square is the step)",
    )
    most_steps: Count = Field(
        default=500,
        description="Langevin steps per update, reached as most_steps (1 - exp(-h / growth_updates))",
    )
    growth_updates: Positive = Field(default=1000.0, description="updates over which the chains get longer")
    least_steps: Count = Field(default=5, description="no chain is shorter than this")
    buffer_size: Count = Field(
        default=8000, description="images in the replay buffer, all processes together"
    )
    keep_chance: Share = Field(
        default=0.99,
        description="chance that a sample goes back to the buffer; else a data image takes its place",
    )
    shuffle_every: Count | None = Field(
        default=2,
        description="every so-manieth replacement has its pixels shuffled; null: none. Chains from shuffled "
        "pixels take long to arrive: after a warm start, or in a short run, they spoil the energy; set null "
        "then, and a buffer of a few batches",
    )


class OptimiserSettings(_Section):
    """The optimiser and its step."""

    kind: Literal["adamw", "adabelief"] = "adamw"
    learning_rate: Positive = 2e-3
    betas: tuple[Share, Share] = (0.9, 0.999)
    epsilon: Positive | None = Field(default=None, description="null: 1e-8 for adamw, 1e-16 for adabelief")
    weight_decay: NotNegative = 1e-4
    schedule: Literal["cosine", "milestones", "constant"] = Field(
        default="cosine", description="cosine: down to zero at the last update"
    )
    milestones: tuple[Count, ...] = Field(
        default=(), description="updates from which the learning rate is milestone_factor times what it was"
    )
    milestone_factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    warmup_updates: NotNegativeCount = Field(default=300, description="updates of a linear rise at the start")
    gradient_clip: Positive | None = Field(default=1.0, description="largest gradient norm; null: none")

    @model_validator(mode="after")
    def _check(self) -> "OptimiserSettings":
        if self.milestones and self.schedule != "milestones":
            raise ValueError(f"milestones need schedule: milestones, not {self.schedule}")
        return self


class GuardSettings(_Section):
    """When a run counts as diverging, and what is done then."""

    gap_range: tuple[float, float] = Field(
        default=(-300.0, 10.0),
        description="mean energy of the data minus that of the samples, per pixel, in units of T; chains "
        "that start from shuffled pixels make it negative until they are long enough",
    )
    sample_range: tuple[float, float] = Field(default=(-5.0, 5.0), description="values a sample may take")
    max_growth: Annotated[float, Field(gt=1)] = Field(
        default=100.0,
        description="largest gradient norm (and score-matching loss) in units of its recent median",
    )
    lower_by: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.5, description="factor on the learning rate each time the run goes back to a checkpoint"
    )
    max_rollbacks: NotNegativeCount = Field(default=5, description="after so many the run is given up")


class BookkeepingSettings(_Section):
    """How often what is written to the run's folder."""

    report_every: Count = Field(default=50, description="updates between two lines of log.jsonl")
    validate_every: Count = Field(default=1000, description="updates between two validations")
    checkpoint_every: Count = Field(default=500, description="updates between two checkpoints")
    keep_checkpoints: Count = Field(
        default=3, description="the newest so many are kept (and the best weights)"
    )
    picture_every: Count | None = Field(
        default=1000, description="updates between two plots and sample grids; null: none"
    )
    result: Literal["last", "best"] = Field(
        default="last", description="which averaged weights become the prior; best: on the validation images"
    )


class CardSettings(_Section):
    """What the card of the finished prior says about it."""

    version: Annotated[str, Field(pattern=r"^\d+\.\d+(\.\d+)?$")] = "0.1"
    description: str | None = Field(default=None, description="null: architecture and objective in words")
    anatomy: str = "as the training images"
    contrasts: tuple[str, ...] = Field(default=(), description="contrasts that the prior is meant for")
    licence: str = "not stated"
    data: tuple[TrainingData | str, ...] = Field(
        default=(),
        description="training images: texts, or source, licence, subjects, images; none: what the files tell",
    )
    noise_level: Positive = Field(default=0.015, description="the level at which the energy is used")
    gradient_noise_std: NotNegative = Field(
        default=0.015, description="noise on the point where the energy is evaluated"
    )
    symmetric_views: bool = Field(
        default=False,
        description="the energy sees the image shifted and turned, by a draw for each evaluation",
    )
    image_phase: Literal["real", "soft"] = "soft"
    prior_weight_factor: Positive = Field(default=1.0, description="correction of the noise rule")


class TrainSettings(_Section):
    """One training run."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="name of the prior that is made")]
    objective: Literal["score-matching", "maximum-likelihood"] = "score-matching"
    architecture: Literal["local", "paper"] = "local"
    network: NetworkSettings = NetworkSettings()
    warm_start: str | None = Field(
        default=None, description="folder of a prior package of the same architecture to start from"
    )
    temperature: Positive | None = Field(
        default=None, description="T in exp(-R / T); null: 1 (local), step_noise^2 / 2 (paper)"
    )
    images: ImageSettings = ImageSettings()
    data: DataSettings = DataSettings()
    score_matching: ScoreMatchingSettings = ScoreMatchingSettings()
    maximum_likelihood: MaximumLikelihoodSettings = MaximumLikelihoodSettings()
    n_updates: Count = 13_000
    batch: Count = Field(default=16, description="images per update, all processes together")
    optimiser: OptimiserSettings = OptimiserSettings()
    ema: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.002,
        description="weight of the newest weights in their running average, the result; 1: no average",
    )
    compile: bool = Field(default=False, description="torch.compile the loss (needs a C++ compiler)")
    mixed_precision: bool = Field(
        default=False,
        description="bfloat16 where torch's autocast takes it for safe; gradients of R are then off by "
        "0.5 %, and a CPU without bfloat16 units is 8 to 17 times slower with it (measured)",
    )
    guard: GuardSettings = GuardSettings()
    bookkeeping: BookkeepingSettings = BookkeepingSettings()
    seed: NotNegativeCount = 0
    card: CardSettings = CardSettings()

    @property
    def resolved_temperature(self) -> float:
        """T in ``exp(-R / T)``."""
        if self.temperature is not None:
            return self.temperature
        return 1.0 if self.architecture == "local" else self.maximum_likelihood.step_noise**2 / 2

    @property
    def resolved_data_noise(self) -> float:
        """Standard deviation of the noise on the data of maximum likelihood."""
        return self.maximum_likelihood.data_noise or self.card.noise_level

    @model_validator(mode="after")
    def _check(self) -> "TrainSettings":
        if self.objective != "maximum-likelihood":
            return self
        if self.architecture == "local" and self.resolved_data_noise != self.card.noise_level:
            raise ValueError(
                f"a local energy is used, and so trained, at card.noise_level ({self.card.noise_level}); "
                f"leave maximum_likelihood.data_noise (now {self.resolved_data_noise}) at null"
            )
        if self.batch > self.maximum_likelihood.buffer_size:
            raise ValueError(
                f"a batch of {self.batch} cannot be drawn from maximum_likelihood.buffer_size "
                f"({self.maximum_likelihood.buffer_size})"
            )
        return self
