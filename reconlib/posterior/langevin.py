"""Langevin dynamics: noisy gradient descent whose draws follow ``exp(-R / T)``."""

from collections.abc import Callable

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy


def unadjusted_langevin(
    energy: Energy,
    start: Tensor,
    *,
    step_size: float,
    n_steps: int,
    generator: torch.Generator,
    on_step: Callable[[int, Tensor], None] | None = None,
    held: Tensor | None = None,
) -> Tensor:
    r"""Run ``n_steps`` steps of the unadjusted Langevin algorithm; every image of the batch is a chain.

    .. math:: x \leftarrow x - \frac{\zeta}{2 T} \nabla R(x) + \sqrt{\zeta}\, n, \qquad n \sim N(0, 1)

    with ``step_size`` :math:`\zeta` in squared image units and the energy's temperature T. There is no accept
    step, so the draws are biased by an amount that vanishes with the step: for a Gaussian of variance v
    (:math:`R / T = x^2 / 2v`) their variance is :math:`v / (1 - \zeta / 4v)`, and from :math:`\zeta = 4v` on
    the chain diverges. :math:`\zeta = \epsilon^2, T = \epsilon^2 / 2` is the iteration
    :math:`x - \nabla R(x) + \epsilon n` with which the paper's energies are trained.

    Parameters
    ----------
    start
        Float32 (slice, 1, y, x); not changed.
    generator
        Source of the noise, on the device of ``start``.
    on_step
        Called with the number of steps done (1, 2, ...) and the images at that step, which the next
        step overwrites: copy what is to be kept.
    held
        Bool, broadcastable to ``start``: pixels that stay as they are at the start. The draws are then
        conditional on them.

    Returns
    -------
    The images after the last step, shaped as ``start``.

    References
    ----------
    Roberts and Tweedie, Bernoulli 2:341 (1996).
    """
    if not step_size > 0:
        raise ValueError(f"Langevin's step_size is {step_size}; it needs a number > 0 (squared image units).")
    image = start.detach().clone()
    drift = 0.5 * step_size / energy.temperature
    diffusion = step_size**0.5
    for step in range(1, n_steps + 1):
        gradient = energy.value_and_gradient(image)[1]
        noise = torch.randn(image.shape, generator=generator, device=image.device, dtype=image.dtype)
        image.sub_(gradient, alpha=drift).add_(noise, alpha=diffusion)
        if held is not None:
            image = torch.where(held, start, image)
        if on_step is not None:
            on_step(step, image)
    return image
