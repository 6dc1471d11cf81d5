"""A short run: the loss falls, the seed decides, the package can be loaded."""

import json

import numpy as np
import pytest
import torch

from reconlib.priors.library import load_prior
from reconlib.training.datasets import ImageArchive
from reconlib.training.package import package_trained
from reconlib.training.settings import TrainSettings
from reconlib.training.trainer import TrainResult, train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def archive() -> ImageArchive:
    """Smooth blobs on a dark ground, 40 x 40."""
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:40, :40]
    images = [
        sum(np.exp(-((y - a) ** 2 + (x - b) ** 2) / 90) for a, b in rng.integers(5, 35, (3, 2)))
        for _ in range(6)
    ]
    stored = np.stack([np.sqrt(one / one.max()) * 255 for one in images]).astype(np.uint8)
    return ImageArchive(torch.from_numpy(stored[:4]), torch.from_numpy(stored[4:]))


def settings(**changes) -> TrainSettings:
    return TrainSettings.model_validate(
        {
            "name": "tiny",
            "network": {"widths": (6, 8), "input_gain": 10.0},
            "data": {"patch": 32, "fourier_crop": (40,)},
            "n_updates": 30,
            "batch": 4,
            "learning_rate": 0.01,
            "warmup_updates": 3,
            "noise_range": (0.05, 0.2),
            "ema": 0.3,
            **changes,
        }
    )


def test_training_lowers_the_loss_and_follows_the_seed(archive, tmp_path):
    log = tmp_path / "log.jsonl"
    losses = []
    first = train(
        settings(),
        archive,
        device=CPU,
        log=log,
        report_every=5,
        on_progress=lambda progress, _: losses.append(progress.loss),
    )
    assert first.n_updates == 30
    assert losses[-1] < 0.7 * losses[0]
    assert first.validation["0.1"] < 0.7, "1 is the loss of a constant energy"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["update"] for row in rows] == [5, 10, 15, 20, 25, 30]
    assert rows[-1]["validation_0.1"] == first.validation["0.1"]
    again = train(settings(), archive, device=CPU)
    other = train(settings(seed=1), archive, device=CPU)
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[name])
    assert not torch.equal(first.network.stem.weight, other.network.stem.weight)


def test_training_stops_when_time_is_up(archive):
    asked = iter([False, False, True])
    result = train(settings(), archive, device=CPU, out_of_time=lambda: next(asked))
    assert result.n_updates == 2


def test_a_run_that_diverges_says_what_to_lower(archive):
    with pytest.raises(FloatingPointError, match=r"lower learning_rate \(now 1e\+30\)"):
        train(settings(learning_rate=1e30, warmup_updates=1), archive, device=CPU, report_every=5)


def test_a_trained_network_becomes_a_prior_that_loads(archive, tmp_path, generator):
    result: TrainResult = train(settings(n_updates=2), archive, device=CPU)
    card = package_trained(
        tmp_path / "tiny", settings(), result, archive, command="train tiny.yaml", device="a test"
    )
    prior = load_prior(tmp_path / "tiny", CPU)
    assert prior.card == card
    assert card.training["command"] == "train tiny.yaml"
    assert card.training["n_images"] == 4
    image = torch.rand(1, 1, 20, 23, generator=generator)
    expected = result.network(image, torch.tensor([card.architecture.noise_level])).detach()
    torch.testing.assert_close(prior.energy.value(image), expected)
