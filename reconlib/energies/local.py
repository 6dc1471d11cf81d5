r"""A learned local energy for images of any size.

A pyramid of strided convolutions looks at the image at several resolutions; at each one, linear read-outs
:math:`f` of the features pass through the potential :math:`\sqrt{1 + f^2} - 1`, and all potentials are
summed:

.. math:: R(x) = \sum_l \sum_k w_{lk} \sum_r \left(\sqrt{1 + f_{lk}(r)^2} - 1\right), \qquad w_{lk} > 0

Every feature depends on a bounded neighbourhood, so the energy is a sum of local terms and fits any matrix.

The network is trained by denoising score matching at many noise levels :math:`\sigma` and is told the level:
the output of each convolution is scaled and shifted per channel by a function of :math:`\log \sigma`
(feature-wise linear modulation). ``R(x; sigma)`` is then minus the log density of images with noise
:math:`\sigma` on them, at temperature 1. A prior's card says at which level the energy is used.

The gradient with respect to the image is written out by hand. It is cheaper than automatic differentiation,
and score matching, which differentiates it once more, needs a single backward pass.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from reconlib.energies.local_fast import value_and_gradient

PIXELS_AT_ONCE = 40_000
"""Of images that a CPU evaluates together; the features of more do not stay in its caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEnergySizes:
    """The sizes that pin the layout of a :class:`LocalEnergyNetwork` down."""

    widths: tuple[int, ...] = (16, 32, 48, 64, 96)
    """Channels at full, half, quarter, ... resolution."""
    input_gain: float = 10.0
    """Fixed factor on the image, so that features of order one respond to details of order 0.1."""


Modulation = tuple[Tensor, Tensor]
"""Factor and shift per channel, each (slice or 1, channel, 1, 1)."""


class _Modulator(nn.Linear):
    """Factor and shift per channel from the embedding of the noise level; one and zero before training."""

    def __init__(self, n_embedding: int, n_channels: int) -> None:
        super().__init__(n_embedding, 2 * n_channels)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def modulation(self, embedding: Tensor) -> Modulation:
        factor, shift = self(embedding)[:, :, None, None].chunk(2, dim=1)
        return 1 + factor, shift


def _silu_and_slope(x: Tensor) -> tuple[Tensor, Tensor]:
    sigmoid = torch.sigmoid(x)
    y = x * sigmoid
    return y, sigmoid + y * (1 - sigmoid)


class _Level(nn.Module):
    """One resolution: down, a residual block, a read-out."""

    def __init__(self, n_in: int, n_out: int, n_embedding: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(n_in, n_out, 4, stride=2, padding=1, bias=False)
        self.first = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.read_out = nn.Conv2d(n_out, n_out, 1, bias=False)
        self.log_weight = nn.Parameter(torch.zeros(n_out))
        self.modulate_down = _Modulator(n_embedding, n_out)
        self.modulate_first = _Modulator(n_embedding, n_out)
        self.modulate_read_out = _Modulator(n_embedding, n_out)


class LocalEnergyNetwork(nn.Module):
    """The network of a local energy; see the module's text for the formula."""

    n_embedding = 16
    reference_level = 0.03
    """The noise level whose logarithm is the origin of the embedding."""

    def __init__(self, sizes: LocalEnergySizes) -> None:
        super().__init__()
        self.sizes = sizes
        widths = sizes.widths
        self.embed = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, self.n_embedding), nn.SiLU())
        self.stem = nn.Conv2d(1, widths[0], 5, padding=2, bias=False)
        self.stem_log_weight = nn.Parameter(torch.zeros(widths[0]))
        self.modulate_stem = _Modulator(self.n_embedding, widths[0])
        levels = [_Level(n_in, n_out, self.n_embedding) for n_in, n_out in pairwise(widths)]
        self.levels = nn.ModuleList(levels)

    @property
    def multiple(self) -> int:
        """Image sides are padded with zeros to a multiple of this."""
        return int(2 ** len(self.levels))

    def forward(self, image: Tensor, noise_level: Tensor) -> Tensor:
        """Energy (slice,) of images float32 (slice, 1, y, x) at noise levels (slice,) or (1,)."""
        return self.value_and_gradient(image, noise_level, want_gradient=False)[0]

    def value_and_gradient(
        self, image: Tensor, noise_level: Tensor, *, want_gradient: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Energy (slice,) and gradient, shaped as the image (an empty tensor where it is not wanted)."""
        maps, gradient = self._evaluate(image, noise_level, want_gradient=want_gradient)
        energy = maps[0].sum(dim=(1, 2))
        for potentials in maps[1:]:
            energy = energy + potentials.sum(dim=(1, 2))
        return energy * (self.reference_level / noise_level), gradient

    def energy_map(self, image: Tensor, noise_level: Tensor) -> Tensor:
        """Say where the energy comes from: a map shaped as the image whose sum is the energy.

        The potentials of a place at 1/n of the resolution are spread evenly over its n x n pixels. Those of
        the padding, where there is any, go to the pixels at the border.
        """
        maps, _ = self._evaluate(image, noise_level, want_gradient=False)
        total = maps[0]
        for level, potentials in enumerate(maps[1:], start=1):
            n = 2**level
            total = total + (potentials / n**2).repeat_interleave(n, dim=1).repeat_interleave(n, dim=2)
        left, right, top, bottom = self.padding(image)
        for axis, before, after in ((1, top, bottom), (2, left, right)):
            kept = total.narrow(axis, before, total.shape[axis] - before - after).clone()
            kept.select(axis, 0).add_(total.narrow(axis, 0, before).sum(axis))
            kept.select(axis, -1).add_(total.narrow(axis, total.shape[axis] - after, after).sum(axis))
            total = kept
        return total[:, None] * (self.reference_level / noise_level)[:, None, None, None]

    @property
    def typed_levels(self) -> list[_Level]:
        """The levels, finest first, after the stem."""
        return cast(list[_Level], list(self.levels))

    def padding(self, image: Tensor) -> tuple[int, int, int, int]:
        """Zeros on the left, right, top and bottom."""
        n_y, n_x = image.shape[-2:]
        pad_y, pad_x = -n_y % self.multiple, -n_x % self.multiple
        return pad_x // 2, pad_x - pad_x // 2, pad_y // 2, pad_y - pad_y // 2

    def _evaluate(
        self, image: Tensor, noise_level: Tensor, *, want_gradient: bool
    ) -> tuple[list[Tensor], Tensor]:
        """Return the potentials at each resolution, summed over channels: (slice, y, x); and the gradient.

        The potentials lack the factor of the noise level, the gradient has it.
        """
        embedding = self.embedding(noise_level)
        n_y, n_x = image.shape[-2:]
        padding = self.padding(image)
        factor, shift = self.modulate_stem.modulation(embedding)
        f = self.stem(functional.pad(self.sizes.input_gain * image, padding)) * factor + shift
        potentials, stem_pull = _potential(f, self.stem_log_weight, factor)
        maps = [potentials]
        h, slope = _silu_and_slope(f)
        stem_slope = slope * factor
        tape: list[tuple[Tensor, ...]] = []
        for level in self.typed_levels:
            factor, shift = level.modulate_down.modulation(embedding)
            u, slope = _silu_and_slope(level.down(h) * factor + shift)
            down_slope = slope * factor
            factor, shift = level.modulate_first.modulation(embedding)
            v, slope = _silu_and_slope(level.first(u) * factor + shift)
            first_slope = slope * factor
            h = u + level.second(v)
            factor, shift = level.modulate_read_out.modulation(embedding)
            potentials, pull = _potential(level.read_out(h) * factor + shift, level.log_weight, factor)
            maps.append(potentials)
            if want_gradient:
                tape.append((down_slope, first_slope, pull))
        if not want_gradient:
            return maps, image.new_empty(0)
        g_h: Tensor | None = None
        for level, (down_slope, first_slope, pull) in zip(
            reversed(self.typed_levels), reversed(tape), strict=True
        ):
            g = functional.conv_transpose2d(pull, level.read_out.weight)
            g_h = g if g_h is None else g + g_h
            g_v = functional.conv_transpose2d(g_h, level.second.weight, padding=1)
            g_u = g_h + functional.conv_transpose2d(g_v * first_slope, level.first.weight, padding=1)
            g_h = functional.conv_transpose2d(g_u * down_slope, level.down.weight, stride=2, padding=1)
        g_stem = stem_pull if g_h is None else stem_pull + g_h * stem_slope
        gradient = functional.conv_transpose2d(g_stem, self.stem.weight, padding=2)
        gradient = gradient[..., padding[2] : padding[2] + n_y, padding[0] : padding[0] + n_x]
        per_level = (self.reference_level / noise_level)[:, None, None, None]
        return maps, gradient * (self.sizes.input_gain * per_level)

    def embedding(self, noise_level: Tensor) -> Tensor:
        """Return the embedding of noise levels (slice,) or (1,)."""
        log_level = torch.log(noise_level / self.reference_level)[:, None]
        embedding: Tensor = self.embed(torch.cat([log_level, log_level.square() / 2], dim=1))
        return embedding


def _potential(f: Tensor, log_weight: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over channels of w (sqrt(1 + f^2) - 1), and its derivative by the convolution's output under f."""
    weight = log_weight.exp()[:, None, None]
    root = torch.sqrt(1 + f.square())
    return (weight * (root - 1)).sum(dim=1), weight * factor * f / root


def _parts(images: Tensor) -> tuple[Tensor, ...]:
    """Return the parts in which images are evaluated: on a CPU as many at once as stay in its caches."""
    if images.device.type != "cpu":
        return (images,)
    n_at_once = max(1, PIXELS_AT_ONCE // max(1, math.prod(images.shape[-2:])))
    return tuple(images[first : first + n_at_once] for first in range(0, len(images), n_at_once))


@dataclass(frozen=True, slots=True, eq=False)
class LocalEnergy:
    """A :class:`LocalEnergyNetwork` at one noise level, as an energy of images."""

    network: LocalEnergyNetwork
    noise_level: float
    temperature: float = 1.0

    def __post_init__(self) -> None:
        self.network.eval().requires_grad_(False)

    def value(self, image: Tensor, /) -> Tensor:
        """Energy (slice,) of a float32 image (slice, 1, y, x)."""
        return self._evaluate(image, want_gradient=False)[0]

    def value_and_gradient(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        """Energy (slice,) and gradient, shaped as the image."""
        return self._evaluate(image, want_gradient=True)

    def energy_map(self, image: Tensor, /) -> Tensor:
        """Say where the energy of a float32 image comes from: shaped as the image, the sum is the energy."""
        with torch.no_grad():
            return self.network.energy_map(image, self._level(image))

    def _evaluate(self, image: Tensor, *, want_gradient: bool) -> tuple[Tensor, Tensor]:
        def one(image: Tensor) -> tuple[Tensor, Tensor]:
            return value_and_gradient(self.network, image, self._level(image), want_gradient=want_gradient)

        with torch.no_grad():
            parts = _parts(image)
            if len(parts) < 2:
                return one(image)
            values, gradients = zip(*map(one, parts), strict=True)
            return torch.cat(values), torch.cat(gradients)

    def _level(self, image: Tensor) -> Tensor:
        return torch.full((1,), self.noise_level, device=image.device, dtype=image.dtype)
