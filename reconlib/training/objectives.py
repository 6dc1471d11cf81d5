"""What training minimises.

A network in training is any torch module that maps images float32 (image, 1, y, x) to energies (image,). A
:class:`~reconlib.energies.local.LocalEnergyNetwork` is told the noise level besides.
"""

import torch
from torch import Tensor, nn

from reconlib.energies.local import LocalEnergyNetwork


def energies(network: nn.Module, images: Tensor, noise_level: float) -> Tensor:
    """Energies (image,) with the graph to the network's weights; ``noise_level`` is for local energies."""
    if isinstance(network, LocalEnergyNetwork):
        level = torch.full((1,), noise_level, device=images.device, dtype=images.dtype)
        value: Tensor = network(images, level)
    else:
        value = network(images)
    return value


def image_gradients(network: nn.Module, images: Tensor, noise_level: Tensor) -> Tensor:
    """Gradients of the energies with respect to the images, with the graph to the network's weights."""
    if isinstance(network, LocalEnergyNetwork):
        return network.value_and_gradient(images, noise_level)[1]
    learning = torch.is_grad_enabled()
    with torch.enable_grad():
        point = images.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(network(point).sum(), point, create_graph=learning)
    return gradient


def score_matching_loss(
    network: nn.Module,
    clean: Tensor,
    noise: Tensor,
    noise_level: Tensor,
    margin: int,
    temperature: float = 1.0,
) -> Tensor:
    r"""Multi-noise denoising score matching of an energy, one value per image.

    .. math:: | \sigma \nabla R(x + \sigma n; \sigma) / T - n |^2, \quad n \sim N(0, 1),

    averaged over the pixels that are at least ``margin`` away from the rim of the patch (what lies beyond the
    rim is unknown to the network). Its minimum is the energy whose ``exp(-R / T)`` is the density of noisy
    images; a constant energy has 1. A network that is not told the level learns one energy for all levels,
    the one whose score is the mean of theirs.

    ``clean`` and ``noise`` are float32 (image, 1, y, x), ``noise_level`` is (image,).

    References
    ----------
    Vincent, Neural Computation 23:1661 (2011); Song and Ermon, NeurIPS 2019.
    """
    level = noise_level[:, None, None, None]
    gradient = image_gradients(network, clean + level * noise, noise_level)
    residual = level * gradient / temperature - noise
    if margin:
        residual = residual[..., margin:-margin, margin:-margin]
    return residual.square().mean(dim=(1, 2, 3))


class ScoreMatching(nn.Module):
    """:func:`score_matching_loss` as a module, so that gradients are averaged over processes."""

    def __init__(self, network: nn.Module, margin: int, temperature: float) -> None:
        super().__init__()
        self.network, self._margin, self._temperature = network, margin, temperature

    def forward(self, clean: Tensor, noise: Tensor, noise_level: Tensor) -> Tensor:
        """Mean loss of the images."""
        return score_matching_loss(
            self.network, clean, noise, noise_level, self._margin, self._temperature
        ).mean()


class EnergyGap(nn.Module):
    r"""Maximum likelihood: the difference of the mean energies of data and of draws from the model.

    .. math:: \nabla_\theta (-\log p) = \frac{1}{T}
        \left( E_{data} [\nabla_\theta R] - E_{model} [\nabla_\theta R] \right)

    The gap's gradient is that, times T (a factor that AdamW and AdaBelief take out again). Its *value* says
    nothing about the likelihood; near the optimum it is zero.

    References
    ----------
    Hinton, Neural Computation 14:1771 (2002); Nijkamp et al., AAAI 2020.
    """

    def __init__(self, network: nn.Module, noise_level: float) -> None:
        super().__init__()
        self.network, self._noise_level = network, noise_level

    def forward(self, data: Tensor, samples: Tensor) -> Tensor:
        """Mean R of the data minus mean R of the samples, both float32 (image, 1, y, x)."""
        of_data = energies(self.network, data, self._noise_level).mean()
        return of_data - energies(self.network, samples, self._noise_level).mean()
