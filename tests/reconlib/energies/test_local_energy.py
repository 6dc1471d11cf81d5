"""The local energy: its hand-written gradient, its sizes, its noise level."""

import math

import pytest
import torch
from small_energies import random_local_network
from torch.nn import functional

from reconlib.energies import local, local_fast
from reconlib.energies.local import LocalEnergy, LocalEnergyNetwork
from reconlib.energies.protocol import Energy


@pytest.fixture
def network(generator) -> LocalEnergyNetwork:
    """Three resolutions, float64."""
    return random_local_network(generator, (3, 4, 5), torch.float64)


def written_out(network: LocalEnergyNetwork, image: torch.Tensor, level: float) -> torch.Tensor:
    """The formula of the module's text for one level, from the raw weights, without padding."""
    w = dict(network.state_dict())
    log_level = math.log(level / 0.03)
    e = torch.tensor([log_level, log_level**2 / 2], dtype=torch.float64)
    e = functional.silu(w["embed.0.weight"] @ e + w["embed.0.bias"])
    e = functional.silu(w["embed.2.weight"] @ e + w["embed.2.bias"])

    def modulate(x: torch.Tensor, name: str) -> torch.Tensor:
        both = w[f"{name}.weight"] @ e + w[f"{name}.bias"]
        n = len(both) // 2
        return x * (1 + both[:n, None, None]) + both[n:, None, None]

    def potential(f: torch.Tensor, name: str) -> torch.Tensor:
        return (w[name].exp()[:, None, None] * ((1 + f**2) ** 0.5 - 1)).sum(dim=(1, 2, 3))

    f = modulate(functional.conv2d(2.0 * image, w["stem.weight"], padding=2), "modulate_stem")
    total, h = potential(f, "stem_log_weight"), functional.silu(f)
    for i in range(2):
        at = f"levels.{i}."
        down = functional.conv2d(h, w[at + "down.weight"], stride=2, padding=1)
        u = functional.silu(modulate(down, at + "modulate_down"))
        v = functional.conv2d(u, w[at + "first.weight"], padding=1)
        v = functional.silu(modulate(v, at + "modulate_first"))
        h = u + functional.conv2d(v, w[at + "second.weight"], padding=1)
        f = modulate(functional.conv2d(h, w[at + "read_out.weight"]), at + "modulate_read_out")
        total = total + potential(f, at + "log_weight")
    return total * 0.03 / level


@pytest.mark.parametrize("grid", [(16, 20), (37, 50), (9, 8)], ids=str)
def test_the_gradient_is_autograds(network, grid, generator):
    image = torch.randn(2, 1, *grid, dtype=torch.float64, generator=generator, requires_grad=True)
    level = torch.tensor([0.01, 0.11], dtype=torch.float64)
    value, gradient = network.value_and_gradient(image, level)
    (expected,) = torch.autograd.grad(value.sum(), image)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


def test_the_value_is_the_formula(network, generator):
    image = torch.randn(2, 1, 16, 20, dtype=torch.float64, generator=generator)
    for level in (0.01, 0.03, 0.2):
        found = network(image, torch.tensor([level], dtype=torch.float64))
        torch.testing.assert_close(found, written_out(network, image, level), rtol=1e-12, atol=0)


def test_an_odd_size_is_padded_with_zeros_on_both_sides(network, generator):
    image = torch.randn(1, 1, 14, 19, dtype=torch.float64, generator=generator)
    padded = functional.pad(image, (0, 1, 1, 1))
    level = torch.tensor([0.02], dtype=torch.float64)
    torch.testing.assert_close(network(image, level), network(padded, level), rtol=1e-12, atol=0)


def test_an_energy_is_the_network_at_its_noise_level(network, generator):
    energy = LocalEnergy(network, 0.05, 2.0)
    assert isinstance(energy, Energy)
    assert energy.temperature == 2.0
    image = 0.2 * torch.randn(2, 1, 13, 22, dtype=torch.float64, generator=generator)
    value, gradient = energy.value_and_gradient(image)
    assert gradient.shape == image.shape
    assert torch.equal(energy.value(image), value)
    level = torch.full((2,), 0.05, dtype=torch.float64)
    point = image.clone().requires_grad_(True)
    expected = network(point, level)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), point)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("grid", "padding"), [((16, 20), (0, 0, 0, 0)), ((7, 5), (1, 2, 0, 3))], ids=str)
def test_the_stem_on_a_cpu_is_the_convolution_of_libraries(grid, padding, generator):
    image = torch.randn(2, 1, *grid, dtype=torch.float64, generator=generator)
    weights = torch.randn(3, 1, 5, 5, dtype=torch.float64, generator=generator)
    bias = torch.randn(3, dtype=torch.float64, generator=generator)
    expected = functional.conv2d(functional.pad(image, padding), weights, bias, padding=2)
    found = local_fast._stem(image, weights, bias, padding)
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(
        local_fast._stem_adjoint(found, weights), functional.conv_transpose2d(expected, weights, padding=2)
    )


def test_the_energy_depends_on_the_noise_level(network, generator):
    image = torch.rand(1, 1, 16, 20, dtype=torch.float64, generator=generator)
    low, high = (level * LocalEnergy(network, level).value(image) for level in (0.01, 0.1))
    assert abs(low - high) > 1e-3 * abs(low)


def test_slices_do_not_see_each_other(network, generator):
    image = torch.randn(3, 1, 13, 22, dtype=torch.float64, generator=generator)
    level = torch.tensor([0.01, 0.04, 0.1], dtype=torch.float64)
    value, gradient = network.value_and_gradient(image, level)
    for i in range(3):
        alone_value, alone_gradient = network.value_and_gradient(image[i : i + 1], level[i : i + 1])
        torch.testing.assert_close(value[i : i + 1], alone_value)
        torch.testing.assert_close(gradient[i : i + 1], alone_gradient)


def test_many_images_are_evaluated_in_parts(network, generator, monkeypatch):
    image = 0.2 * torch.randn(5, 1, 40, 41, dtype=torch.float64, generator=generator)
    expected = network.value_and_gradient(image, torch.tensor([0.05], dtype=torch.float64))
    sizes = []

    def watched(network, part, *rest, **how):
        sizes.append(len(part))
        return local_fast.value_and_gradient(network, part, *rest, **how)

    monkeypatch.setattr(local, "value_and_gradient", watched)
    monkeypatch.setattr(local, "PIXELS_AT_ONCE", 3 * 40 * 41)
    found = LocalEnergy(network, 0.05).value_and_gradient(image)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert sizes == [3, 2]


def test_an_energy_freezes_its_network(network):
    LocalEnergy(network, 0.05)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert not network.training


@pytest.mark.parametrize("grid", [(16, 20), (37, 50), (9, 8), (3, 5)], ids=str)
def test_the_energy_map_sums_to_the_energy(network, grid, generator):
    image = torch.randn(2, 1, *grid, dtype=torch.float64, generator=generator)
    energy = LocalEnergy(network, 0.05, 2.0)
    found = energy.energy_map(image)
    assert found.shape == image.shape
    torch.testing.assert_close(found.sum(dim=(1, 2, 3)), energy.value(image), rtol=1e-12, atol=0)


def test_the_energy_map_says_where(network, generator):
    image = torch.randn(1, 1, 64, 72, dtype=torch.float64, generator=generator)
    changed = image.clone()
    changed[..., 30, 40] += 1.0
    energy = LocalEnergy(network, 0.05)
    y, x = torch.nonzero((energy.energy_map(changed) - energy.energy_map(image))[0, 0]).unbind(dim=1)
    assert 30 in y
    assert 40 in x
    # the widest features see 2 + 1 + 2 (1 + 1) + 2 + 4 (1 + 1) pixels to a side, and fill 4 x 4 pixels
    assert int(y.min()) >= 30 - 21
    assert int(y.max()) <= 30 + 21
    assert int(x.min()) >= 40 - 21
    assert int(x.max()) <= 40 + 21


def test_the_energy_of_a_coarse_place_is_spread_over_its_pixels(network, generator):
    with torch.no_grad():
        network.stem_log_weight.fill_(-torch.inf)
        network.levels[0].log_weight.fill_(-torch.inf)
    image = torch.randn(1, 1, 16, 20, dtype=torch.float64, generator=generator)
    found = LocalEnergy(network, 0.05).energy_map(image)[0, 0]
    blocks = found.reshape(4, 4, 5, 4)
    torch.testing.assert_close(blocks, blocks[:, :1, :, :1].expand(4, 4, 5, 4), rtol=0, atol=0)
    assert len(torch.unique(found)) == 20


def test_the_energy_of_the_padding_lies_at_the_border(network, generator):
    image = torch.randn(1, 1, 14, 19, dtype=torch.float64, generator=generator)
    energy = LocalEnergy(network, 0.05)
    found = energy.energy_map(image)[0, 0]
    padded = energy.energy_map(functional.pad(image, (0, 1, 1, 1)))[0, 0]
    torch.testing.assert_close(found[1:-1, :-1], padded[2:-2, :-2], rtol=1e-12, atol=0)
    torch.testing.assert_close(found[0, :-1], padded[:2, :-2].sum(dim=0), rtol=1e-12, atol=0)
    torch.testing.assert_close(found[-1, -1], padded[-2:, -2:].sum(), rtol=1e-12, atol=0)
