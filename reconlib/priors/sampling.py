r"""Draw images from a prior alone, with the samplers of the posterior (:mod:`reconlib.posterior.samplers`).

A local energy is told a noise level, so its chains start at a high one, where the density is smooth and
chains move far, and go down to the card's level step by step, geometrically. At each level :math:`\sigma` the
step of Langevin is :math:`\zeta = \sigma^2 / 4`: densities with noise :math:`\sigma` on them have a curvature
of at most :math:`1 / \sigma^2`, for which the draws' variance is right to 7 %.

Other energies have one density. Their step is :math:`\zeta = 2 T`, with which the iteration is that of the
paper's training, :math:`x \leftarrow x - \nabla R(x) + \epsilon n` with :math:`\epsilon^2 = 2 T`.

The other samplers get the bound on the curvature for which they would have made the same Langevin step.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.posterior.samplers import LANGEVIN_STEP, start_sampler
from reconlib.posterior.settings import SamplerName
from reconlib.posterior.target import PriorTarget
from reconlib.priors.card import LocalArchitecture, TotalVariationArchitecture
from reconlib.priors.errors import PriorError
from reconlib.priors.library import Prior, energy_of

HIGHEST_NOISE_LEVEL = 0.2
"""Where chains start if the card does not say up to which level the network was trained."""
MOST_LEVELS = 12
_STEP_OVER_VARIANCE = 0.25


def sample_prior(
    prior: Prior,
    *,
    n_images: int,
    matrix: tuple[int, int],
    n_steps: int,
    generator: torch.Generator,
    step_scale: float | int = 1.0,
    sampler: SamplerName = "langevin",
    on_step: Callable[[], None] | None = None,
) -> Tensor:
    """Return draws, float32 (image, 1, y, x), one chain each, on the device of ``generator`` and prior.

    ``step_scale`` multiplies the step of Langevin, and those of the others accordingly; ``mala`` adapts its
    own in the first half of each level. ``on_step`` is called after each of the ``n_steps`` steps.

    Raises
    ------
    PriorError
        The prior is no density, or the chains left the finite numbers.
    """
    stages = sampling_stages(prior, n_steps)
    image = torch.rand((n_images, 1, *matrix), generator=generator, device=generator.device)
    if isinstance(prior.card.architecture, LocalArchitecture):
        image = HIGHEST_NOISE_LEVEL * image  # dark: a level at which a chain moves far comes first
    for energy, step_size, n_here in stages:
        lipschitz = torch.full((n_images,), LANGEVIN_STEP / (step_scale * step_size), dtype=torch.float64)
        chains = start_sampler(
            sampler, PriorTarget(energy, (n_images, 1, *matrix)), image, lipschitz.to(image.device), generator
        )
        for step in range(n_here):
            chains.step(generator, warming=2 * step < n_here)
            if on_step is not None:
                on_step()
        image = chains.image
    if not bool(torch.isfinite(image).all()):
        raise PriorError(
            f"the chains of the prior {prior.card.name!r} left the finite numbers: the step is too large for "
            "it. Take a smaller step."
        )
    return image


def sampling_stages(prior: Prior, n_steps: int) -> list[tuple[Energy, float, int]]:
    """Return energy, step size and number of steps of each noise level, the highest one first."""
    architecture = prior.card.architecture
    if isinstance(architecture, TotalVariationArchitecture):
        raise PriorError(
            f"{prior.card.name} is no density that images can be drawn from: it does not change when a "
            "constant is added to the image, so exp(-R / T) has no finite integral. Take a learned prior."
        )
    if not isinstance(architecture, LocalArchitecture):
        return [(prior.energy, 2 * prior.energy.temperature, n_steps)]
    lowest = architecture.noise_level
    highest = max(trained_up_to(prior), lowest)
    n_levels = min(MOST_LEVELS, n_steps)
    ratios = [number / max(n_levels - 1, 1) for number in reversed(range(n_levels))]
    counts = [n_steps // n_levels] * n_levels
    counts[-1] += n_steps - sum(counts)
    stages = []
    for ratio, count in zip(ratios, counts, strict=True):
        level = lowest * (highest / lowest) ** ratio
        here = architecture.model_copy(update={"noise_level": level})
        card = prior.card.model_copy(update={"architecture": here})
        stages.append((energy_of(card, prior.network), _STEP_OVER_VARIANCE * level**2, count))
    return stages


def trained_up_to(prior: Prior) -> float:
    """Return the highest noise level in the card's training settings, or the usual one."""
    levels = prior.card.training.settings.get("noise_range")
    if isinstance(levels, list | tuple) and levels and all(isinstance(one, int | float) for one in levels):
        return float(max(levels))
    return HIGHEST_NOISE_LEVEL


def default_matrix(prior: Prior) -> tuple[int, int]:
    """Return the matrix of the training images, or a small one where any will do."""
    return (128, 128) if prior.card.input.matrix == "any" else prior.card.input.matrix
