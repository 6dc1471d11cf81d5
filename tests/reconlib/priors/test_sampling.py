"""Draws from a prior alone, and the plane of a run."""

import math

import numpy as np
import pytest
import torch

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes
from reconlib.energies.network import NetworkEnergy
from reconlib.priors.card import PriorCard
from reconlib.priors.landscape import Plane, landscape_on, principal_plane, prior_landscape
from reconlib.priors.library import Prior, PriorError, energy_of
from reconlib.priors.sampling import default_matrix, sample_prior, sampling_stages

LEVEL = 0.05


def card(**changes: object) -> PriorCard:
    plain = {
        "name": "small",
        "version": "1.0",
        "description": "for tests",
        "architecture": {"kind": "local", "widths": [1, 1], "input_gain": 1.0, "noise_level": LEVEL},
        "temperature": 1.0,
        "prior_weight": {"rule": "noise"},
        "anatomy": "any",
        "licence": "MIT",
        "training": {"settings": {"noise_range": [0.01, 0.2]}},
    }
    return PriorCard.model_validate(plain | changes)


@pytest.fixture
def gaussian() -> Prior:
    """A local energy that is Gaussian, pixel by pixel, with variance 0.05 sigma.

    Only the centre a of the stem's filter is not zero. For small a x, the energy
    w (sqrt(1 + (a x)^2) - 1) 0.03 / sigma is w a^2 x^2 / 2 times 0.03 / sigma.
    """
    network = LocalEnergyNetwork(LocalEnergySizes(widths=(1, 1), input_gain=1.0))
    weight = 1e6
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.stem_log_weight.fill_(math.log(weight))
        network.stem.weight[0, 0, 2, 2] = math.sqrt(1 / (0.05 * 0.03 * weight))
    prior_card = card()
    return Prior(prior_card, energy_of(prior_card, network), network)


class Paraboloid(torch.nn.Module):
    """R = 3 x^2 / 2, summed."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return 1.5 * image.square().sum(dim=(1, 2, 3))


@pytest.fixture
def other() -> Prior:
    """Not a local energy: one density, N(0, T / 3)."""
    prior_card = card(architecture={"kind": "paper"}, temperature=0.02, input={"matrix": [12, 10]})
    return Prior(prior_card, NetworkEnergy(Paraboloid(), 0.02))


def test_draws_of_a_gaussian_have_its_variance_at_the_cards_level(gaussian, generator):
    """It is v = 0.05 sigma, and a step sigma^2 / 4 without accept step makes it v / (1 - step / 4 v)."""
    draws = sample_prior(gaussian, n_images=2, matrix=(32, 24), n_steps=240, generator=generator)
    assert draws.shape == (2, 1, 32, 24)
    assert draws.dtype == torch.float32
    v = 0.05 * LEVEL
    expected = v / (1 - LEVEL**2 / 4 / (4 * v))
    n = draws.numel()
    assert abs(float(draws.mean())) < 5 * math.sqrt(expected / n)
    assert float(draws.var()) == pytest.approx(expected, rel=5 * math.sqrt(2 / n))


@pytest.mark.parametrize(("sampler", "n_steps"), [("kinetic", 240), ("mala", 480), ("sk-rock", 120)])
def test_other_samplers_draw_the_same_gaussian(gaussian, generator, sampler, n_steps):
    """Without the bias of Langevin's step, which is 6.7 % here; the stabilised one has 5 %."""
    draws = sample_prior(
        gaussian, n_images=2, matrix=(16, 12), n_steps=n_steps, generator=generator, sampler=sampler
    )
    v = 0.05 * LEVEL
    n = draws.numel()
    assert abs(float(draws.mean())) < 5 * math.sqrt(v / n)
    bias = 0.05 if sampler == "sk-rock" else 0.0
    assert float(draws.var()) == pytest.approx(v, rel=5 * math.sqrt(2 / n) + bias)


def test_noise_levels_fall_to_the_cards_geometrically(gaussian):
    stages = sampling_stages(gaussian, 600)
    levels = [energy.noise_level for energy, _, _ in stages]
    np.testing.assert_allclose(levels, np.geomspace(0.2, LEVEL, 12), rtol=1e-12)
    np.testing.assert_allclose([step for _, step, _ in stages], np.geomspace(0.2, LEVEL, 12) ** 2 / 4)
    assert [count for _, _, count in stages] == [50] * 12
    assert [count for _, _, count in sampling_stages(gaussian, 607)] == [50] * 11 + [57]
    assert [(energy.noise_level, count) for energy, _, count in sampling_stages(gaussian, 1)] == [(LEVEL, 1)]


def test_another_energy_is_sampled_as_the_paper_trains(other, generator):
    """Step 2 T: x - 3 x + sqrt(2 T) n, so x' = -2 x ... diverges; a quarter of it is stable."""
    (stage,) = sampling_stages(other, 40)
    assert stage == (other.energy, 0.04, 40)
    draws = sample_prior(other, n_images=8, matrix=(12, 10), n_steps=40, generator=generator, step_scale=0.25)
    # x' = (1 - 3/4) x + sqrt(T / 2) n: variance T / 2 / (1 - 1/16)
    expected = 0.02 / 2 / (1 - 0.0625)
    assert float(draws.var()) == pytest.approx(expected, rel=5 * math.sqrt(2 / draws.numel()))


def test_chains_that_leave_the_finite_numbers_are_refused(other, generator):
    with pytest.raises(PriorError, match=r"left the finite numbers.*smaller step"):
        sample_prior(other, n_images=1, matrix=(12, 10), n_steps=200, generator=generator)


def test_draws_are_seeded_and_counted(gaussian):
    steps = []

    def draw(seed):
        return sample_prior(
            gaussian,
            n_images=2,
            matrix=(8, 8),
            n_steps=30,
            generator=torch.Generator().manual_seed(seed),
            on_step=lambda: steps.append(1),
        )

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert len(steps) == 4 * 30


def test_total_variation_is_refused_by_name(generator):
    tv = card(name="total-variation", architecture={"kind": "total-variation", "epsilon": 1e-3})
    with pytest.raises(PriorError, match="total-variation is no density"):
        sample_prior(
            Prior(tv, energy_of(tv, None)), n_images=1, matrix=(8, 8), n_steps=1, generator=generator
        )


def test_the_matrix_is_the_cards(gaussian, other):
    assert default_matrix(gaussian) == (128, 128)
    assert default_matrix(other) == (12, 10)


def test_the_plane_is_that_of_the_largest_variances(generator):
    """Compared with the eigenvectors of the covariance."""
    n, shape = 200, (1, 4, 5)
    scale = torch.linspace(1.0, 3.0, 20)
    images = (torch.randn(n, 20, generator=generator) * scale + 7).reshape(n, *shape)
    plane = principal_plane(images)
    rows = images.reshape(n, 20).double().numpy()
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    np.testing.assert_allclose(plane.origin[0].flatten(), rows.mean(axis=0), rtol=1e-5)
    for number in (0, 1):
        found = plane.directions[number].flatten().double().numpy()
        expected = vectors[:, -1 - number]
        assert abs(found @ expected) == pytest.approx(1, abs=1e-5)
        assert plane.explained[number] == pytest.approx(values[-1 - number] / values.sum(), rel=1e-6)
        along = (rows - rows.mean(axis=0)) @ expected
        np.testing.assert_allclose(plane.coordinates[:, number].abs(), np.abs(along), atol=1e-4)


@pytest.mark.parametrize("n", [2, 5])
def test_images_that_span_no_plane_are_refused(n):
    with pytest.raises(PriorError, match=f"the {n} images of the run do not span a plane"):
        principal_plane(torch.ones(n, 1, 4, 4))


def test_energies_over_the_plane_are_those_of_its_points(other):
    """R = 3 |x|^2 / 2 on an orthonormal plane through (0.5, 0, ...): 3 / 2 ((0.5 + a)^2 + b^2)."""
    directions = torch.zeros(2, 1, 12, 10)
    directions[0, 0, 0, 0] = directions[1, 0, 0, 1] = 1
    plane = Plane(
        origin=0.5 * directions[:1],
        directions=directions,
        coordinates=torch.tensor([[-1.0, 0.5], [0.2, -2.0]], dtype=torch.float64),
        explained=(0.6, 0.3),
    )
    found = landscape_on(other.energy, plane, n_points=9)
    a, b = np.linspace(-1.5, 1.5, 9), np.linspace(-3, 3, 9)
    np.testing.assert_allclose(found.first, a)
    np.testing.assert_allclose(found.second, b)
    expected = 1.5 * ((0.5 + a[None]) ** 2 + b[:, None] ** 2)
    np.testing.assert_allclose(found.energy, expected, rtol=1e-5)
    assert found.density.max() == 1
    assert float(found.density.median()) == pytest.approx(0.25, rel=1e-6)
    assert found.shown_temperature == pytest.approx(
        (np.median(expected) - expected.min()) / math.log(4), rel=1e-5
    )


def test_a_landscape_is_drawn_of_a_prior(gaussian, generator):
    steps = []
    found = prior_landscape(
        gaussian, matrix=(9, 8), n_steps=60, n_points=7, generator=generator, on_step=lambda: steps.append(1)
    )
    assert len(steps) == 2 * 60 + 7
    assert found.energy.shape == (7, 7)
    assert found.plane.coordinates.shape == (60, 2)
    assert float(found.first.max()) == pytest.approx(
        1.5 * float(found.plane.coordinates[:, 0].abs().max()), rel=1e-6
    )
    assert found.energy.argmin() not in (0, 6, 42, 48)
