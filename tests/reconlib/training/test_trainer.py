"""A short run: the loss falls, the seed decides, pictures and log are written, the package can be loaded."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from small_run import blobs, run, same_weights, small_settings

from reconlib.energies.local import LocalEnergy
from reconlib.energies.paper import random_paper_network
from reconlib.priors.library import load_prior
from reconlib.priors.typicality import typicality
from reconlib.training.energy_percentiles import energy_percentiles
from reconlib.training.images import ImageSet
from reconlib.training.long_chains import long_chain_gap_of_run
from reconlib.training.networks import WarmStartError, as_energy, build_network
from reconlib.training.package import package_trained
from reconlib.training.trainer import TrainOutcome, TrainResult, train

CPU = torch.device("cpu")


def image_set() -> ImageSet:
    return ImageSet(
        training=blobs(5),
        validation=blobs(2, seed=6),
        n_training_subjects=3,
        n_validation_subjects=1,
        pixel_spacing_mm=(0.8, 1.1),
        source="7 images of 4 made-up subjects",
        orientation="axial",
    )


def package(folder: Path, settings, result: TrainResult):
    return package_trained(
        folder, settings, result, image_set(), command="train tiny.yaml", hardware="a test"
    )


def test_score_matching_lowers_the_loss_and_follows_the_seed(tmp_path):
    settings = small_settings(n_updates=20, bookkeeping={"report_every": 5, "validate_every": 20})
    seen = []
    first = run(settings, tmp_path / "first", on_progress=seen.append)
    assert first.n_updates == 20
    assert [progress.update for progress in seen] == list(range(1, 21))
    assert first.validation["0.1"] < 0.7, "1 is the loss of a constant energy"
    rows = [json.loads(line) for line in (tmp_path / "first" / "log.jsonl").read_text().splitlines()]
    reports = [row for row in rows if "loss" in row]
    assert [row["update"] for row in reports] == [5, 10, 15, 20]
    assert reports[-1]["loss"] < 0.7 * reports[0]["loss"]
    assert reports[0]["loss"] == pytest.approx(sum(progress.value for progress in seen[:5]) / 5)
    assert rows[-1]["validation 0.1"] == first.validation["0.1"]
    again = run(settings, tmp_path / "again")
    other = run(small_settings(n_updates=2, seed=1), tmp_path / "other")
    assert same_weights(first.network, again.network)
    assert not torch.equal(first.network.stem.weight, other.network.stem.weight)


def test_the_average_is_the_mean_of_the_weights_until_its_memory_is_full(tmp_path):
    settings = small_settings(
        n_updates=4, ema=1e-9, bookkeeping={"checkpoint_every": 1, "keep_checkpoints": 9}
    )
    result = run(settings, tmp_path)
    weights = [
        torch.load(path / "shared.pt", weights_only=True)["weights"]["stem.weight"]
        for path in sorted((tmp_path / "checkpoints").iterdir())
    ]
    assert len(weights) == 5
    torch.testing.assert_close(result.network.stem.weight, torch.stack(weights[1:]).mean(dim=0))


def test_whole_images_that_are_not_square_are_learned_from(tmp_path):
    settings = small_settings("maximum-likelihood", n_updates=2, data={"patch": None, "symmetries": "flips"})
    images = blobs(4)[:, :, :21].contiguous()
    result = train(settings, images[:3], images[3:], folder=tmp_path)
    assert result.outcome is TrainOutcome.FINISHED
    assert result.long_chain_gap is not None


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["maximum-likelihood", "score-matching"])
def test_pictures_are_drawn_and_change_nothing(objective, tmp_path):
    with_pictures = small_settings(objective, bookkeeping={"picture_every": 12})
    result = run(with_pictures, tmp_path / "with")
    without = run(small_settings(objective), tmp_path / "without")
    assert same_weights(result.network, without.network)
    plots = tmp_path / "with" / "plots"
    assert sorted(path.name for path in plots.iterdir()) == ["curves.png", "samples-00000012.png"]
    assert imread(plots / "curves.png").shape[1] > 500
    # a grid of 4 x 4 patches of 16 pixels with lines between, each pixel 8 x 8
    samples = imread(plots / "samples-00000012.png")
    assert samples.shape[:2] == (8 * 67, 8 * 67)
    assert float(np.ptp(samples[..., 0])) > 0.5
    (events,) = (tmp_path / "with" / "tensorboard").iterdir()
    assert b"gradient_norm" in events.read_bytes()
    assert not (tmp_path / "without" / "plots").exists()


@pytest.mark.parametrize("objective", ["score-matching", "maximum-likelihood"])
def test_a_trained_network_becomes_a_prior_that_loads(objective, tmp_path, generator):
    settings = small_settings(objective, n_updates=2)
    result = run(settings, tmp_path / "run")
    card = package(tmp_path / "tiny", settings, result)
    prior = load_prior(tmp_path / "tiny", CPU)
    assert prior.card == card
    assert card.training.command == "train tiny.yaml"
    assert (card.training.n_images, card.training.n_validation_images) == (5, 2)
    assert (card.training.n_subjects, card.training.n_validation_subjects) == (3, 1)
    assert card.training.objective == objective
    assert card.training.data[0].source == "7 images of 4 made-up subjects"
    assert card.input.pixel_spacing_mm == (0.8, 1.1)
    assert (card.input.matrix, card.input.scaling) == ("any", "percentile")
    assert card.input.values == "signed", "a quarter of the images turn signs"
    assert card.temperature == 1.0
    assert ("energy_gap_to_long_chains" in card.validation) == (objective == "maximum-likelihood")
    image = torch.rand(1, 1, 20, 23, generator=generator)
    expected = LocalEnergy(result.network, card.architecture.noise_level).value(image)
    torch.testing.assert_close(prior.energy.value(image), expected)


def test_the_card_holds_the_energies_of_the_validation_images(tmp_path):
    settings = small_settings(n_updates=2, card={"gradient_noise_std": 0.0})
    result = run(settings, tmp_path / "run")
    card = package(tmp_path / "tiny", settings, result)
    found = card.energy_percentiles
    assert found.resolutions == (1.0, 0.9)
    assert found == energy_percentiles(
        LocalEnergy(result.network, 0.015), blobs(2, seed=6), noise_std=0.0, resolutions=(1.0, 0.9)
    )
    assert found.per_pixel[0.0] < found.per_pixel[100.0]
    for image in blobs(2, seed=6).float():
        assert typicality(load_prior(tmp_path / "tiny", CPU), image[None, None]).word != "outside"


def test_nothing_in_a_card_names_a_folder_or_a_patient(tmp_path):
    run(small_settings(n_updates=1), tmp_path / "run")
    warm = tmp_path / "secret-place" / "first"
    package(warm, small_settings(n_updates=1), run(small_settings(n_updates=1), tmp_path / "run2"))
    settings = small_settings(
        n_updates=1, warm_start=str(warm), images={"files": "*Doe*", "validation_subjects": ["Jane Doe"]}
    )
    package(tmp_path / "tiny", settings, run(settings, tmp_path / "run3"))
    text = (tmp_path / "tiny" / "card.yaml").read_text()
    assert "warm_start: first" in text
    assert "Doe" not in text
    assert str(tmp_path) not in text
    assert "secret" not in text


@pytest.mark.parametrize("objective", ["score-matching", "maximum-likelihood"])
def test_a_warm_start_begins_with_the_weights_of_the_prior(objective, tmp_path):
    first = run(small_settings(n_updates=2), tmp_path / "run")
    package(tmp_path / "first", small_settings(), first)
    settings = small_settings(objective, warm_start=str(tmp_path / "first"))
    network = build_network(settings)
    assert same_weights(network, first.network)
    assert all(weight.requires_grad for weight in network.parameters())
    shared = run(settings, tmp_path / "second", stop=lambda: True)
    assert shared.n_updates == 1
    begun = torch.load(tmp_path / "second" / "checkpoints" / "00000000-0" / "shared.pt", weights_only=True)[
        "weights"
    ]
    assert torch.equal(begun["stem.weight"], first.network.stem.weight)


def test_a_warm_start_needs_the_same_architecture(tmp_path):
    package(tmp_path / "first", small_settings(), run(small_settings(n_updates=1), tmp_path / "run"))
    message = (
        "has the architecture {'kind': 'local', 'widths': (4, 6), 'input_gain': 10.0}, but the run trains "
        "local, widths [6, 10], input_gain 10."
    )
    for changes, text in (
        ({"network": {"widths": (6, 10)}}, message),
        ({"architecture": "paper"}, "but the run trains paper."),
    ):
        settings = small_settings(warm_start=str(tmp_path / "first"), **changes)
        with pytest.raises(WarmStartError, match=re.escape(text)):
            build_network(settings)


def test_an_energy_follows_the_weights_and_leaves_their_gradients_alone(generator):
    settings = small_settings()
    network = build_network(settings)
    energy = as_energy(network, settings)
    image = torch.rand(2, 1, 16, 16, generator=generator)
    before = energy.value(image)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    network(image, torch.tensor([0.015])).sum().backward()
    optimiser.step()
    after = energy.value(image)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, network(image, torch.tensor([0.015])).detach())
    assert all(weight.requires_grad for weight in network.parameters())
    loaded = build_network(small_settings(seed=4)).state_dict()
    network.load_state_dict(loaded)
    torch.testing.assert_close(energy.value(image), network(image, torch.tensor([0.015])).detach())


@pytest.mark.slow
def test_the_papers_network_takes_a_step_of_its_objective(generator):
    from reconlib.training.objectives import EnergyGap, score_matching_loss

    network = random_paper_network(generator)
    images = torch.rand(1, 1, 320, 320, generator=generator)
    noise = torch.randn(images.shape, generator=generator)
    EnergyGap(network, 0.015)(images, images + 0.1 * noise).backward()
    assert all(bool(weight.grad.any()) for weight in network.parameters())
    with torch.no_grad():
        loss = score_matching_loss(network, images, noise, torch.tensor([0.1]), 0, 1e-3)
    assert bool(torch.isfinite(loss).all())


def test_long_chains_of_a_run_follow_its_settings():
    settings = small_settings("maximum-likelihood", data={"margin": 3})
    network = build_network(settings)
    first, chains = long_chain_gap_of_run(network, settings, blobs(2), CPU, n_chains=4)
    again, _ = long_chain_gap_of_run(network, settings, blobs(2), CPU, n_chains=4)
    assert first == again
    assert chains.shape == (4, 1, 16, 16)
