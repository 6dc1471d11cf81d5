"""Small scans whose posterior is Gaussian, and the exact posterior from a dense solve."""

from dataclasses import dataclass

import numpy as np
import torch

from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointTrace
from reconlib.kspace import KSpace
from reconlib.priors.card import PriorCard
from reconlib.priors.library import Prior
from reconlib.reconstruction import Reconstruction, ReconstructionSettings

NO_IMAGINARY_PRIOR = ReconstructionSettings(imaginary_weight=0.0)


@dataclass(frozen=True)
class Quadratic:
    """R / T = |x|^2 / 2, with ``temperature`` T."""

    temperature: float = 1.0

    def value(self, image):
        return self.value_and_gradient(image)[0]

    def value_and_gradient(self, image):
        return self.temperature * image.square().sum(dim=(1, 2, 3)) / 2, self.temperature * image


@dataclass(frozen=True)
class Roughness:
    """R = |D x|^2 / 2, D the differences of neighbours that stop at the border."""

    temperature: float = 1.0

    def value(self, image):
        return self.value_and_gradient(image)[0]

    def value_and_gradient(self, image):
        value, gradient = torch.zeros(len(image)), torch.zeros_like(image)
        for axis in (-2, -1):
            difference = image.diff(dim=axis)
            value += difference.square().sum(dim=(1, 2, 3)) / 2
            n = difference.shape[axis]
            gradient.narrow(axis, 1, n).add_(difference)
            gradient.narrow(axis, 0, n).sub_(difference)
        return value, gradient


def prior_of(energy, **changes):
    card = {
        "name": "test",
        "version": "1.0",
        "description": "for tests",
        "architecture": {"kind": "total-variation", "epsilon": 1e-3},
        "temperature": energy.temperature,
        "prior_weight": {"rule": "noise"},
        "anatomy": "any",
        "licence": "MIT",
        "input": {"values": "signed"},
    }
    return Prior(PriorCard.model_validate(card | changes), energy)


def scan(generator, *, n_slices=1, n_coils=4, grid=(16, 16), keep=0.6, noise=0.05, factor=1.0):
    """Return k-space of smooth random coils, a random mask, and a made-up reconstruction."""
    n_y, n_x = grid
    y, x = torch.linspace(-1, 1, n_y)[:, None], torch.linspace(-1, 1, n_x)
    angles = torch.arange(n_coils) * (2 * torch.pi / n_coils)
    maps = [torch.exp(-((y - a.sin()) ** 2) - (x - a.cos()) ** 2 + 1j * (a + x * y)) for a in angles]
    coils = torch.stack(maps)[None].repeat(n_slices, 1, 1, 1).to(torch.complex64)
    coils = coils / coils.abs().square().sum(1, keepdim=True).sqrt()
    image = torch.rand(n_slices, 1, n_y, n_x, generator=generator) * torch.exp(0.5j * (x + y))
    shifted = torch.fft.ifftshift(coils * image, dim=(-2, -1))
    full = torch.fft.fftshift(torch.fft.fft2(shifted, norm="ortho"), dim=(-2, -1))
    drawn = torch.randn(2, *full.shape, generator=generator)
    mask = torch.rand(n_slices, 1, n_y, n_x, generator=generator) < keep
    mask[..., n_y // 2, n_x // 2] = True
    samples = factor * (full + noise * torch.complex(*drawn)) * mask
    kspace = KSpace(samples=samples, mask=mask, noise_std=factor * noise)
    return kspace, coils, image


def reconstruction_of(kspace, coils, image, *, weight, scale=1.0, phase="soft"):
    """Return what a reconstruction would hand over, with lambda ``weight``; image in units of the samples."""
    n_slices = len(image)
    return Reconstruction(
        image=image.to(torch.complex64),
        coils=coils,
        outcomes=(Outcome.OUT_OF_ITERATIONS,) * n_slices,
        n_iterations=(1,) * n_slices,
        scale=(scale,) * n_slices,
        noise_level=(kspace.noise_std * scale,) * n_slices,
        prior_weight=(weight,) * n_slices,
        mean_coil_magnitude=(1.0,) * n_slices,
        prior_weight_rule="noise",
        image_phase=phase,
        solver="fast",
        trace=JointTrace(**dict.fromkeys(JointTrace.__slots__, torch.zeros(0, n_slices))),
    )


def exact_posterior(kspace, coils, energy, weight):
    """Return mean and std (y, x) of one slice and its precision, from a dense model in numpy, in float64.

    With x = (a, b): precision A^T A / sigma^2 + (weight / sigma^2) Hess R on a, mean from A^T z. A is written
    out with numpy's FFT, pixel by pixel.
    """
    samples, mask = kspace.samples[0].numpy(), kspace.mask[0, 0].numpy()
    maps = coils[0].numpy().astype(np.complex128)
    n_y, n_x = mask.shape
    n = n_y * n_x
    axes = (-2, -1)
    units = np.eye(n).reshape(n, 1, n_y, n_x) * maps
    columns = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(units, axes=axes), norm="ortho"), axes=axes)
    model = columns[:, :, mask].reshape(n, -1).T
    real_model = np.block([[model.real, -model.imag], [model.imag, model.real]])
    data = samples[:, mask].ravel()
    variance = kspace.noise_std**2
    precision = real_model.T @ real_model / variance
    pixels = torch.eye(n).reshape(n, 1, n_y, n_x)
    hessian = energy.value_and_gradient(pixels)[1].reshape(n, n).numpy()
    precision[:n, :n] += weight / variance * hessian
    right = real_model.T @ np.concatenate([data.real, data.imag]) / variance
    mean = np.linalg.solve(precision, right)
    mean = mean[:n] + 1j * mean[n:]
    return mean.reshape(n_y, n_x), std_along(mean, np.linalg.inv(precision)).reshape(n_y, n_x), precision


def std_along(mean, covariance):
    """Std of Re(x conj(m) / |m|) per pixel, from the covariance of (a, b)."""
    n = len(mean)
    c, s = mean.real / np.abs(mean), mean.imag / np.abs(mean)
    pixels = np.arange(n)
    aa, bb = covariance[pixels, pixels], covariance[pixels + n, pixels + n]
    return np.sqrt(c**2 * aa + s**2 * bb + 2 * c * s * covariance[pixels, pixels + n])
