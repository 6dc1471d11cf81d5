r"""The density of a prior over a plane: figure 2 of the paper.

The plane goes through the mean of the images of a Langevin run, along the two directions in which they vary
most. Over it :math:`\exp(-(R - R_{min}) / \tilde T)` is shown. At the prior's own temperature a plane is
black but for a point, since R is a sum over all pixels; :math:`\tilde T` is chosen for the eye.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.posterior.langevin import unadjusted_langevin
from reconlib.priors.errors import PriorError
from reconlib.priors.library import Prior
from reconlib.priors.sampling import sample_prior, sampling_stages

MARGIN = 1.5
"""The plane reaches this times as far as the run does from its mean."""
MEDIAN_HEIGHT = 0.25
"""Half of the plane is shown above this height, which is what sets T~."""
_MOST_KEPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A plane in the space of images."""

    origin: Tensor
    """float32 (1, 1, y, x)"""
    directions: Tensor
    """float32 (2, 1, y, x), orthonormal"""
    coordinates: Tensor
    """of the images that made the plane: float64 (image, 2)"""
    explained: tuple[float, float]
    """share of the images' variance along each direction"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landscape:
    """Energies over a plane."""

    plane: Plane
    first: Tensor
    """coordinates along the first direction, float64 (point,)"""
    second: Tensor
    """coordinates along the second direction, float64 (point,)"""
    energy: Tensor
    """R, float64 (second, first)"""
    shown_temperature: float
    """T~"""

    @property
    def density(self) -> Tensor:
        """exp(-(R - min R) / T~), float64 (second, first): between 0 and 1."""
        return torch.exp(-(self.energy - self.energy.min()) / self.shown_temperature)


def prior_landscape(
    prior: Prior,
    *,
    matrix: tuple[int, int],
    n_steps: int,
    n_points: int,
    generator: torch.Generator,
    on_step: Callable[[], None] | None = None,
) -> Landscape:
    """Run one chain for ``n_steps`` steps after as many to settle, and look at R over its plane.

    ``on_step`` is called ``2 n_steps + n_points`` times.
    """
    settled = sample_prior(
        prior, n_images=1, matrix=matrix, n_steps=n_steps, generator=generator, on_step=on_step
    )
    kept: list[Tensor] = []
    every = -(-n_steps // _MOST_KEPT)

    def keep(step: int, image: Tensor) -> None:
        if step % every == 0:
            kept.append(image.clone())
        if on_step is not None:
            on_step()

    energy, step_size, _ = sampling_stages(prior, n_steps)[-1]
    unadjusted_langevin(
        energy, settled, step_size=step_size, n_steps=n_steps, generator=generator, on_step=keep
    )
    plane = principal_plane(torch.cat(kept))
    return landscape_on(energy, plane, n_points=n_points, on_row=on_step)


def principal_plane(images: Tensor) -> Plane:
    """Return the plane through the mean of images (image, 1, y, x) along their two principal directions.

    Raises
    ------
    PriorError
        There are fewer than three images, or they do not vary in two directions.
    """
    origin = images.double().mean(dim=0, keepdim=True)
    rows = (images.double() - origin).flatten(1)
    if len(rows) >= 3:
        _, values, directions = torch.linalg.svd(rows, full_matrices=False)
    if len(rows) < 3 or not bool(values[1] > 1e-9 * values[0]):
        raise PriorError(f"the {len(rows)} images of the run do not span a plane; take more steps.")
    directions = directions[:2]
    share = values.square() / values.square().sum()
    return Plane(
        origin=origin.float(),
        directions=directions.unflatten(1, images.shape[1:]).float(),
        coordinates=rows @ directions.T,
        explained=(float(share[0]), float(share[1])),
    )


def landscape_on(
    energy: Energy, plane: Plane, *, n_points: int, on_row: Callable[[], None] | None = None
) -> Landscape:
    """Evaluate an energy over a plane, at ``n_points`` x ``n_points`` points."""
    reach = MARGIN * plane.coordinates.abs().amax(dim=0)
    first, second = (torch.linspace(-float(r), float(r), n_points, dtype=torch.float64) for r in reach)
    rows = []
    for y in second.tolist():
        along = first.to(plane.origin)[:, None, None, None] * plane.directions[0]
        rows.append(energy.value(plane.origin + along + y * plane.directions[1]).double().cpu())
        if on_row is not None:
            on_row()
    values = torch.stack(rows)
    if not bool(torch.isfinite(values).all()):
        raise PriorError("the energy is not finite everywhere on the plane.")
    spread = float(values.median() - values.min())
    temperature = spread / -math.log(MEDIAN_HEIGHT) if spread > 0 else 1.0
    return Landscape(plane=plane, first=first, second=second, energy=values, shown_temperature=temperature)
