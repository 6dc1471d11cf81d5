"""Maximum likelihood against densities whose partition function is known.

The step is run as the trainer runs it (replay buffer, Langevin chains, energy gap); only the images are
points of a plane, "images" of 1 x 2 pixels, drawn from the exact density.
"""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from reconlib.training.distributed import Processes
from reconlib.training.patches import PatchSampler
from reconlib.training.settings import TrainSettings
from reconlib.training.steps import MaximumLikelihoodStep

STEP_NOISE = 0.2


class Points(PatchSampler):
    """Points (n, 1, 1, 2) of a plane in place of patches."""

    def __init__(self, draw) -> None:
        self.matrix, self._draw = (1, 2), draw

    def draw(self, n: int, *, signed: float | None = None) -> Tensor:
        """Return n points."""
        del signed
        return self._draw(n).view(n, 1, 1, 2).float()


class Gaussian(nn.Module):
    """R = |L (x - m)|^2 / 2, precision L^T L: log Z = log 2 pi - log det L."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(2))
        self.root = nn.Parameter(torch.eye(2))

    def forward(self, image: Tensor) -> Tensor:
        """Energy of points."""
        away = image.flatten(1) - self.mean
        return (away @ self.root.T).square().sum(dim=1) / 2


class DoubleWell(nn.Module):
    """R = a (x^2 - 1)^2 + b y^2 / 2 + c x + d x y: linear in its four parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([0.5, 1.0, 0.0, 0.0]))

    def forward(self, image: Tensor) -> Tensor:
        """Energy of points."""
        x, y = image.flatten(1).unbind(dim=1)
        return torch.stack([(x**2 - 1) ** 2, y**2 / 2, x, x * y], dim=1) @ self.theta


def settings(batch: int, noise: float, **chosen) -> TrainSettings:
    # architecture paper: any network without a noise level
    return TrainSettings.model_validate(
        {
            "name": "points",
            "objective": "maximum-likelihood",
            "architecture": "paper",
            "temperature": 1.0,
            "batch": batch,
            "data": {"patch": None},
            "maximum_likelihood": {
                "data_noise": noise,
                "step_noise": STEP_NOISE,
                "most_steps": 5,
                "growth_updates": 1,
                "buffer_size": 4 * batch,
                **chosen,
            },
        }
    )


def learn(
    network: nn.Module,
    draw,
    generator: torch.Generator,
    *,
    batch: int,
    noise: float,
    n_updates: int,
    average: int,
) -> tuple[dict[str, Tensor], list[float]]:
    """Train; return the mean of the parameters over the last updates, and the gaps."""
    step = MaximumLikelihoodStep(network, settings(batch, noise), Points(draw), generator, Processes())
    optimiser = torch.optim.Adam(network.parameters(), lr=0.03)
    means = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    gaps = []
    for update in range(n_updates):
        optimiser.zero_grad()
        gaps.append(step(update).gap)
        optimiser.param_groups[0]["lr"] = 0.03 if update < n_updates - average else 0.005
        optimiser.step()
        if update >= n_updates - average:
            for name, p in network.named_parameters():
                means[name] += p.detach() / average
    return means, gaps


def test_a_gaussian_is_learned_with_its_partition_function(generator):
    covariance = np.array([[0.9, 0.4], [0.4, 0.5]])
    factor = torch.from_numpy(np.linalg.cholesky(covariance)).float()
    mean = torch.tensor([0.5, -0.3])

    def draw(n: int) -> Tensor:
        return mean + torch.randn(n, 2, generator=generator) @ factor.T

    batch, average, noise = 1000, 200, 0.4
    learned, gaps = learn(
        Gaussian(), draw, generator, batch=batch, noise=noise, n_updates=350, average=average
    )
    # what the chains make of a Gaussian of variance v is v / (1 - zeta / 4 v) along each axis; that is what
    # the data have, so that v = (V + sqrt(V (V - zeta))) / 2
    values, axes = np.linalg.eigh(covariance + noise**2 * np.eye(2))
    values = (values + np.sqrt(values * (values - STEP_NOISE**2))) / 2
    root = learned["root"].double().numpy()
    found = np.linalg.inv(root.T @ root)
    expected = axes @ np.diag(values) @ axes.T
    # relative error of a variance from n draws is sqrt(2 / n); chains of 5 steps are correlated from update
    # to update, so that about one in fifteen counts
    error = 5 * (2 / (batch * average / 15)) ** 0.5
    np.testing.assert_allclose(found, expected, atol=error * values.max())
    np.testing.assert_allclose(learned["mean"], mean, atol=error)
    # the likelihood itself, partition function included, is that of the truth up to the squared error
    precision, truth = np.linalg.inv(found), expected
    away = learned["mean"].double().numpy() - mean.double().numpy()
    loss = (np.trace(precision @ truth) + away @ precision @ away + np.linalg.slogdet(found)[1]) / 2
    entropy = (2 + np.linalg.slogdet(truth)[1]) / 2
    assert 0 <= loss - entropy < 4 * error**2
    assert abs(np.mean(gaps[-average:])) < 0.05


@pytest.mark.slow
def test_the_parameters_of_a_double_well_are_learned(generator):
    truth = np.array([1.2, 2.0, 0.25, -0.5])
    # the exact density on a grid: partition function, draws and Fisher information
    axis = np.linspace(-3, 3, 241)
    x, y = (a.ravel() for a in np.meshgrid(axis, axis, indexing="ij"))
    statistics = np.stack([(x**2 - 1) ** 2, y**2 / 2, x, x * y], axis=1)
    density = np.exp(-statistics @ truth)
    density /= density.sum()
    fisher = np.cov(statistics.T, aweights=density, bias=True)
    cumulative = torch.from_numpy(density.cumsum())
    places = torch.from_numpy(np.stack([x, y], axis=1))

    def draw(n: int) -> Tensor:
        drawn = torch.rand(n, generator=generator, dtype=torch.float64)
        jitter = torch.rand(n, 2, generator=generator) - 0.5
        return places[torch.searchsorted(cumulative, drawn).clamp_max(len(places) - 1)] + jitter * 0.025

    batch, average = 500, 400
    learned, _ = learn(
        DoubleWell(), draw, generator, batch=batch, noise=0.01, n_updates=1100, average=average
    )
    # chains cross between the wells slowly: about one update in forty brings new draws; the noise on the data
    # and the length of the Langevin step shift the parameters by some per cent
    error = 5 * np.sqrt(np.diag(np.linalg.inv(fisher)) / (batch * average / 40)) + 0.06 * np.abs(truth)
    found = learned["theta"].double().numpy()
    assert np.all(np.abs(found - truth) < error), (found, error)
    # a start that already met this bound would prove nothing
    assert np.all(np.abs(np.array([0.5, 1.0, 0.0, 0.0]) - truth) > error)


@pytest.mark.parametrize("temperature", [1.0, 0.02])
def test_the_gap_is_reported_per_pixel_in_units_of_the_temperature(temperature, generator):
    network = Gaussian()
    chosen = settings(40, 0.05, keep_chance=1.0, least_steps=1, most_steps=1).model_copy(
        update={"temperature": temperature}
    )

    def draw(n: int) -> Tensor:
        return torch.full((n, 2), 3.0)

    step = MaximumLikelihoodStep(network, chosen, Points(draw), generator, Processes())
    step.buffer.restore({"images": torch.zeros(160, 1, 1, 2), "n_replaced": 0})
    seen = step(0)
    # data at (3, 3): R = 9; samples one step from 0: R about zeta = 0.04, whatever the temperature
    assert seen.gap == pytest.approx((9 - 0.04) / 2 / temperature, rel=0.02)
    low, high = seen.sample_range
    assert -5 * STEP_NOISE < low < 0 < high < 5 * STEP_NOISE
