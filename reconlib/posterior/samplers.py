r"""Markov chains that draw images from a density exp(-E), many chains at once.

All samplers use the gradient of E; L is an upper bound on its local Lipschitz constant, one number per row
(a chain of a slice). In the formulas n is drawn from N(0, 1).

``langevin``: the unadjusted Langevin algorithm,
:math:`x \leftarrow x - \tfrac{\zeta}{2} \nabla E(x) + \sqrt{\zeta}\, n` with :math:`\zeta = 0.35 / L`. For a
Gaussian of variance v its draws have the variance :math:`v / (1 - \zeta / 4v)`, which is at most 9.6 % (4.7 %
of the std) too much (Roberts and Tweedie, Bernoulli 2:341, 1996).

``mala``: the same step as a proposal that is accepted or refused (Metropolis; Roberts and Tweedie), which
removes the bias. The step is adapted in the warm-up to an acceptance of 0.574, the best for many dimensions
(Roberts and Rosenthal, J R Stat Soc B 60:255, 1998). With d dimensions it has to be about
:math:`1 / (L d^{1/3})`: slow for images.

``kinetic``: underdamped Langevin dynamics, :math:`dx = v\,dt`,
:math:`dv = -\nabla E\,dt - \gamma v\,dt + \sqrt{2\gamma}\,dW`, in the splitting BAOAB: half a kick, half a
drift, friction and noise, half a drift, half a kick. Its draws of x are exact for Gaussians at any stable
step (:math:`h < 2 / \sqrt L`), and where E is flat it moves with the square root of the curvature, not with
the curvature (Leimkuhler and Matthews, Appl Math Res Express 2013:34).

``sk-rock``: a Langevin step of s internal Chebyshev stages, each with one gradient, stable for steps
:math:`\zeta / 2 = \delta` up to :math:`((s - 1/2)^2 (2 - 4 \eta / 3) - 3/2) / L` (Pereyra, Vargas-Mieles and
Zygalakis, SIAM J Imaging Sci 13:905, 2020). Near that limit it moves far, but where E is stiffest, which here
is wherever there are data, its draws are hardly spread at all. The share of the limit that is used keeps the
std of every Gaussian direction within 4.5 %, and with it 3 stages are as good as 10.

Where the real part is not to be negative it is reflected at 0, and with it the velocity. The Langevin
proposal is then the sum of two Gaussians, at m and at -m, and ``mala`` accounts for it. The other samplers
make dark pixels too bright: where the data say -1.5 sigma and E has no other terms, ``kinetic`` by 0.16 and
``langevin`` by 0.35 of their std.
"""

import math
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from reconlib.operators.inner_product import real_dot
from reconlib.posterior.settings import SamplerName
from reconlib.posterior.target import Evaluation, Target

LANGEVIN_STEP = 0.35
"""zeta L"""
KINETIC_STEP, KINETIC_FRICTION = 1.4, 0.1
"""h sqrt(L) and gamma h. On a simulated scan of a validation image, 160 steps of 2 chains: R-hat 1.36,
1.67 with 1.0 and 0.2; 1.34 with 1.8 and 0.1, which is near the limit of 2."""
REFLECTED_STEP, REFLECTED_FRICTION = 0.5, 0.5
"""The same where the target reflects. Long steps bounce at a wall against which E presses, and heat there."""
MALA_ACCEPTANCE = 0.574
ROCK_STAGES = 3
ROCK_DAMPING = 0.05
"""eta"""
ROCK_STEP = 0.1
"""Share of the largest stable step."""


@runtime_checkable
class Sampler(Protocol):
    """Chains and their state. ``image`` must not be changed by others; a step may overwrite it."""

    image: Tensor
    """Where the chains are: (row, 1, y, x)."""
    evaluation: Evaluation
    """E at the last point that the step evaluated."""
    accepted: Tensor | None
    """float64 (row,): 1 where the last proposal was accepted, else 0; None where all are."""

    def step(self, generator: torch.Generator, *, warming: bool) -> None:
        """Move all chains; ``warming`` lets a sampler adapt its step."""
        ...


def start_sampler(
    name: SamplerName, target: Target, image: Tensor, lipschitz: Tensor, generator: torch.Generator
) -> Sampler:
    """Return chains that start at ``image`` (row, 1, y, x), with L ``lipschitz`` (row,)."""
    if name == "kinetic":
        pace = (REFLECTED_STEP, REFLECTED_FRICTION) if target.reflecting else (KINETIC_STEP, KINETIC_FRICTION)
        return Kinetic(target, image, lipschitz, generator, *pace)
    if name == "langevin":
        return Langevin(target, image, lipschitz)
    return Mala(target, image, lipschitz) if name == "mala" else SkRock(target, image, lipschitz)


class Langevin:
    """Unadjusted Langevin; see the module's text."""

    accepted: Tensor | None = None

    def __init__(self, target: Target, image: Tensor, lipschitz: Tensor, step: float = LANGEVIN_STEP) -> None:
        self.target, self.image = target, image.clone()
        self.evaluation = target.evaluate(self.image)
        self._step = _per_row(step / lipschitz)

    def step(self, generator: torch.Generator, *, warming: bool) -> None:  # noqa: ARG002 - nothing to adapt
        """Make one step."""
        noise = self.target.noise(generator)
        self.image.sub_(self.evaluation.gradient.mul_(self._step / 2)).add_(noise.mul_(self._step.sqrt()))
        if self.target.reflecting:
            _reflect(self.image)
        self.evaluation = self.target.evaluate(self.image)


class Kinetic:
    """Underdamped Langevin by BAOAB; see the module's text."""

    accepted: Tensor | None = None

    def __init__(
        self,
        target: Target,
        image: Tensor,
        lipschitz: Tensor,
        generator: torch.Generator,
        step: float = KINETIC_STEP,
        friction: float = KINETIC_FRICTION,
    ) -> None:
        self.target, self.image = target, image.clone()
        self.evaluation = target.evaluate(self.image)
        self.velocity = target.noise(generator)
        self._half_step = _per_row(step / lipschitz.sqrt() / 2)
        self._kept = math.exp(-friction)

    def step(self, generator: torch.Generator, *, warming: bool) -> None:  # noqa: ARG002 - nothing to adapt
        """Make one step."""
        image, velocity, half = self.image, self.velocity, self._half_step
        velocity.sub_(self.evaluation.gradient.mul_(half))
        self._drift()
        velocity.mul_(self._kept).add_(self.target.noise(generator), alpha=math.sqrt(1 - self._kept**2))
        self._drift()
        self.evaluation = self.target.evaluate(image)
        velocity.sub_(self.evaluation.gradient * half)

    def _drift(self) -> None:
        self.image.add_(self.velocity * self._half_step)
        if self.target.reflecting:
            _reflect(self.image, self.velocity)


class Mala:
    """Metropolis-adjusted Langevin; see the module's text."""

    def __init__(self, target: Target, image: Tensor, lipschitz: Tensor) -> None:
        self.target, self.image = target, image.clone()
        self.evaluation = target.evaluate(self.image)
        self.accepted: Tensor | None = torch.zeros_like(lipschitz)
        n_free = image[0].numel() * (2 if image.is_complex() and not target.reflecting else 1)
        self._log_step = torch.log(1 / (lipschitz * n_free ** (1 / 3)))
        self._n_adapted = 0

    def step(self, generator: torch.Generator, *, warming: bool) -> None:
        """Propose, accept or refuse, and adapt the step while ``warming``."""
        step = self._log_step.exp()
        here = self.evaluation
        centre = self.image - here.gradient * _per_row(step / 2)
        proposal = centre + self.target.noise(generator) * _per_row(step.sqrt())
        if self.target.reflecting:
            _reflect(proposal)
        there = self.target.evaluate(proposal)
        log_ratio = self._log_ratio(proposal, there, centre, step)
        probability = log_ratio.clamp_max(0).exp().nan_to_num(0.0)
        accepted = self.target.uniform(generator) < probability
        self.accepted = accepted.double()
        choose = accepted[:, None, None, None]
        self.image = torch.where(choose, proposal, self.image)
        data_gradient = None
        if here.data_gradient is not None and there.data_gradient is not None:
            data_gradient = torch.where(choose, there.data_gradient, here.data_gradient)
        self.evaluation = Evaluation(
            torch.where(choose, there.gradient, here.gradient),
            torch.where(accepted, there.prior, here.prior),
            torch.where(accepted, there.data, here.data),
            data_gradient,
        )
        if warming:
            self._n_adapted += 1
            self._log_step += (probability - MALA_ACCEPTANCE) / self._n_adapted**0.6

    def _log_ratio(self, proposal: Tensor, there: Evaluation, centre: Tensor, step: Tensor) -> Tensor:
        r"""Logarithm of Metropolis' ratio, (row,).

        With d = x' - x and gradients g, g', the Gaussian proposals contribute
        :math:`\langle d, g + g' \rangle / 2 + \zeta (|g|^2 - |g'|^2) / 8`, and the data term, being
        quadratic, falls by exactly :math:`\langle d, q + q' \rangle / 2`, q its gradient. No large numbers
        are subtracted but the prior's energies.
        """
        here, moved = self.evaluation, proposal - self.image
        total = here.gradient + there.gradient
        ratio = here.prior - there.prior
        ratio = ratio + step / 8 * real_dot(here.gradient - there.gradient, total)
        if here.data_gradient is not None and there.data_gradient is not None:
            total = total - here.data_gradient - there.data_gradient
        ratio = ratio + real_dot(moved, total) / 2
        if not self.target.reflecting:
            return ratio
        # log of 1 + exp(-2 x' m / zeta): the part of the proposal that was reflected
        back = proposal - there.gradient * _per_row(step / 2)
        width = _per_row(2 / step)
        reflected = softplus(-width * self.image.real * back.real)
        reflected -= softplus(-width * proposal.real * centre.real)
        return ratio + reflected.sum(dim=(1, 2, 3), dtype=torch.float64)


class SkRock:
    """Stabilised Langevin with Chebyshev stages; see the module's text.

    ``evaluation`` belongs to the last internal stage, which is near the image. With a reflecting target the
    stages may be negative; the image is reflected.
    """

    accepted: Tensor | None = None

    def __init__(
        self,
        target: Target,
        image: Tensor,
        lipschitz: Tensor,
        n_stages: int = ROCK_STAGES,
        share: float = ROCK_STEP,
    ) -> None:
        self.target, self.image = target, image.clone()
        self.evaluation = target.evaluate(self.image)
        self._n_stages = n_stages
        longest = (n_stages - 0.5) ** 2 * (2 - 4 * ROCK_DAMPING / 3) - 1.5
        self._step = _per_row(share * longest / lipschitz)
        self._origin = 1 + ROCK_DAMPING / n_stages**2
        angle = n_stages * math.acosh(self._origin)
        # T_s(w0) / T_s'(w0)
        self._slope = math.cosh(angle) * math.sqrt(self._origin**2 - 1) / (n_stages * math.sinh(angle))

    def step(self, generator: torch.Generator, *, warming: bool) -> None:  # noqa: ARG002 - nothing to adapt
        """Make one step of all its stages."""
        origin, slope, n_stages = self._origin, self._slope, self._n_stages
        noise = self.target.noise(generator).mul_((2 * self._step).sqrt())
        before = self.image
        gradient = self.target.evaluate(before + n_stages * slope / 2 * noise).gradient
        here = before - slope / origin * self._step * gradient + n_stages * slope / origin * noise
        for stage in range(2, n_stages + 1):
            ratio = _chebyshev(stage - 1, origin) / _chebyshev(stage, origin)
            self.evaluation = self.target.evaluate(here)
            there = 2 * origin * ratio * here + (1 - 2 * origin * ratio) * before
            there.sub_(self.evaluation.gradient.mul_(2 * slope * ratio * self._step))
            before, here = here, there
        if self.target.reflecting:
            _reflect(here)
        self.image = here


def _chebyshev(degree: int, x: float) -> float:
    """Chebyshev polynomial of the first kind at x >= 1."""
    return math.cosh(degree * math.acosh(x))


def _per_row(values: Tensor) -> Tensor:
    return values.float()[:, None, None, None]


def _reflect(image: Tensor, velocity: Tensor | None = None) -> None:
    """Mirror negative real parts at 0, and the velocity with them, in place."""
    outside = image.real < 0
    image.real.abs_()
    if velocity is not None:
        velocity.real.mul_(1 - 2 * outside.float())
