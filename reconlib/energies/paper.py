"""The network of Zach, Knoll and Pock, layer by layer as published."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from reconlib.energies.any_matrix import fit_to_side, outside_total_variation

SIDE = 320
"""Images enter as SIDE x SIDE pixels."""
WIDTHS = tuple(48 * int(1.75**k) for k in range(7))
_SLOPE = 0.05


class PaperNetwork(nn.Module):
    r"""Global energy :math:`R = |FC(S_6(\dots S_1(x)))|` of a 320 x 320 image; 21,350,640 weights.

    Stage l is a 3 x 3 convolution that keeps the width (the first one widens 1 to 48) and a 3 x 3 convolution
    with stride 2 that widens to the next of 48, 48, 144, 240, 432, 768, 1344, each followed by a leaky ReLU
    with slope 0.05; FC is a 5 x 5 valid convolution to one number. No biases. The parameters are named
    ``convs.0.weight`` to ``convs.12.weight`` in the order in which they are applied, as in the published
    checkpoints.

    Images of another matrix are cropped at the centre, or padded, to 320 x 320, without a seam: see
    :mod:`reconlib.energies.any_matrix`. ``outside_weight`` is the weight of the total variation there, in
    units of R.

    References
    ----------
    Zach, Knoll, Pock, "Stable Deep MRI Reconstruction using Generative Priors", IEEE Trans Med Imaging
    (2023).
    """

    def __init__(self, *, outside_weight: float = 0.0) -> None:
        super().__init__()
        self.outside_weight = outside_weight
        layers: list[nn.Conv2d] = []
        for stage in range(6):
            width = WIDTHS[stage]
            n_in = 1 if stage == 0 else width
            layers.append(nn.Conv2d(n_in, width, 3, padding=1, bias=False))
            layers.append(nn.Conv2d(width, WIDTHS[stage + 1], 3, stride=2, padding=1, bias=False))
        layers.append(nn.Conv2d(WIDTHS[6], 1, 5, bias=False))
        self.convs = nn.ModuleList(layers)

    def forward(self, image: Tensor) -> Tensor:
        """Energy (slice,) of float32 images (slice, 1, y, x)."""
        x = fit_to_side(image, SIDE)
        for conv in self.convs[:-1]:
            x = functional.leaky_relu(conv(x), _SLOPE)
        last: Tensor = self.convs[-1](x)
        energy = last.abs().flatten(1).sum(dim=1)
        if self.outside_weight > 0 and max(image.shape[-2:]) > SIDE:
            energy = energy + self.outside_weight * outside_total_variation(image, SIDE)
        return energy


def random_paper_network(generator: torch.Generator) -> PaperNetwork:
    """Return a network with random weights of the usual size, for benchmarks and tests."""
    network = PaperNetwork()
    with torch.no_grad():
        for weight in network.parameters():
            std = (2 / weight[0].numel()) ** 0.5
            weight.copy_(std * torch.randn(tuple(weight.shape), generator=generator))
    return network
