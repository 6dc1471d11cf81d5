"""The published network: layout, names, value and gradient."""

import pytest
import torch
from torch.nn import functional

from reconlib.energies.network import NetworkEnergy
from reconlib.energies.paper import PaperNetwork, random_paper_network


@pytest.fixture(scope="module")
def network() -> PaperNetwork:
    return random_paper_network(torch.Generator().manual_seed(3))


def test_the_network_has_the_published_number_of_weights(network):
    assert sum(p.numel() for p in network.parameters()) == 21_350_640


def test_the_names_are_the_published_ones(network):
    assert list(network.state_dict()) == [f"convs.{i}.weight" for i in range(13)]


def straightforward(weights: dict[str, torch.Tensor], image: torch.Tensor) -> torch.Tensor:
    """Energy from raw weights: convolve, rectify, every second one strided."""
    x = image
    for i in range(12):
        x = functional.conv2d(x, weights[f"convs.{i}.weight"], stride=1 + i % 2, padding=1)
        x = torch.where(x > 0, x, 0.05 * x)
    assert x.shape[1:] == (1344, 5, 5)
    return (x * weights["convs.12.weight"]).sum(dim=(1, 2, 3)).abs()


def test_value_and_gradient_are_those_of_a_straightforward_evaluation(network, generator):
    energy = NetworkEnergy(network, 2.0)
    image = torch.rand(1, 1, 320, 320, generator=generator)
    point = image.clone().requires_grad_(True)
    expected = straightforward(network.state_dict(), point)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), point)
    value, gradient = energy.value_and_gradient(image)
    assert value.shape == (1,)
    assert not value.requires_grad
    assert not image.requires_grad
    assert value.item() >= 0
    torch.testing.assert_close(value, expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-6)


def test_the_energy_is_never_negative(network, generator):
    image = torch.rand(1, 1, 320, 320, generator=generator)
    flipped = PaperNetwork()
    flipped.load_state_dict(network.state_dict())
    with torch.no_grad():
        flipped.convs[12].weight.neg_()
    values = [NetworkEnergy(one, 1.0).value(image).item() for one in (network, flipped)]
    assert values[0] > 0
    assert values[1] == pytest.approx(values[0], rel=1e-5)
