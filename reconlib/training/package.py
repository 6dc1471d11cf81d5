"""From a finished training run to a prior package."""

from pathlib import Path

import torch

from reconlib.priors.card import (
    Architecture,
    EnergyPercentiles,
    InputCard,
    LocalArchitecture,
    PaperArchitecture,
    PriorCard,
    PriorWeightCard,
    TrainingCard,
    TrainingData,
)
from reconlib.priors.library import write_prior
from reconlib.training.energy_percentiles import energy_percentiles
from reconlib.training.images import ImageSet
from reconlib.training.networks import as_energy
from reconlib.training.settings import TrainSettings
from reconlib.training.trainer import TrainResult

_OBJECTIVES = {"score-matching": "score matching", "maximum-likelihood": "maximum likelihood"}
_ARCHITECTURES = {"local": "local energy", "paper": "global energy (network of Zach, Knoll and Pock)"}
_NAMES_OF_FILES = {"files", "exclude", "series", "subject_pattern", "validation_subjects"}
"""Image settings that may name patients or machines: they stay out of the card."""


def package_trained(
    folder: Path,
    settings: TrainSettings,
    result: TrainResult,
    images: ImageSet,
    *,
    command: str,
    hardware: str,
) -> PriorCard:
    """Write weights and card of a finished run to a new folder.

    ``command`` is the command line that made the prior; ``hardware`` says on what, in words. Neither they nor
    anything else in the card names a folder.
    """
    about = settings.card
    words = f"{_ARCHITECTURES[settings.architecture]}, trained by {_OBJECTIVES[settings.objective]}"
    card = PriorCard(
        name=settings.name,
        version=about.version,
        description=about.description or words[0].upper() + words[1:],
        architecture=_architecture(settings),
        temperature=settings.resolved_temperature,
        gradient_noise_std=about.gradient_noise_std,
        symmetric_views=about.symmetric_views,
        image_phase=about.image_phase,
        input=_input(settings, images),
        prior_weight=PriorWeightCard(rule="noise", factor=about.prior_weight_factor),
        energy_percentiles=_energy_percentiles(settings, result, images),
        anatomy=about.anatomy,
        contrasts=about.contrasts,
        licence=about.licence,
        training=TrainingCard(
            data=_data(settings, images),
            n_images=len(images.training),
            n_subjects=images.n_training_subjects,
            n_validation_images=len(images.validation),
            n_validation_subjects=images.n_validation_subjects,
            objective=settings.objective,
            n_updates=result.n_updates,
            settings=_settings_without_paths(settings),
            hardware=hardware if result.processes == 1 else f"{result.processes} times {hardware}",
            hours=round(result.seconds / 3600, 2),
            command=command,
            torch=torch.__version__,
        ),
        validation=_validation(result),
    )
    return write_prior(folder, card, dict(result.network.state_dict()))


def _architecture(settings: TrainSettings) -> Architecture:
    if settings.architecture == "paper":
        return PaperArchitecture(kind="paper")
    sizes = settings.network
    return LocalArchitecture(
        kind="local",
        widths=sizes.widths,
        input_gain=sizes.input_gain,
        noise_level=settings.card.noise_level,
    )


def _input(settings: TrainSettings, images: ImageSet) -> InputCard:
    height, width = images.training.shape[-2:]
    return InputCard(
        matrix="any" if settings.architecture == "local" else (height, width),
        orientation=images.orientation,
        values="signed" if settings.data.signed else "magnitude",
        scaling=settings.images.scaling,
        percentile=settings.images.percentile,
        pixel_spacing_mm=images.pixel_spacing_mm,
    )


def _data(settings: TrainSettings, images: ImageSet) -> tuple[TrainingData, ...]:
    if not settings.card.data:
        n_subjects, n_images = images.n_training_subjects, len(images.training)
        return (TrainingData(source=images.source, subjects=n_subjects, images=n_images),)
    return tuple(TrainingData(source=one) if isinstance(one, str) else one for one in settings.card.data)


def _energy_percentiles(settings: TrainSettings, result: TrainResult, images: ImageSet) -> EnergyPercentiles:
    return energy_percentiles(
        as_energy(result.network, settings),
        images.validation,
        noise_std=settings.card.gradient_noise_std,
        resolutions=(1.0,) if settings.data.patch is None else settings.data.resolutions,
    )


def _validation(result: TrainResult) -> dict[str, object]:
    losses = {level: round(loss, 4) for level, loss in result.validation.items()}
    found: dict[str, object] = {"score_matching_loss_by_noise_level": losses}
    if result.long_chain_gap is not None:
        found["energy_gap_to_long_chains"] = {
            "value": float(f"{result.long_chain_gap:.4g}"),
            "unit": "T per pixel",
            "meaning": "mean R of validation images minus that of chains ten times longer than in training",
        }
    return found


def _settings_without_paths(settings: TrainSettings) -> dict[str, object]:
    kept = settings.model_dump(mode="json", exclude={"card", "name", "bookkeeping"})
    kept["images"] = settings.images.model_dump(mode="json", exclude=_NAMES_OF_FILES)
    if settings.warm_start is not None:
        kept["warm_start"] = Path(settings.warm_start).name
    return kept
