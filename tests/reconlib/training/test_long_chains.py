"""Long chains: where they end, and that maximum likelihood brings them to the data."""

import pytest
import torch
from small_run import blobs, merged, small_settings
from torch import nn

from reconlib.energies.network import NetworkEnergy
from reconlib.training.long_chains import long_chain_gap, long_chain_gap_of_run
from reconlib.training.networks import build_network
from reconlib.training.trainer import train


class _Gaussian(nn.Module):
    """R = T k |x|^2 / 2."""

    def __init__(self, k: float) -> None:
        super().__init__()
        self.k = k

    def forward(self, image):
        """Energy of images."""
        return self.k * image.square().sum(dim=(1, 2, 3)) / 2


@pytest.mark.parametrize("temperature", [1.0, 0.01])
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_the_gap_of_a_gaussian_is_its_closed_form(factor, temperature, generator):
    # data of variance 1, an energy of precision k: R / T is k / 2 per pixel for the data, 1 / 2 for the
    # chains (up to the step's bias, 1 / (1 - zeta k / 4))
    energy = NetworkEnergy(_Gaussian(factor * temperature), temperature)
    data = torch.randn(64, 1, 12, 15, generator=generator)
    zeta = 0.05
    gap, chains = long_chain_gap(
        energy, data, 3 * torch.ones(64, 1, 12, 15), step_size=zeta, n_steps=600, generator=generator
    )
    expected = factor / 2 - 0.5 / (1 - zeta * factor / 4)
    assert gap == pytest.approx(expected, abs=5 * 2**0.5 * factor / (64 * 180) ** 0.5)
    assert chains.shape == data.shape
    assert float(chains.var()) == pytest.approx(1 / factor / (1 - zeta * factor / 4), rel=0.1)


@pytest.mark.slow
def test_maximum_likelihood_brings_long_chains_to_the_data(tmp_path):
    """Images of 32 x 32: the gap to chains ten times longer than in training falls at least threefold.

    From about 4 T per pixel, it was 0.08 after 250 updates.
    """
    settings = small_settings("maximum-likelihood")
    changes = {
        "network": {"widths": (12, 16, 24)},
        "data": {"patch": None, "symmetries": "all", "signed": 0.0, "intensity": (1.0, 1.0)},
        "n_updates": 120,
        "batch": 16,
        "card": {"noise_level": 0.05},
        "optimiser": {"learning_rate": 2e-3, "warmup_updates": 20, "gradient_clip": None},
        "ema": 0.05,
        "maximum_likelihood": {
            "buffer_size": 200,
            "keep_chance": 0.97,
            "step_noise": 0.025,
            "least_steps": 10,
            "most_steps": 20,
        },
        "bookkeeping": {"validate_every": 1000, "checkpoint_every": 1000, "report_every": 50},
    }
    settings = type(settings).model_validate(merged(settings.model_dump(), changes))
    training, held_out = blobs(200, seed=1, side=32), blobs(64, seed=2, side=32)
    torch.manual_seed(settings.seed)
    cpu = torch.device("cpu")
    before, _ = long_chain_gap_of_run(build_network(settings), settings, held_out, cpu)
    result = train(settings, training, held_out, folder=tmp_path)
    assert abs(result.long_chain_gap) < abs(before) / 3
