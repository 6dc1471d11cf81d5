r"""Value and gradient of a local energy at one noise level, with as few passes over the features as will do.

The same function as that of :class:`~reconlib.energies.local.LocalEnergyNetwork`, for frozen weights and one
noise level for all images:

* the modulations are a factor and a shift of what a convolution returns, so they go into its weights and its
  bias, and those of the potentials into the weights of the way back;
* what the way back needs of :math:`\mathrm{silu}` is its argument; the product with its slope is one pass.

On a CPU the 5 x 5 convolution from one channel, and its adjoint to one channel, are products of matrices
with 25 shifted copies of the image: the convolutions of libraries waste most of their width on one channel.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from reconlib.energies.local import LocalEnergyNetwork

_silu_backward = torch.ops.aten.silu_backward


def value_and_gradient(
    network: "LocalEnergyNetwork", image: Tensor, noise_level: Tensor, *, want_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return what the network's own method does; nothing is recorded for automatic differentiation.

    Parameters
    ----------
    noise_level
        (1,)
    """
    embedding = network.embedding(noise_level)
    gain = network.sizes.input_gain
    factor, shift = network.modulate_stem.modulation(embedding)
    stem = gain * _scaled(network.stem.weight, factor)
    f = _stem(image, stem, shift.flatten(), network.padding(image))
    weight = network.stem_log_weight.exp()
    energy, stem_pull = _potential(f, weight, keep=f)
    stem_weight = weight[:, None, None]
    h = functional.silu(f)
    tape: list[tuple[Tensor, ...]] = []
    for level in network.typed_levels:
        factor, shift = level.modulate_down.modulation(embedding)
        down = _scaled(level.down.weight, factor)
        a = functional.conv2d(h, down, shift.flatten(), stride=2, padding=1)
        u = functional.silu(a)
        factor, shift = level.modulate_first.modulation(embedding)
        first = _scaled(level.first.weight, factor)
        b = functional.conv2d(u, first, shift.flatten(), padding=1)
        h = functional.conv2d(functional.silu(b), level.second.weight, padding=1).add_(u)
        factor, shift = level.modulate_read_out.modulation(embedding)
        read_out = _scaled(level.read_out.weight, factor)
        weight = level.log_weight.exp()
        found, pull = _potential(functional.conv2d(h, read_out, shift.flatten()), weight)
        energy = energy + found
        if want_gradient:
            back = (read_out * weight[:, None, None, None]).transpose(0, 1)
            tape.append((down, a, first, b, level.second.weight, back, pull))
    per_level = network.reference_level / noise_level
    if not want_gradient:
        return energy * per_level, image.new_empty(0)
    g_h: Tensor | None = None
    for down, a, first, b, second, back, pull in reversed(tape):
        g = functional.conv2d(pull, back)
        g_h = g if g_h is None else g.add_(g_h)
        g_b = _silu_backward(functional.conv_transpose2d(g_h, second, padding=1), b)
        g_u = functional.conv_transpose2d(g_b, first, padding=1).add_(g_h)
        g_h = functional.conv_transpose2d(_silu_backward(g_u, a), down, stride=2, padding=1)
    g_stem = (
        stem_weight * stem_pull if g_h is None else _silu_backward(g_h, f).addcmul_(stem_pull, stem_weight)
    )
    left, _, top, _ = network.padding(image)
    n_y, n_x = image.shape[-2:]
    gradient = _stem_adjoint(g_stem, stem)[..., top : top + n_y, left : left + n_x]
    return energy * per_level, gradient * per_level[:, None, None, None]


def _scaled(weights: Tensor, factor: Tensor) -> Tensor:
    """Scale the channels that a convolution returns; ``factor`` is (1, channel, 1, 1)."""
    return weights * factor.reshape(-1, 1, 1, 1)


def _potential(f: Tensor, weight: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the sum of w (sqrt(1 + f^2) - 1), (slice,), and f / sqrt(1 + f^2); f is lost unless kept."""
    root = f.square().add_(1).sqrt_()
    pull = f.div_(root) if keep is None else f / root
    return root.sub_(1).sum(dim=(2, 3)) @ weight, pull


def _stem(image: Tensor, weights: Tensor, bias: Tensor, padding: tuple[int, int, int, int]) -> Tensor:
    """Return the convolution of the padded image with (channel, 1, 5, 5)."""
    if image.device.type != "cpu":
        return functional.conv2d(functional.pad(image, padding), weights, bias, padding=2)
    n = weights.shape[-1]
    padded = functional.pad(image[:, 0], [one + n // 2 for one in padding])
    shifted = padded.unfold(1, n, 1).unfold(2, n, 1)  # (slice, y, x, 5, 5)
    n_slices, n_y, n_x = shifted.shape[:3]
    copies = shifted.permute(0, 3, 4, 1, 2).reshape(n_slices, n * n, n_y * n_x)
    features = torch.matmul(copies.transpose(1, 2), weights.flatten(1).t()).add_(bias)
    return features.view(n_slices, n_y, n_x, -1).permute(0, 3, 1, 2)  # channels last


def _stem_adjoint(pulls: Tensor, weights: Tensor) -> Tensor:
    """Return the adjoint of the convolution: (slice, 1, y, x) from (slice, channel, y, x)."""
    n = weights.shape[-1]
    if pulls.device.type != "cpu":
        return functional.conv_transpose2d(pulls, weights, padding=n // 2)
    n_slices, n_channels, n_y, n_x = pulls.shape
    columns = pulls.permute(0, 2, 3, 1).reshape(n_slices, n_y * n_x, n_channels)
    copies = torch.matmul(weights.flatten(1).t(), columns.transpose(1, 2)).view(n_slices, n, n, n_y, n_x)
    total = pulls.new_zeros(n_slices, n_y + n - 1, n_x + n - 1)
    for y in range(n):
        for x in range(n):
            total[:, y : y + n_y, x : x + n_x] += copies[:, y, x]
    return total[:, None, n // 2 : n // 2 + n_y, n // 2 : n // 2 + n_x]
