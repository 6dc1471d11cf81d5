"""K-space of a batch of slices, on the grid or at any points: the data that a reconstruction starts from."""

from dataclasses import dataclass, replace

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
        """Return the same k-space on another device; on a CUDA device, it may still be on its way."""
        return replace(self, samples=_moved(self.samples, device), mask=_moved(self.mask, device))


@dataclass(frozen=True, slots=True, kw_only=True)
class NonuniformKSpace:
    """Samples of a batch of two-dimensional slices at any points of k-space (radial, spiral, ...).

    The scale is that of :class:`KSpace`: at the points of a complete Cartesian grid the samples would be
    those of the unitary FFT (:mod:`reconlib.operators.nonuniform`).
    """

    samples: Tensor
    """complex64 (slice, coil, point)"""
    trajectory: Tensor
    """float32 or float64 (slice or 1, point, 2): (ky, kx) in cycles per pixel, within -0.5 to 0.5."""
    weights: Tensor
    """float32 (slice or 1, point): density weights W, not negative, with A^H W A about 1 on a flat image.
    They shape the start, never what is minimised."""
    shape: tuple[int, int]
    """(y, x) of the images."""
    noise_std: float
    """Standard deviation of the noise per real component, in the units of ``samples``."""

    def __post_init__(self) -> None:
        if self.samples.ndim != 3 or not self.samples.is_complex():
            raise ValueError(
                f"NonuniformKSpace.samples is {self.samples.dtype} of shape {tuple(self.samples.shape)}; "
                "it must be complex with the axes (slice, coil, point)."
            )
        n_slices, _, n_points = self.samples.shape
        for name, tail in (("trajectory", (n_points, 2)), ("weights", (n_points,))):
            found = tuple(getattr(self, name).shape)
            if found not in ((n_slices, *tail), (1, *tail)):
                raise ValueError(
                    f"NonuniformKSpace.{name} has the shape {found}; samples of shape "
                    f"{tuple(self.samples.shape)} need {(n_slices, *tail)}, or 1 in place of {n_slices}."
                )
        if not self.noise_std > 0:
            raise ValueError(
                f"NonuniformKSpace.noise_std is {self.noise_std}; it must be positive, in the units of "
                "samples."
            )

    def to(self, device: torch.device | str) -> "NonuniformKSpace":
        """Return the same k-space on another device; on a CUDA device, it may still be on its way."""
        return replace(
            self,
            samples=_moved(self.samples, device),
            trajectory=_moved(self.trajectory, device),
            weights=_moved(self.weights, device),
        )


def _moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return a tensor on another device, from the CPU to a CUDA device without waiting for the copy.

    What is done with the result on the same stream comes after the copy. The device reads a copy in pinned
    memory, which torch keeps as long as that takes: its caching host allocator notes the stream of each copy,
    and hands memory out again, without pinning it anew, when that stream has come so far. Where no memory can
    be pinned, the copy is waited for.
    """
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        try:
            return tensor.pin_memory().to(device, non_blocking=True)
        except RuntimeError:
            pass
    return tensor.to(device)
