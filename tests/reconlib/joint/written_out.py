"""The joint problem in numpy and torch as its formulas stand, and scipy's minimum of it."""

from typing import Literal

import numpy as np
import scipy.optimize
import torch
from small_problem import SmallProblem

EPSILON = 0.05
"""Of total variation."""
WEIGHT, IMAGINARY_WEIGHT = 1 / 32, 1 / 16
"""lambda, and that of the imaginary part of a soft phase; exact in float32."""
_AXES = (-2, -1)

EnergyName = Literal["tv", "logcosh"]


def coil_gradient(
    image: torch.Tensor, directions: torch.Tensor, magnitude: torch.Tensor, pull: torch.Tensor
) -> torch.Tensor:
    """Gradient of H in the maps, from the normalised maps e, their magnitude and g at e x."""
    turned = image.conj() * pull
    radial = torch.einsum("scyx,scyx->syx", directions.conj(), turned).real[:, None]
    return (turned - directions * radial) / magnitude


def total_variation(image: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient of the smoothed total variation of one image."""
    d_y, d_x = np.zeros_like(image), np.zeros_like(image)
    d_y[:-1], d_x[:, :-1] = np.diff(image, axis=0), np.diff(image, axis=1)
    root = np.sqrt(d_y**2 + d_x**2 + EPSILON**2)
    d_y, d_x = d_y / root, d_x / root
    gradient = -d_y - d_x
    gradient[1:] += d_y[:-1]
    gradient[:, 1:] += d_x[:, :-1]
    return float(np.sum(root - EPSILON)), gradient


def log_cosh(image: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient of the sum of log cosh(2 d) over the differences d of neighbours."""
    value, gradient = 0.0, np.zeros_like(image)
    for axis in (0, 1):
        d = 2 * np.diff(image, axis=axis)
        value += float(np.sum(np.logaddexp(d, -d) - np.log(2)))
        before = [(0, 0), (0, 0)]
        before[axis] = (1, 1)
        gradient -= 2 * np.diff(np.pad(np.tanh(d), before), axis=axis)
    return value, gradient


class LogCosh:
    """The same in torch: a smooth energy whose curvature is at most 32. Counts how often it is asked."""

    temperature = 1.0

    def __init__(self) -> None:
        self.n_values = 0
        self.n_gradients = 0

    def value(self, image: torch.Tensor, /) -> torch.Tensor:
        self.n_values += 1
        differences = [2 * torch.diff(image, dim=axis) for axis in _AXES]
        values = [torch.logaddexp(d, -d) - np.log(2) for d in differences]
        return torch.stack([one.sum(dim=(1, 2, 3), dtype=torch.float64) for one in values]).sum(dim=0)

    def value_and_gradient(self, image: torch.Tensor, /) -> tuple[torch.Tensor, torch.Tensor]:
        self.n_gradients += 1
        self.n_values -= 1
        point = image.detach().requires_grad_(True)
        value = self.value(point)
        (gradient,) = torch.autograd.grad(value.sum(), point)
        return value.detach(), gradient


def data_term(problem: SmallProblem, image: np.ndarray, row: int = 0) -> tuple[float, np.ndarray]:
    """H of one slice at its true maps, and the gradient in the image, in centred k-space."""
    coils, samples = problem.coils.numpy()[row], problem.kspace.samples.numpy()[row]
    kspace = np.fft.fft2(np.fft.ifftshift(coils * image, axes=_AXES), norm="ortho")
    residual = (np.fft.fftshift(kspace, axes=_AXES) - samples) * problem.kspace.mask.numpy()[row]
    back = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(residual, axes=_AXES), norm="ortho"), axes=_AXES)
    return float(np.sum(np.abs(residual) ** 2) / 2), np.sum(coils.conj() * back, axis=0)


def scipy_minimum(
    problem: SmallProblem, phase: str, energy: EnergyName = "tv", *, row: int = 0
) -> tuple[float, np.ndarray]:
    """L-BFGS-B on the objective of one slice with its true maps; returns value and complex image."""
    grid = problem.image.shape[-2:]
    prior = total_variation if energy == "tv" else log_cosh
    n_parts = 1 if phase == "real" else 2

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        parts = x.reshape(-1, *grid)
        total, gradient = data_term(problem, parts[0] + (1j * parts[1] if n_parts == 2 else 0), row)
        slopes = []
        for part, slope in zip(parts, (gradient.real, gradient.imag), strict=False):
            is_second = phase == "soft" and bool(slopes)
            value, pull = total_variation(part) if is_second else prior(part)
            weight = IMAGINARY_WEIGHT if is_second else WEIGHT
            total += weight * value
            slopes.append(slope + weight * pull)
        return total, np.stack(slopes).ravel()

    n = n_parts * grid[0] * grid[1]
    found = scipy.optimize.minimize(
        objective,
        np.full(n, 0.5),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * n if phase == "real" else None,
        options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 40},
    )
    parts = found.x.reshape(-1, *grid)
    return float(found.fun), parts[0] + (1j * parts[1] if n_parts == 2 else 0)
