"""The score-matching loss against its closed form for Gaussian images."""

import pytest
import torch

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.training.objectives import score_matching_loss


class _Gaussian(LocalEnergyNetwork):
    """R = |x|^2 / (2 (a^2 + level^2)) times a factor: exact for white images of variance a^2 at factor 1."""

    def __init__(self, a: float, factor: float) -> None:
        super().__init__(LocalEnergySizes(widths=(2, 3)))
        self.a, self.factor = a, factor

    def value_and_gradient(self, image, noise_level, *, want_gradient=True):
        del want_gradient
        precision = self.factor / (self.a**2 + noise_level**2)
        value = precision * image.square().sum(dim=(1, 2, 3)) / 2
        return value, precision[:, None, None, None] * image


@pytest.mark.parametrize("factor", [0.0, 0.7, 1.0, 1.3])
def test_the_loss_of_a_gaussian_is_its_closed_form(factor, generator):
    a, n = 0.5, 40
    level = torch.tensor([0.1, 0.3, 0.8])
    clean = a * torch.randn(3, 1, n, n, generator=generator)
    noise = torch.randn(3, 1, n, n, generator=generator)
    loss = score_matching_loss(_Gaussian(a, factor), clean, noise, level, 0)
    assert loss.shape == (3,)
    # E |k (x + s n) s / (a^2 + s^2) - n|^2 = k^2 r - 2 k r + 1 with r = s^2 / (a^2 + s^2)
    ratio = level**2 / (a**2 + level**2)
    expected = factor**2 * ratio - 2 * factor * ratio + 1
    assert loss.tolist() == pytest.approx(expected.tolist(), abs=5 * 2**0.5 / n)


def test_the_margin_leaves_the_rim_out(generator):
    clean = torch.zeros(2, 1, 12, 12)
    noise = torch.randn(2, 1, 12, 12, generator=generator)
    level = torch.tensor([0.1, 0.2])
    found = score_matching_loss(_Gaussian(0.5, 0.0), clean, noise, level, 3)
    inner = noise[..., 3:9, 3:9].square().mean(dim=(1, 2, 3))
    torch.testing.assert_close(found, inner)


def test_the_loss_trains_every_weight_of_a_local_energy(generator):
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(3, 4, 5), input_gain=2.0))
    clean, noise = (torch.randn(2, 1, 32, 32, generator=generator) for _ in range(2))
    loss = score_matching_loss(network, clean, noise, torch.tensor([0.1, 0.2]), 4).mean()
    loss.backward()
    touched = {name for name, p in network.named_parameters() if p.grad is not None and bool(p.grad.any())}
    untouched = {name for name, _ in network.named_parameters()} - touched
    # the embedding starts to matter once the modulations have left zero
    assert all(name.startswith("embed.") for name in untouched)
