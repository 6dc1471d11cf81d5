"""An energy of one matrix on images of another: exact, and without a seam."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from reconlib.energies import paper
from reconlib.energies.any_matrix import fit_to_side, outside_total_variation
from reconlib.energies.network import NetworkEnergy
from reconlib.energies.paper import PaperNetwork, random_paper_network
from reconlib.kspace import KSpace
from reconlib.operators.fourier import fft2c
from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior
from reconlib.reconstruction import ReconstructionSettings, reconstruct

SIZES = [(11, 6), (6, 11), (9, 13), (5, 8), (8, 9), (8, 8), (1, 30)]


@pytest.mark.parametrize(("n", "side"), [(5, 8), (8, 5), (6, 9), (9, 6), (7, 7), (4, 10), (9, 3)])
def test_the_middle_stays_in_the_middle(n, side):
    image = torch.zeros(1, 1, n, n + 1)
    image[0, 0, n // 2, (n + 1) // 2] = 1
    changed = fit_to_side(image, side, taper=1)
    assert changed.shape == (1, 1, side, side)
    assert int(changed.argmax()) == side // 2 * side + side // 2


def test_away_from_a_cut_the_image_is_cut_and_nothing_else(generator):
    image = torch.rand(1, 1, 100, 64, generator=generator)
    changed = fit_to_side(image, 64, taper=20)
    assert torch.equal(changed[..., 20:44, :], image[..., 38:62, :])


def test_at_its_own_matrix_the_image_is_itself(generator):
    image = torch.rand(2, 1, 24, 24, generator=generator)
    assert fit_to_side(image, 24) is image


def test_next_to_a_cut_the_image_gets_smooth_and_a_constant_stays_what_it_is(generator):
    image = torch.randn(1, 1, 120, 64, generator=generator)
    changed = fit_to_side(image, 64, taper=24)
    roughness = torch.diff(changed, dim=-2).square().mean(dim=-1).squeeze().sqrt()
    assert roughness[0] < 0.25 * roughness[30]
    assert roughness[-1] < 0.25 * roughness[30]
    constant = torch.full((1, 1, 120, 90), 2.5)
    torch.testing.assert_close(fit_to_side(constant, 64), torch.full((1, 1, 64, 64), 2.5))


def test_only_a_side_with_a_cut_is_smoothed(generator):
    """65 pixels lose the first or the last one only: the other end stays as it is."""
    image = torch.randn(1, 1, 65, 64, generator=generator)
    changed = fit_to_side(image, 64, taper=20)
    assert torch.equal(changed[..., 0, :], image[..., 0, :])
    assert not torch.equal(changed[..., -1, :], image[..., -2, :])


def test_a_small_image_is_continued_by_its_mirror_image_that_fades(generator):
    image = torch.rand(1, 1, 10, 64, generator=generator)
    changed = fit_to_side(image, 64, taper=4)[0, 0]
    assert torch.equal(changed[27:37], image[0, 0])
    for distance in (1, 2, 3, 4):
        fade = math.cos(math.pi / 2 * distance / 5) ** 2
        torch.testing.assert_close(changed[27 - distance], fade * image[0, 0, distance - 1])
        torch.testing.assert_close(changed[36 + distance], fade * image[0, 0, 10 - distance])
    assert not bool(changed[:23].any())
    assert not bool(changed[41:].any())


def test_total_variation_outside_is_the_sum_written_out(generator):
    """One cut of 2 pixels at each end of x, none along y; no taper but the first pixel of it."""
    image = torch.rand(1, 1, 5, 12, generator=generator, dtype=torch.float64)
    x = image[0, 0].numpy()
    half = np.sin(np.pi / 2 * 0.25) ** 2, np.sin(np.pi / 2 * 0.75) ** 2
    share = [0, 0, *half, 1, 1, 1, 1, *half[::-1], 0, 0]
    expected = 0.0
    for i in range(5):
        for j in range(12):
            d_y = x[i + 1, j] - x[i, j] if i < 4 else 0.0
            d_x = x[i, j + 1] - x[i, j] if j < 11 else 0.0
            expected += (1 - share[j]) * (math.sqrt(d_y**2 + d_x**2 + 1e-6) - 1e-3)
    found = outside_total_variation(image, 8, taper=2)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64), rtol=1e-12, atol=0)


def test_nothing_is_outside_where_nothing_is_cut(generator):
    assert outside_total_variation(torch.rand(2, 1, 8, 7, generator=generator), 8).tolist() == [0, 0]


class Small(nn.Module):
    """A smooth global energy of 8 x 8 pixels, on any matrix."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(3, 1, 3, 3, generator=generator, dtype=torch.float64))
        self.last = nn.Parameter(torch.randn(1, 3, 8, 8, generator=generator, dtype=torch.float64))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = functional.silu(functional.conv2d(fit_to_side(image, 8, taper=3), self.first, padding=1))
        return functional.conv2d(x, self.last).flatten(1).sum(1) + 0.3 * outside_total_variation(image, 8, 3)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_gradient_is_that_of_the_value(size, generator):
    energy = NetworkEnergy(Small(generator), 1.0)
    image = torch.rand(1, 1, *size, generator=generator, dtype=torch.float64)
    value, gradient = energy.value_and_gradient(image)
    torch.testing.assert_close(energy.value(image), value)
    direction = torch.randn(image.shape, generator=generator, dtype=torch.float64)
    step = 1e-6 * direction
    difference = (energy.value(image + step) - energy.value(image - step)) / 2e-6
    torch.testing.assert_close((gradient * direction).sum()[None], difference, rtol=1e-5, atol=1e-7)


@pytest.fixture
def side_96(monkeypatch) -> None:
    """A network of 96 x 96 instead of 320 x 320 pixels: the same code in a tenth of the time."""
    monkeypatch.setattr(paper, "SIDE", 96)


def small_random_network(generator: torch.Generator) -> PaperNetwork:
    network = PaperNetwork()
    layers = [(1, 8, 3, 1), (8, 8, 3, 2), (8, 12, 3, 2), (12, 1, 24, 1)]
    network.convs = nn.ModuleList(
        nn.Conv2d(n_in, n_out, size, stride, padding=int(size == 3), bias=False)
        for n_in, n_out, size, stride in layers
    )
    with torch.no_grad():
        for weight in network.parameters():
            std = (2 / weight[0].numel()) ** 0.5
            weight.copy_(std * torch.randn(tuple(weight.shape), generator=generator))
    return network


def assert_no_jump(network: nn.Module, n_y: int, n_x: int, side: int, generator: torch.Generator) -> None:
    """Row by row, the strength of the gradient changes nowhere more than well inside the cut."""
    image = torch.rand(1, 1, n_y, n_x, generator=generator)
    gradient = NetworkEnergy(network, 1.0).value_and_gradient(image)[1]
    strength = gradient[0, 0, :, 40:-40].square().mean(dim=1).sqrt()
    jumps = torch.diff(strength).abs()
    first = (n_y - side) // 2
    inside = slice(first + 25, n_y - first - 26)
    assert strength[: first - 10].max() < 1e-3 * strength[inside].median()
    assert jumps[: first + 25].max() <= jumps[inside].max()
    assert jumps[n_y - first - 26 :].max() <= jumps[inside].max()


@pytest.mark.usefixtures("side_96")
def test_a_networks_gradient_has_no_jump_where_it_ends(generator):
    network = small_random_network(torch.Generator().manual_seed(3))
    assert_no_jump(network, 160, 128, 96, generator)
    with pytest.raises(AssertionError):
        assert_no_jump(HardCut(network), 160, 128, 96, generator)


@pytest.mark.slow
def test_the_papers_networks_gradient_has_no_jump_where_it_ends(generator):
    assert_no_jump(random_paper_network(torch.Generator().manual_seed(3)), 384, 352, 320, generator)


def edge_energy(outside_weight: float) -> PaperNetwork:
    """The paper's network with two layers and hand-made weights: ten times the sum of absolute differences.

    The leaky ReLUs of a difference and of its negative add up to 0.95 times its magnitude.
    """
    network = PaperNetwork(outside_weight=outside_weight)
    first = nn.Conv2d(1, 4, 3, padding=1, bias=False)
    last = nn.Conv2d(4, 1, paper.SIDE, bias=False)
    with torch.no_grad():
        first.weight.zero_()
        first.weight[:, 0, 1, 1] = torch.tensor([-1.0, 1.0, -1.0, 1.0])
        first.weight[0, 0, 1, 2], first.weight[1, 0, 1, 2] = 1.0, -1.0
        first.weight[2, 0, 2, 1], first.weight[3, 0, 2, 1] = 1.0, -1.0
        last.weight.fill_(10 / 0.95)
    network.convs = nn.ModuleList([first, last])
    return network


class HardCut(nn.Module):
    """What not to do: cut or pad with zeros."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        margins = []
        for n in (image.shape[-1], image.shape[-2]):
            before = paper.SIDE // 2 - n // 2
            margins += [before, paper.SIDE - n - before]
        return self.network(functional.pad(image, margins))


CARD = PriorCard.model_validate(
    {
        "name": "edges",
        "version": "1.0",
        "description": "for tests",
        "architecture": {"kind": "paper"},
        "temperature": 1.0,
        "gradient_noise_std": 7.5e-3,
        "image_phase": "real",
        "prior_weight": {"rule": "noise"},
        "anatomy": "any",
        "licence": "MIT",
    }
)


def row_errors(network: nn.Module, size: tuple[int, int], noise_std: float) -> torch.Tensor:
    """Reconstruct a grey plane (0.7) from full single-coil scans.

    Returns the error in the middle columns, the scans side by side; about as many pixels for any size.
    """
    generator = torch.Generator().manual_seed(8)
    n_scans = max(2, 400 // size[1])
    noise = torch.complex(*torch.randn(2, n_scans, 1, *size, generator=generator))
    kspace = KSpace(
        samples=fft2c(torch.full((n_scans, 1, *size), 0.7) + 0j) + noise_std * noise,
        mask=torch.ones(n_scans, 1, *size, dtype=torch.bool),
        noise_std=noise_std,
    )
    result = reconstruct(
        kspace,
        prior=Prior(CARD, NetworkEnergy(network, 1.0)),
        settings=ReconstructionSettings(iterations=15, prior_weight_rule="fixed", prior_weight=2e-3),
        coils=torch.ones_like(kspace.samples),
    )
    middle = result.image.real[..., size[1] // 4 : -size[1] // 4] - 0.7
    return torch.cat(list(middle[:, 0]), dim=1)


def worst_change(error: torch.Tensor) -> float:
    """Noise in bands of four rows: the largest ratio of neighbours."""
    noise = error - error.mean(dim=1, keepdim=True)
    bands = noise.reshape(-1, 4 * noise.shape[1]).std(dim=1)
    return float(torch.maximum(bands[1:] / bands[:-1], bands[:-1] / bands[1:]).max())


def assert_no_seam(size: tuple[int, int], outside_weight: float) -> None:
    """Less noise by half inside; also where nothing happens outside it comes up gradually."""
    error = row_errors(edge_energy(outside_weight), size, 0.02)
    middle = size[0] // 2
    assert error[middle - 8 : middle + 8].std() < 0.6 * 0.02
    assert worst_change(error) < 1.45
    assert worst_change(row_errors(HardCut(edge_energy(0.0)), size, 0.02)) > 1.8


def assert_no_edge(size: tuple[int, int]) -> None:
    """From row to row, the plane changes less at the border than with zeros beside it, by far."""
    soft, hard = (
        torch.diff(row_errors(network, size, 1e-4).mean(dim=1)).abs().max()
        for network in (edge_energy(10.0), HardCut(edge_energy(10.0)))
    )
    assert soft < 0.005 * 0.7
    assert soft < 0.6 * hard


@pytest.mark.usefixtures("side_96")
@pytest.mark.parametrize("outside_weight", [10.0, 0.0])
def test_a_reconstruction_of_a_larger_matrix_has_no_seam(outside_weight):
    assert_no_seam((160, 128), outside_weight)


@pytest.mark.usefixtures("side_96")
def test_a_reconstruction_of_a_smaller_matrix_has_no_edge_at_its_border():
    assert_no_edge((76, 64))


@pytest.mark.slow
@pytest.mark.parametrize("outside_weight", [10.0, 0.0])
def test_at_384_by_352_there_is_no_seam(outside_weight):
    assert_no_seam((384, 352), outside_weight)


@pytest.mark.slow
def test_at_256_by_216_there_is_no_edge():
    assert_no_edge((256, 216))
