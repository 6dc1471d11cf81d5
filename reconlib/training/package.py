"""From a finished training run to a prior package."""

from pathlib import Path

import torch

from reconlib.priors.card import LocalArchitecture, PriorCard, PriorWeightCard
from reconlib.priors.library import write_prior
from reconlib.training.datasets import ImageArchive
from reconlib.training.settings import TrainSettings
from reconlib.training.trainer import TrainResult


def package_trained(
    folder: Path,
    settings: TrainSettings,
    result: TrainResult,
    archive: ImageArchive,
    *,
    command: str,
    device: str,
) -> PriorCard:
    """Write weights and card of a finished run to a new folder.

    ``command`` is the command line that made the prior; ``device`` says on what, in words.
    """
    sizes, about = settings.network, settings.card
    card = PriorCard(
        name=settings.name,
        version=about.version,
        description=about.description,
        architecture=LocalArchitecture(
            kind="local", widths=sizes.widths, input_gain=sizes.input_gain, noise_level=about.noise_level
        ),
        temperature=1.0,
        gradient_noise_std=about.gradient_noise_std,
        image_phase=about.image_phase,
        prior_weight=PriorWeightCard(rule="noise", factor=about.prior_weight_factor),
        anatomy=about.anatomy,
        licence=about.licence,
        training={
            "command": command,
            "data": list(about.data),
            "n_images": len(archive.training),
            "n_validation_images": len(archive.validation),
            "settings": settings.model_dump(mode="json", exclude={"card", "name"}),
            "n_updates": result.n_updates,
            "hours": round(result.seconds / 3600, 2),
            "device": device,
            "torch": torch.__version__,
        },
        validation={
            "score_matching_loss_by_noise_level": {k: round(v, 4) for k, v in result.validation.items()}
        },
    )
    return write_prior(folder, card, dict(result.network.state_dict()))
