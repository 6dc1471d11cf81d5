"""Small energies that are no prior, for tests."""

import torch
from torch import nn

from reconlib.energies.local import LocalEnergyNetwork, LocalEnergySizes


class Quartic(nn.Module):
    """R = half the sum of x^4, by automatic differentiation."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.factor * image.pow(4).sum(dim=(1, 2, 3))


def random_local_network(
    generator: torch.Generator, widths: tuple[int, ...] = (3, 4), dtype: torch.dtype = torch.float32
) -> LocalEnergyNetwork:
    """Return a network of the local energy, every weight random (also those that start at zero)."""
    network = LocalEnergyNetwork(LocalEnergySizes(widths=widths, input_gain=2.0)).to(dtype)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, dtype=dtype, generator=generator))
    return network
