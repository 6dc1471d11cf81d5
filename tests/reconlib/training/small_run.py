"""A training run that takes a second: images, settings, and a way to look at the result."""

from pathlib import Path

import numpy as np
import torch

from reconlib.training.settings import TrainSettings
from reconlib.training.trainer import TrainResult, train


def blobs(n: int, seed: int = 5, side: int = 24) -> torch.Tensor:
    """Smooth blobs on a dark ground, float16 (n, side, side)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    width = 90 * (side / 40) ** 2
    images = [
        sum(
            np.exp(-((y - a) ** 2 + (x - b) ** 2) / width)
            for a, b in rng.uniform(side / 8, side * 7 / 8, (3, 2))
        )
        for _ in range(n)
    ]
    return torch.from_numpy(np.stack([one / one.max() for one in images])).half()


def merged(first: dict, second: dict) -> dict:
    """Lay the second over the first, section by section."""
    both = dict(first)
    for key, value in second.items():
        inside = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if inside else value
    return both


def small_settings(objective: str = "score-matching", **changes) -> TrainSettings:
    values = {
        "name": "tiny",
        "objective": objective,
        "network": {"widths": (4, 6)},
        "data": {
            "patch": 16,
            "margin": 2,
            "resolutions": (1.0, 0.9),
            "signed": 0.25,
            "intensity": (0.5, 1.2),
        },
        "n_updates": 12,
        "batch": 4,
        "optimiser": {"learning_rate": 0.01, "warmup_updates": 3},
        "ema": 0.3,
        "score_matching": {"noise_range": (0.05, 0.2)},
        "maximum_likelihood": {
            "buffer_size": 24,
            "least_steps": 2,
            "most_steps": 20,
            "growth_updates": 50,
            "keep_chance": 0.7,
        },
        "guard": {"gap_range": (-1000.0, 1000.0), "sample_range": (-100.0, 100.0)},
        "bookkeeping": {
            "report_every": 4,
            "validate_every": 6,
            "checkpoint_every": 5,
            "picture_every": None,
        },
    }
    return TrainSettings.model_validate(merged(values, changes))


def run(settings: TrainSettings, folder: Path, **arguments) -> TrainResult:
    return train(settings, blobs(5), blobs(2, seed=6), folder=folder, **arguments)


def same_weights(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    theirs = second.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in first.state_dict().items())
