r"""Density weights: the area of k-space that each sample stands for.

Weights W are in (cycles per field of view) squared, so that a complete Cartesian grid has W = 1 and, with the
unitary scaling of A (a complete Cartesian grid gives the unitary FFT), :math:`A^H W A` is about the identity
on images of the resolution that was measured. They shape a start image (:math:`A^H W z`); they have no part
in what a reconstruction minimises.

The iteration is that of Pipe and Menon: :math:`w \leftarrow w / (K w)`, where K convolves with a kernel in
k-space and evaluates at the samples. Here :math:`K = A\,T A^H` with a window T in image space that falls from
1 at the centre to 0 at a distance d: the overlap of two discs of diameter d. Its Fourier transform is the
square of an Airy pattern, nowhere negative, so weights stay positive (Johnson and Pipe). Where it has
converged, :math:`A^H W A` maps a point to itself, apart from what lies further away than d.

References
----------
Pipe and Menon, "Sampling density compensation in MRI: rationale and an iterative numerical solution", Magn
Reson Med 41:179 (1999).
Johnson and Pipe, "Convolution kernel design and efficient algorithm for sampling density correction", Magn
Reson Med 61:439 (2009).
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.trajectories.angles import shares_of_half_circle
from reconlib.trajectories.coordinates import transform_points
from reconlib.trajectories.radial import SpokeGeometry

Transform = Callable[[Tensor], Tensor]
"""Forward: image complex (1, 1, y, x) to samples (1, 1, sample); adjoint: the other way round."""

ITERATIONS = 10


def density_weights(
    points: NDArray[np.float64],
    matrix: tuple[int, int],
    *,
    given: NDArray[np.float64] | None = None,
    geometry: SpokeGeometry | None = None,
) -> Tensor:
    """Return the weights for a start image, float64 (point,), scaled by :func:`scaled_to_identity`.

    Those of the scan where it has any; for full spokes the ramp, for bands of at most one cycle per field of
    view; else the iterative ones.

    Parameters
    ----------
    points
        (readout, sample, 2), (kx, ky) in cycles per field of view.
    matrix
        (y, x) of the image.
    given
        The scan's own, (readout, sample).
    geometry
        Of the points, where they are full spokes (:func:`reconlib.trajectories.radial.spoke_geometry`).
    """
    if given is not None:
        weights = torch.from_numpy(np.array(given, np.float64).reshape(-1))
    elif geometry is not None:
        ramp = ramp_weights(
            geometry.angles, points.shape[1], centre=geometry.nearest, spacing=geometry.spacing, widest=1.0
        )
        weights = torch.from_numpy(ramp.reshape(-1))
    else:
        twice = (2 * matrix[0], 2 * matrix[1])
        # Points per pixel of the doubled grid are those of the grid itself.
        wide = NonuniformFourier.plan(transform_points(points, matrix), twice, eps=1e-3)
        start = torch.ones(points.shape[0] * points.shape[1])
        weights = iterative_weights(wide.forward, wide.adjoint, start, twice).double()
    transform = NonuniformFourier.plan(transform_points(points, matrix), matrix, eps=1e-3)
    return scaled_to_identity(weights.float(), transform.forward, matrix).double()


def ramp_weights(
    angles: NDArray[np.float64],
    n_samples: int,
    *,
    centre: NDArray[np.float64] | float | int,
    spacing: float | int = 1.0,
    widest: float | int = math.inf,
) -> NDArray[np.float64]:
    r"""Return the weights (spoke, sample) of full radial spokes in closed form.

    A sample at the radius r stands for :math:`|r| \Delta\, \delta\theta`, with the spoke's share of the half
    circle (:func:`shares_of_half_circle`). A sum over samples misses an integral of :math:`|r| f(r)` at its
    kink: by Euler and Maclaurin's formula by :math:`\Delta^2 B_2(\theta) f(0)`, with Bernoulli's polynomial
    :math:`B_2 = \theta^2 - \theta + 1/6`, where the samples next to the centre are :math:`\theta \Delta` and
    :math:`(1 - \theta) \Delta` away from it. These two share that: :math:`\Delta^2 / 6` for a sample at the
    centre itself.

    ``centre`` is the (fractional) sample at the centre of k-space, of all spokes or of each (spoke,). Spokes
    stand for a band of k-space no wider than ``widest`` cycles per field of view: what lies further from any
    spoke is not known, and larger weights would only amplify streaks.
    """
    middle = np.broadcast_to(np.asarray(centre, np.float64), angles.shape)[:, None]
    samples = np.arange(n_samples)
    below = np.floor(middle)
    theta = middle - below
    kink = (theta**2 - theta + 1 / 6) * ((1 - theta) * (samples == below) + theta * (samples == below + 1))
    width = shares_of_half_circle(angles)[:, None] * spacing * (np.abs(samples - middle) + kink)
    weights: NDArray[np.float64] = spacing * np.minimum(width, widest)
    return weights


def iterative_weights(
    forward: Transform,
    adjoint: Transform,
    start: Tensor,
    matrix: tuple[int, int],
    *,
    n_iterations: int = ITERATIONS,
) -> Tensor:
    """Return the weights of any trajectory by Pipe and Menon's iteration, positive, (sample,) as ``start``.

    Parameters
    ----------
    forward, adjoint
        Of the trajectory, on an image of ``matrix`` (y, x); unitary scaling.
    start
        Positive weights to start from, float (sample,): ones will do.

    The window T falls to zero at half the shorter side of the grid. Two points of an object can be a whole
    field of view apart, so give transforms on a grid that covers twice the reconstruction's field of view: a
    matrix twice as large, and points, in cycles per that field of view, twice as far out. Then scale the
    weights with the reconstruction's own transform (:func:`scaled_to_identity`).
    """
    if start.ndim != 1 or not bool((start > 0).all()):
        raise ValueError(
            f"Weights start from positive numbers (sample,); these are of shape {tuple(start.shape)}, "
            f"the least of them {float(start.min()) if start.numel() else 'none'}."
        )
    window = _overlap_of_discs(matrix).to(start.device)
    weights = start
    for _ in range(n_iterations):
        image = adjoint(weights.to(_complex_of(weights))[None, None]) * window
        density = forward(image)[0, 0].real
        # The kernel is nowhere negative, but the transforms are accurate to some digits only.
        weights = weights / density.clamp_min(1e-6 * float(density.max()))
    return weights


def scaled_to_identity(weights: Tensor, forward: Transform, matrix: tuple[int, int]) -> Tensor:
    r"""Scale weights (sample,) so that :math:`A^H W A` is about 1 on a flat image.

    The factor is :math:`\langle x, x\rangle / \langle A x, W A x\rangle` for an image x that is flat in the
    middle of the field of view and falls off smoothly (a Hann window), so that the resolution plays no part.
    """
    rows, columns = (
        torch.hann_window(n, periodic=False, dtype=weights.dtype, device=weights.device) for n in matrix
    )
    flat = (rows[:, None] * columns).to(_complex_of(weights))
    power = forward(flat[None, None])[0, 0].abs().square()
    held = float((weights * power).sum())
    if not held > 0:
        raise ValueError("Weights of zero cannot be scaled: no sample near the centre of k-space has any.")
    return weights * (float(flat.abs().square().sum()) / held)


def _overlap_of_discs(matrix: tuple[int, int]) -> Tensor:
    """Overlap of two discs whose diameter is half the shorter side of the grid, by their distance."""
    n_y, n_x = matrix
    y = torch.arange(n_y, dtype=torch.float64)[:, None] - n_y // 2
    x = torch.arange(n_x, dtype=torch.float64) - n_x // 2
    ratio = ((y.square() + x.square()).sqrt() / (min(matrix) / 2)).clamp_max(1.0)
    overlap = (2.0 / math.pi) * (ratio.acos() - ratio * (1.0 - ratio.square()).sqrt())
    return overlap.to(torch.float32)


def _complex_of(weights: Tensor) -> torch.dtype:
    return torch.complex128 if weights.dtype == torch.float64 else torch.complex64
