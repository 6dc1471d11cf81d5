r"""A phantom of ellipses whose coil k-space is known in closed form at any point.

An ellipse with the semi-axes a and b, centred at r0 and turned by :math:`\varphi`, has the Fourier transform

.. math:: F(k) = a b \frac{J_1(2 \pi q)}{q}\, e^{-2 \pi i k \cdot r_0}, \qquad q = |(a\, k_u, b\, k_v)|

(k_u, k_v along its axes; :math:`\pi a b` at k = 0). A coil's sensitivity, the object's smooth phase included,
is a sum of a few waves, :math:`s_c(r) = \sum_m c_{cm} e^{2 \pi i f_m \cdot r}`, so its k-space is exactly
:math:`\sum_m c_{cm} F(k - f_m)`: no grid is involved, and nothing that a reconstruction could undo by having
the same one (Guerquin-Kern et al.).

References
----------
Van de Walle et al., "Reconstruction of MR images from data acquired on a general nonregular grid by
pseudoinverse calculation", IEEE Trans Med Imaging 19:1160 (2000), for the ellipse.
Guerquin-Kern et al., "Realistic analytical phantoms for parallel magnetic resonance imaging", IEEE Trans Med
Imaging 31:626 (2012), for the coils.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import j1

from reconlib.simulation.coils import loop_coils, smooth_phase

WAVES_PER_AXIS = 5
WAVE_PERIOD = 1.6
"""Longest wave of the sensitivities, in fields of view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ellipse:
    """An ellipse in the plane, lengths in fields of view: from -0.5 to 0.5 along x and y."""

    x: float | int
    y: float | int
    a: float | int
    """Semi-axis along its own first axis."""
    b: float | int
    turn_rad: float | int = 0.0
    """From the x axis towards the y axis."""
    value: float | int = 1.0
    """Added to what lies under it."""


PHANTOM = (
    Ellipse(x=0.0, y=0.0, a=0.345, b=0.43, value=0.9),
    Ellipse(x=0.0, y=0.004, a=0.318, b=0.402, value=-0.75),
    Ellipse(x=0.0, y=0.004, a=0.300, b=0.385, value=0.40),
    Ellipse(x=-0.075, y=-0.03, a=0.034, b=0.13, turn_rad=0.22, value=-0.32),
    Ellipse(x=0.075, y=-0.03, a=0.034, b=0.13, turn_rad=-0.22, value=-0.32),
    Ellipse(x=0.0, y=0.20, a=0.11, b=0.075, value=0.20),
    Ellipse(x=0.0, y=-0.27, a=0.10, b=0.045, value=0.25),
    Ellipse(x=-0.19, y=0.12, a=0.055, b=0.030, turn_rad=0.6, value=0.30),
    Ellipse(x=0.19, y=0.12, a=0.030, b=0.055, turn_rad=0.6, value=-0.15),
    Ellipse(x=0.205, y=-0.10, a=0.022, b=0.022, value=0.35),
    Ellipse(x=-0.205, y=-0.10, a=0.014, b=0.014, value=0.35),
    Ellipse(x=-0.215, y=-0.16, a=0.008, b=0.008, value=0.35),
    Ellipse(x=0.0, y=0.06, a=0.006, b=0.045, value=0.30),
    Ellipse(x=0.02, y=0.06, a=0.004, b=0.045, value=0.30),
    Ellipse(x=-0.02, y=0.06, a=0.003, b=0.045, value=0.30),
)
"""Scalp, skull and brain of a cartoon head, with ventricles, lesions, dots and bars of decreasing size."""


@dataclass(frozen=True, slots=True, eq=False)
class WaveCoils:
    """Sensitivities as sums of waves."""

    frequencies: NDArray[np.float64]
    """(wave, 2) along x and y, in cycles per field of view."""
    weights: NDArray[np.complex128]
    """(coil, wave)"""

    def on_grid(self, matrix: tuple[int, int]) -> NDArray[np.complex128]:
        """Return the sensitivities at the pixels of a grid (y, x), (coil, y, x)."""
        waves = [
            np.exp(2j * math.pi * self.frequencies[:, axis, None] * (np.arange(n) - n // 2) / n)
            for axis, n in ((1, matrix[0]), (0, matrix[1]))
        ]
        maps: NDArray[np.complex128] = np.einsum(
            "cm,my,mx->cyx", self.weights, waves[0], waves[1], optimize=True
        )
        return maps


def wave_coils(
    n_coils: int, *, generator: torch.Generator, fov_mm: tuple[float, float], phase_rad: float | int = 0.8
) -> WaveCoils:
    """Return sums of waves that resemble the loops of :func:`reconlib.simulation.coils.loop_coils`.

    A fit to those maps, multiplied by a smooth phase (:func:`reconlib.simulation.coils.smooth_phase`), inside
    the ellipse that touches the field of view. What the fit misses is no error: the fit is the coil.
    """
    matrix = (48, 48)
    maps = loop_coils(matrix, n_coils, generator=generator, fov_mm=fov_mm)[0].to(torch.complex128)
    phase = smooth_phase(matrix, generator=generator, fov_mm=fov_mm, amplitude_rad=phase_rad)[0]
    wanted = (maps * torch.exp(1j * phase.to(torch.float64))).numpy()
    steps = (np.arange(WAVES_PER_AXIS) - WAVES_PER_AXIS // 2) / WAVE_PERIOD
    frequencies = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    y, x = ((np.arange(n) - n // 2) / n for n in matrix)
    inside = (x**2 + y[:, None] ** 2) <= 0.25
    places = np.stack(np.broadcast_arrays(x[None, :], y[:, None]), axis=-1)[inside]
    waves = np.exp(2j * math.pi * places @ frequencies.T)
    # A little ridge: where waves can stand for each other, the weights stay small.
    normal = waves.conj().T @ waves + 1e-6 * len(places) * np.eye(len(frequencies))
    weights = np.linalg.solve(normal, waves.conj().T @ wanted[:, inside].T).T
    return WaveCoils(frequencies, weights)


def phantom_kspace(
    points: NDArray[np.float64], ellipses: Sequence[Ellipse] = PHANTOM
) -> NDArray[np.complex128]:
    """Return the Fourier transform (...) at points (..., 2), (kx, ky) in cycles per field of view."""
    one_coil = WaveCoils(np.zeros((1, 2)), np.ones((1, 1), np.complex128))
    samples: NDArray[np.complex128] = coil_kspace(points, one_coil, (1, 1), ellipses)[0]
    return samples


def coil_kspace(
    points: NDArray[np.float64],
    coils: WaveCoils,
    matrix: tuple[int, int],
    ellipses: Sequence[Ellipse] = PHANTOM,
) -> NDArray[np.complex128]:
    """Return the coils' samples (coil, ...) at points (..., 2) in cycles per field of view.

    Scaled as a unitary transform of an image of ``matrix`` (y, x) pixels is.
    """
    k_x, k_y = points[..., 0], points[..., 1]
    total = np.zeros((len(coils.weights), *points.shape[:-1]), np.complex128)
    shapes = np.zeros((len(coils.frequencies), *points.shape[:-1]))
    for ellipse in ellipses:
        place = np.array([ellipse.x, ellipse.y])
        for shape, (f_x, f_y) in zip(shapes, coils.frequencies, strict=True):
            shape[...] = _ellipse_at_origin(ellipse, k_x - f_x, k_y - f_y)
        # exp(-2 pi i (k - f).r0) is a factor of the point times one of the wave.
        weights = coils.weights * np.exp(2j * math.pi * coils.frequencies @ place)
        total += np.tensordot(weights, shapes, axes=1) * np.exp(-2j * math.pi * (points @ place))
    total *= math.sqrt(matrix[0] * matrix[1])
    return total


def _ellipse_at_origin(
    ellipse: Ellipse, k_x: NDArray[np.float64], k_y: NDArray[np.float64]
) -> NDArray[np.float64]:
    cos, sin = math.cos(ellipse.turn_rad), math.sin(ellipse.turn_rad)
    q = np.hypot(ellipse.a * (cos * k_x + sin * k_y), ellipse.b * (cos * k_y - sin * k_x))
    near = q < 1e-9
    q[near] = 1.0
    # torch's bessel_j1 is three times as fast, but off by 5e-7.
    shape = j1(2 * math.pi * q) / q
    shape[near] = math.pi
    result: NDArray[np.float64] = ellipse.value * ellipse.a * ellipse.b * shape
    return result


def phantom_image(matrix: tuple[int, int], ellipses: Sequence[Ellipse] = PHANTOM) -> NDArray[np.float64]:
    """Return the values at the pixels of a grid (y, x), without any limit of resolution."""
    y = ((np.arange(matrix[0]) - matrix[0] // 2) / matrix[0])[:, None]
    x = (np.arange(matrix[1]) - matrix[1] // 2) / matrix[1]
    image = np.zeros(matrix)
    for ellipse in ellipses:
        cos, sin = math.cos(ellipse.turn_rad), math.sin(ellipse.turn_rad)
        u = cos * (x - ellipse.x) + sin * (y - ellipse.y)
        v = cos * (y - ellipse.y) - sin * (x - ellipse.x)
        image += ellipse.value * ((u / ellipse.a) ** 2 + (v / ellipse.b) ** 2 <= 1)
    return image


def grid_points(matrix: tuple[int, int]) -> NDArray[np.float64]:
    """Return the points of complete Cartesian k-space of a matrix (y, x), (ky, kx, 2) as (kx, ky)."""
    k_y, k_x = ((np.arange(n) - n // 2).astype(np.float64) for n in matrix)
    points: NDArray[np.float64] = np.stack(np.broadcast_arrays(k_x[None, :], k_y[:, None]), axis=-1)
    return points
