"""What a user may choose about a reconstruction.

Every key is documented in ``config/recon/default.yaml``, a test keeps the two equal.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from gadget.checked_settings import Section, checked, dotted, read_yaml_mapping, told, with_values
from gadget.errors import SettingsError
from gadget.rule_settings import ProtocolRule
from reconlib.posterior.settings import SamplerName

ImageComponent = Literal["magnitude", "phase", "complex", "real"]
"""What can be shown of a complex image."""


HELD_FROM_START = ("device", "threads")
"""Keys that hold for a whole process, from its start: no rule and no configuration by name sets them."""


class SolverSettings(Section):
    """How the joint estimate of image and coils is run."""

    method: Literal["fast", "paper"] = "fast"
    """fast: the same problem with a quarter of the prior's gradients; paper: Algorithm 1 as published."""
    iterations: int | None = Field(default=None, ge=1, le=10_000)
    """Most iterations per slice. null: 24 of fast, 100 of paper."""
    coil_smoothness: float | None = Field(default=None, gt=0)
    """Weight of the smoothness of the coil maps (mu), from 160 x 160 pixels. null: the card's, else 0.3."""
    imaginary_weight: float = Field(default=0.2, gt=0)
    """With image_phase soft: weight of the total variation of the phase's part, times the noise level."""
    tolerance: float = Field(default=0.0, ge=0, lt=1)
    """Stop early when the image changes by less than this, relative to its norm; 0 runs all iterations."""
    time_limit_s: float | None = Field(default=None, gt=0)
    """Most seconds per slice; a slice that is stopped by it is labelled. null: no limit."""


class PriorWeightSettings(Section):
    """How strongly the prior counts against the measured data (lambda)."""

    rule: Literal["prior", "noise", "fit", "fixed"] = "prior"
    """prior: as the prior's card says; noise: from the measured noise; fit: the card's fit; fixed: value."""
    value: float | None = Field(default=None, gt=0)
    """The weight itself, for the rule 'fixed' only."""
    factor: float = Field(default=1.0, gt=0)
    """Multiplies the weight that the rule gives."""

    @model_validator(mode="after")
    def _value_belongs_to_fixed(self) -> "PriorWeightSettings":
        if (self.rule == "fixed") != (self.value is not None):
            needs = (
                "needs a value: set prior_weight.value"
                if self.rule == "fixed"
                else "takes no value: remove it"
            )
            raise ValueError(f"the rule '{self.rule}' {needs}")
        return self


class NoiseSettings(Section):
    """How the noise level is known."""

    source: Literal["readouts", "data", "prewhitened"] = "readouts"
    """readouts: prewhiten with the noise readouts, else estimate; data: estimate; prewhitened: it is 1."""
    cache: str | None = Field(default=None, min_length=1)
    """Folder for noise measurements that later scans name as theirs (measurementDependency). null: none."""


class CoilCompressionSettings(Section):
    """Fewer virtual coils in place of many (SVD, after prewhitening)."""

    use: Literal["auto", "always", "never"] = "auto"
    """auto: for scans of more than 16 coils."""
    energy: float = Field(default=0.995, gt=0, le=1)
    """As few virtual coils as hold this part of the energy."""
    virtual_coils: int | None = Field(default=None, ge=1, le=1024)
    """So many virtual coils instead. null: by energy."""


class ScanSettings(Section):
    """How readouts become k-space."""

    calibration_in_data: bool = True
    """Use lines that are flagged as calibration only as data, too."""
    keep_averages: bool = False
    """Make an image of each average instead of one of their mean."""


class TrajectorySettings(Section):
    """How non-Cartesian readouts (radial, spiral, ...) become images."""

    units: Literal[
        "auto",
        "cycles_per_pixel",
        "cycles_per_fov",
        "cycles_per_encoded_fov",
        "cycles_per_m",
        "rad_per_m",
    ] = "auto"
    """Units of the trajectories in the readouts. auto: recognised from their range and the header."""
    delay_correction: bool = True
    """Shift radial spokes to where they cross, which undoes the delays of the gradients."""
    window: int | None = Field(default=None, ge=1, le=65535)
    """Readouts of each frame of a real-time series. null: images are told apart by the scan's counters."""
    window_step: int | None = Field(default=None, ge=1, le=65535)
    """Readouts from the start of a frame to that of the next. null: as many as window."""

    @model_validator(mode="after")
    def _step_belongs_to_window(self) -> "TrajectorySettings":
        if self.window is None and self.window_step is not None:
            raise ValueError("window_step is set without a window; set trajectory.window, too")
        return self


class OutputSettings(Section):
    """How images leave."""

    images: list[ImageComponent] = Field(default=["magnitude"], min_length=1)
    """What is sent of each image, a series of each: any of magnitude, phase, complex, real."""
    pixel_type: Literal["auto", "float", "uint16", "int16"] = "auto"
    """auto: float, but int16 (0 to 4095) for peers that send JSON parameters (FIRE, OpenRecon)."""

    @model_validator(mode="after")
    def _can_be_sent(self) -> "OutputSettings":
        if len(set(self.images)) < len(self.images):
            raise ValueError(f"the images {', '.join(self.images)} name one kind twice; name each once")
        if "complex" in self.images and self.pixel_type in ("uint16", "int16"):
            raise ValueError(
                f"complex images have no {self.pixel_type} pixels; set pixel_type to float or auto, or leave "
                "complex out of images"
            )
        return self


class PosteriorSettings(Section):
    """The uncertainty series: mean and standard deviation of the posterior, by sampling."""

    enabled: bool = True
    """Whether to send uncertainty series after the images."""
    sampler: SamplerName = "kinetic"
    """How the chains move."""
    chains: int = Field(default=2, ge=1, le=64)
    """Chains per slice, from different starts; where they disagree, the series are labelled."""
    warmup: int = Field(default=40, ge=0, le=100_000)
    """Steps of each chain that are not used."""
    draws: int = Field(default=1000, ge=2, le=100_000)
    """Images of each chain that are used."""
    thin: int = Field(default=1, ge=1, le=1000)
    """Steps from one of them to the next."""
    time_limit_s: float | None = Field(default=30.0, gt=0)
    """Most seconds of sampling per slice; what it cuts too short is labelled. null: no limit."""


class Settings(Section):
    """All that a user may choose. The defaults need no configuration."""

    prior: str = Field(default="brain-local", min_length=1)
    """Name of a prior, or the folder that holds it; 'tv' is total variation."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a CUDA device where there is one."""
    image_phase: Literal["prior", "real", "soft", "free"] = "prior"
    """prior: as the card says; real: the coil maps carry all phase; soft: the image keeps some; free: any."""
    coils: Literal["joint", "fixed"] = "joint"
    """joint: the coil maps are estimated with the image; fixed: the map of a single coil is 1."""
    solver: SolverSettings = SolverSettings()
    prior_weight: PriorWeightSettings = PriorWeightSettings()
    noise: NoiseSettings = NoiseSettings()
    coil_compression: CoilCompressionSettings = CoilCompressionSettings()
    scan: ScanSettings = ScanSettings()
    trajectory: TrajectorySettings = TrajectorySettings()
    output: OutputSettings = OutputSettings()
    posterior: PosteriorSettings = PosteriorSettings()
    batch_slices: int = Field(default=1, ge=1, le=1024)
    """Most slices reconstructed together, of those that wait; more is faster on a GPU. None is waited for."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads. null: as many as the environment gives."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the noise in the prior's gradient, and of the sampling."""
    rules: list[ProtocolRule] = Field(default=[])
    """What holds for scans of some kind, told by their headers: the first rule that fits a scan."""

    @model_validator(mode="after")
    def _rules_differ(self) -> "Settings":
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"rules: the name {twice[0]} stands twice; give each rule a name of its own")
        open_ = [rule.name for rule in self.rules[:-1] if not rule.when.given()]
        if open_:
            raise ValueError(
                f"rules: the rule {open_[0]} has no conditions, so it fits every scan; put it last"
            )
        return self


def load_settings(path: Path | None = None, overrides: Iterable[tuple[str, Any]] = ()) -> Settings:
    """Read a YAML configuration (none: the defaults) and lay the overrides over it."""
    return settings_from_files([] if path is None else [path], overrides)


def settings_from_files(
    paths: Sequence[Path], overrides: Iterable[tuple[str, Any]] = (), *, held: Sequence[str] = ()
) -> Settings:
    """Read YAML configurations, each laid over the ones before, and the overrides over all.

    Overrides, and keys of files after the one with the rules, hold whatever a rule says.

    Parameters
    ----------
    held
        Keys that the last of the files may not set.

    Raises
    ------
    SettingsError
        With every fault of the file (of the last one, where there are several), or of the overrides.
    """
    values: dict[str, Any] = {}
    faults = []
    above_rules: set[str] = set()
    for path in paths:
        read = dict(dotted(read_yaml_mapping(path), Settings))
        values = with_values(values, read.items())
        above_rules = set() if "rules" in read else above_rules | read.keys()
        faults = [_not_held(key) for key in read if key in held]
    overrides = tuple(overrides)
    source = str(paths[-1]) if paths else "settings"
    if faults:
        raise SettingsError(told(faults, source))
    settings = checked(Settings, with_values(values, overrides), source)
    above_rules |= {key for key, _ in overrides}
    rules = [rule.without(above_rules) for rule in settings.rules]
    if faults := [
        fault for number, rule in enumerate(rules) for fault in _rule_faults(settings, number, rule)
    ]:
        raise SettingsError(told(faults, source))
    return settings.model_copy(update={"rules": rules})


def with_overrides(
    settings: Settings, overrides: Iterable[tuple[str, Any]], source: str = "settings"
) -> Settings:
    """Return the settings with some keys replaced, checked as a whole again."""
    return checked(Settings, with_values(settings.model_dump(), overrides), source)


def with_rule(settings: Settings, rule: ProtocolRule | None) -> Settings:
    """Return what holds for a scan that a rule fits (None: that none fits); no rules are left in it."""
    changes = () if rule is None else rule.settings.items()
    return with_overrides(settings, [("rules", []), *changes], "settings" if rule is None else rule.name)


def _rule_faults(settings: Settings, number: int, rule: ProtocolRule) -> list[str]:
    where = f"rules[{number}] ({rule.name}).settings."
    forbidden = [key for key in rule.settings if key in (*HELD_FROM_START, "rules")]
    if forbidden:
        return [f"{where}{_not_held(key)}" for key in forbidden]
    try:
        with_rule(settings, rule)
    except SettingsError as error:
        return [f"{where}{line.strip()}" for line in str(error).splitlines()[1:]]
    return []


def _not_held(key: str) -> str:
    return f"{key}: it cannot be set here; it belongs into the server's own configuration."
