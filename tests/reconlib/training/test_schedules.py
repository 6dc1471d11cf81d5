"""Learning rate and chain length over the updates, and the values of the paper."""

import math
from pathlib import Path

import pytest
import torch
import yaml

from reconlib.training.networks import build_network
from reconlib.training.optimisers import make_optimiser
from reconlib.training.schedules import langevin_steps, learning_rate
from reconlib.training.settings import MaximumLikelihoodSettings, OptimiserSettings, TrainSettings

CONFIGS = Path(__file__).parents[3] / "config" / "train"


def rates(n_updates: int, **settings) -> list[float]:
    chosen = OptimiserSettings(**settings)
    return [learning_rate(chosen, update, n_updates) for update in range(n_updates)]


def test_the_rate_rises_over_the_warm_up_and_falls_along_a_cosine():
    found = rates(110, learning_rate=2.0, warmup_updates=10)
    assert found[:10] == pytest.approx([0.2 * (i + 1) for i in range(10)])
    assert found[10:] == pytest.approx([1 + math.cos(math.pi * i / 100) for i in range(100)])


def test_the_rate_is_halved_at_each_milestone():
    found = rates(30, learning_rate=1.0, warmup_updates=0, schedule="milestones", milestones=(5, 20))
    assert found == [1.0] * 5 + [0.5] * 15 + [0.25] * 10


def test_the_rate_can_stay():
    assert rates(5, learning_rate=0.3, warmup_updates=2, schedule="constant") == [0.15, 0.3, 0.3, 0.3, 0.3]


def test_chains_grow_as_the_paper_says():
    paper = MaximumLikelihoodSettings(least_steps=1)
    found = [langevin_steps(paper, h) for h in range(30_000)]
    assert found == [max(1, math.ceil(500 * (1 - math.exp(-h / 1000)))) for h in range(30_000)]
    assert langevin_steps(MaximumLikelihoodSettings(least_steps=12), 3) == 12


def test_milestones_without_their_schedule_are_refused():
    with pytest.raises(ValueError, match="milestones need schedule: milestones, not cosine"):
        OptimiserSettings(milestones=(3,))


def test_the_papers_config_has_the_papers_values():
    text = (CONFIGS / "paper-knee.yaml").read_text()
    settings = TrainSettings.model_validate(yaml.safe_load(text))
    assert settings.objective == "maximum-likelihood"
    assert settings.architecture == "paper"
    assert (settings.batch, settings.n_updates) == (50, 27_000)
    optimiser, chains = settings.optimiser, settings.maximum_likelihood
    assert (optimiser.kind, optimiser.betas, optimiser.learning_rate) == ("adabelief", (0.9, 0.999), 5e-4)
    assert (optimiser.schedule, optimiser.milestone_factor) == ("milestones", 0.5)
    assert optimiser.milestones == (500, 2000, 3000, 5000, 7000)
    assert (optimiser.warmup_updates, optimiser.gradient_clip, settings.ema) == (0, None, 1.0)
    assert (chains.step_noise, settings.resolved_data_noise) == (7.5e-3, 0.015)
    assert (chains.most_steps, chains.growth_updates) == (500, 1000)
    assert (chains.buffer_size, chains.keep_chance, chains.shuffle_every) == (8000, 0.99, 2)
    # T = eps^2 / 2 makes the Langevin step x - grad R + eps n
    assert settings.resolved_temperature == pytest.approx(2.8125e-5)
    assert (settings.data.patch, settings.data.intensity, settings.data.signed) == (None, (1.0, 1.0), 0.0)
    assert settings.data.symmetries == "none"
    assert learning_rate(optimiser, 26_999, 27_000) == pytest.approx(5e-4 / 32)
    assert sum(p.numel() for p in build_network(settings).parameters()) == 21_350_640


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs_are_valid(path):
    assert TrainSettings.model_validate(yaml.safe_load(path.read_text())).name == path.stem


def test_adabelief_is_adabelief():
    # Zhuang et al. 2020, algorithm 2, written out for one number
    gradients, rate, (b1, b2), epsilon = [0.5, -1.0, 0.25, 2.0], 0.1, (0.9, 0.999), 1e-16
    x, m, s = 1.0, 0.0, 0.0
    for t, g in enumerate(gradients, start=1):
        m = b1 * m + (1 - b1) * g
        s = b2 * s + (1 - b2) * (g - m) ** 2 + epsilon
        x -= rate * (m / (1 - b1**t)) / (math.sqrt(s / (1 - b2**t)) + epsilon)
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    settings = OptimiserSettings(kind="adabelief", learning_rate=rate, weight_decay=0.0)
    optimiser = make_optimiser([weight], settings)
    for g in gradients:
        weight.grad = torch.tensor([g], dtype=torch.float64)
        optimiser.step()
    assert weight.item() == pytest.approx(x, rel=1e-9)


def test_adamw_decays_weights_apart_from_the_gradient():
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    optimiser = make_optimiser([weight], OptimiserSettings(learning_rate=0.1, weight_decay=0.5))
    weight.grad = torch.zeros(1)
    optimiser.step()
    assert weight.item() == pytest.approx(2 * (1 - 0.1 * 0.5))
