"""A small joint problem with known maps and image, made with numpy."""

from dataclasses import dataclass

import numpy as np
import torch

from reconlib.joint.data_consistency import DataConsistency
from reconlib.kspace import KSpace
from reconlib.operators.fourier import SampledFourier


@dataclass(frozen=True)
class SmallProblem:
    """One or more slices; float64 throughout."""

    kspace: KSpace
    image: torch.Tensor
    """Truth, complex (slice, 1, y, x)."""
    coils: torch.Tensor
    """Truth, complex (slice, coil, y, x), root-sum-of-squares 1."""
    data: DataConsistency

    def start(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The paper's start: zero-filled root-sum-of-squares, and the coil images divided by it."""
        coil_images = self.data.fourier.adjoint(self.data.samples)
        image = torch.linalg.vector_norm(coil_images, dim=1, keepdim=True)
        return image.to(coil_images.dtype), coil_images / image.clamp_min(1e-30)

    def single(self) -> DataConsistency:
        """The data in the precision of real scans."""
        return DataConsistency(self.data.fourier, self.data.samples.to(torch.complex64))


def smooth_maps(n_coils: int, grid: tuple[int, int], turn: float) -> np.ndarray:
    """Coils on a ring, Gaussian in magnitude, linear in phase, normalised."""
    y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in grid), indexing="ij")
    maps = []
    for c in range(n_coils):
        angle = 2 * np.pi * c / n_coils + turn
        c_y, c_x = 1.2 * np.sin(angle), 1.2 * np.cos(angle)
        maps.append(np.exp(-((y - c_y) ** 2 + (x - c_x) ** 2) / 2 + 0.7j * (c_x * y - c_y * x + c)))
    stack = np.stack(maps)
    return stack / np.linalg.norm(stack, axis=0)


def small_problem(
    *,
    grid: tuple[int, int] = (12, 10),
    n_coils: int = 3,
    n_slices: int = 1,
    keep: float = 0.6,
    noise: float = 0.0,
    imaginary: float = 0.0,
    dark: bool = False,
    seed: int = 0,
) -> SmallProblem:
    """Random blocks on a positive (or ``dark``) ground; ``keep`` is the share of sampled lines."""
    rng = np.random.default_rng(seed)
    axes = (-2, -1)
    images, coils, masks = [], [], []
    for i in range(n_slices):
        image = 0.3 + 0.1 * rng.random(grid)
        if dark:
            image *= 0
        for _ in range(4):
            top, left = rng.integers(grid[0] - 3), rng.integers(grid[1] - 3)
            image[top : top + 4, left : left + 4] += 0.3 * rng.random()
        images.append((image / image.max() * (1 + imaginary * 1j * np.sin(image * 9)))[None])
        coils.append(smooth_maps(n_coils, grid, 0.3 * i))
        lines = rng.random(grid[0]) < keep
        lines[grid[0] // 2 - 2 : grid[0] // 2 + 2] = True
        masks.append(np.broadcast_to(lines[:, None], grid)[None])
    image, maps, mask = np.stack(images), np.stack(coils), np.stack(masks)
    samples = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(maps * image, axes=axes), norm="ortho"), axes=axes)
    samples = samples + noise * (rng.normal(size=samples.shape) + 1j * rng.normal(size=samples.shape))
    kspace = KSpace(
        samples=torch.from_numpy(samples * mask),
        mask=torch.from_numpy(mask.copy()),
        noise_std=max(noise, 1e-3),
    )
    fourier, folded = SampledFourier.fold(kspace)
    return SmallProblem(
        kspace=kspace,
        image=torch.from_numpy(image).to(torch.complex128),
        coils=torch.from_numpy(maps),
        data=DataConsistency(fourier, folded),
    )


def single_precision(kspace: KSpace, factor: float = 1.0) -> KSpace:
    """The same k-space as a scanner sends it, times a factor."""
    return KSpace(
        samples=(kspace.samples * factor).to(torch.complex64),
        mask=kspace.mask,
        noise_std=kspace.noise_std * factor,
    )
