"""K-space of a batch of slices: the data that a reconstruction starts from."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KSpace:
    """Cartesian k-space of a batch of two-dimensional slices.

    The grid is centred (the zero frequency at index ``n // 2`` of each axis) and belongs to the unitary
    FFT, so white noise has the same standard deviation in the samples and in the coil images.
    """

    samples: Tensor
    """complex64 (slice, coil, ky, kx); zero where not acquired."""
    mask: Tensor
    """bool (slice, 1, ky, kx); true where acquired."""
    noise_std: float
    """Standard deviation of the noise per real component, in the units of ``samples``."""

    def __post_init__(self) -> None:
        if self.samples.ndim != 4 or not self.samples.is_complex():
            raise ValueError(
                f"KSpace.samples is {self.samples.dtype} of shape {tuple(self.samples.shape)}; "
                "it must be complex with the axes (slice, coil, ky, kx)."
            )
        n_slices, _, n_ky, n_kx = self.samples.shape
        if tuple(self.mask.shape) != (n_slices, 1, n_ky, n_kx) or self.mask.dtype != torch.bool:
            raise ValueError(
                f"KSpace.mask is {self.mask.dtype} of shape {tuple(self.mask.shape)}, but samples of shape "
                f"{tuple(self.samples.shape)} need bool ({n_slices}, 1, {n_ky}, {n_kx}) (slice, 1, ky, kx)."
            )
        if not self.noise_std > 0:
            raise ValueError(
                f"KSpace.noise_std is {self.noise_std}; it must be positive, in the units of samples."
            )

    def to(self, device: torch.device | str) -> "KSpace":
        """Return the same k-space on another device."""
        return KSpace(samples=self.samples.to(device), mask=self.mask.to(device), noise_std=self.noise_std)
