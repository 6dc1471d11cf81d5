r"""Fourier transforms: centred and unitary for people, folded for the solver's inner loop.

The centred transform has the zero frequency and the image's origin at index ``n // 2`` of each axis:
``fftshift(fft2(ifftshift(x)))``, with the unitary scaling. For even and odd n alike

.. math:: F_c = \mathrm{fftshift} \cdot P \cdot F, \qquad P_k = \exp(2 \pi i k (n // 2) / n)

with F the plain unitary FFT. Shifts and phases commute with the sampling mask, so they can be moved once
into the data: :math:`\|M F_c x - z\| = \|M' F x - z'\|` with :math:`M' = \mathrm{ifftshift}(M)` and
:math:`z' = \bar P\, \mathrm{ifftshift}(z)`. The inner loop then needs plain FFTs only.

Where every sampled line is complete along kx or ky, the transform along that axis is moved into the data as
well (it is unitary), and the inner loop transforms along the other axis only.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.kspace import KSpace

_AXES = (-2, -1)


def fft2c(image: Tensor) -> Tensor:
    """Centred unitary Fourier transform of the last two axes."""
    shifted = torch.fft.ifftshift(image, dim=_AXES)
    kspace: Tensor = torch.fft.fftshift(torch.fft.fft2(shifted, norm="ortho"), dim=_AXES)
    return kspace


def ifft2c(kspace: Tensor) -> Tensor:
    """Inverse (and adjoint) of :func:`fft2c`."""
    shifted = torch.fft.ifftshift(kspace, dim=_AXES)
    image: Tensor = torch.fft.fftshift(torch.fft.ifft2(shifted, norm="ortho"), dim=_AXES)
    return image


@dataclass(frozen=True, slots=True, eq=False)
class SampledFourier:
    r"""Sampled Fourier transform :math:`M' F` in the folded layout of this module.

    Coil images complex64 (slice, coil, y, x) to samples of the same shape, zero where not acquired. Its
    norm is at most 1. :meth:`fold` makes it from k-space, together with the data in the same layout.
    """

    mask: Tensor
    """float32 (slice, 1, ky or 1, kx or 1): 1 where acquired, in FFT order."""
    axes: tuple[int, ...]
    """The axes that are transformed: both, or only that along which lines are incomplete."""

    @staticmethod
    def fold(kspace: KSpace) -> "tuple[SampledFourier, Tensor]":
        """Return the operator and the data z' of centred k-space."""
        mask = torch.fft.ifftshift(kspace.mask, dim=_AXES)
        samples = torch.fft.ifftshift(kspace.samples * kspace.mask, dim=_AXES)
        for axis in _AXES:
            samples = samples * _centre_phase(samples.shape[axis], samples.device, axis).conj()
        for axis, other in ((-2, -1), (-1, -2)):
            first = mask.narrow(axis, 0, 1)
            if bool((mask == first).all()):
                samples = torch.fft.ifft(samples, dim=axis, norm="ortho").contiguous()
                return SampledFourier(first.float(), (other,)), samples
        return SampledFourier(mask.float(), _AXES), samples

    def forward(self, coil_images: Tensor, /) -> Tensor:
        """Coil images to samples."""
        samples: Tensor = torch.fft.fftn(coil_images, dim=self.axes, norm="ortho")
        return samples.mul_(self.mask)

    def adjoint(self, samples: Tensor, /) -> Tensor:
        """Samples to coil images; samples off the mask are ignored."""
        coil_images: Tensor = torch.fft.ifftn(samples * self.mask, dim=self.axes, norm="ortho")
        return coil_images

    def adjoint_in_place(self, samples: Tensor, /) -> Tensor:
        """Samples that are zero off the mask to coil images, in the same memory."""
        torch.fft.ifftn(samples, dim=self.axes, norm="ortho", out=samples)
        return samples

    def normal_in_place(self, coil_images: Tensor, /) -> Tensor:
        """F^H M F of coil images, which are overwritten."""
        torch.fft.fftn(coil_images, dim=self.axes, out=coil_images)
        torch.fft.ifftn(coil_images.mul_(self.mask), dim=self.axes, out=coil_images)
        return coil_images

    def select(self, rows: Tensor) -> "SampledFourier":
        """Return the operator of some of the slices."""
        return SampledFourier(self.mask[rows], self.axes)


def _centre_phase(n: int, device: torch.device, axis: int) -> Tensor:
    """P of the module's text for one axis, shaped to broadcast along ``axis``."""
    turns = torch.arange(n, dtype=torch.int64) * (n // 2) % n
    phase = torch.polar(torch.ones(n, dtype=torch.float64), 2 * math.pi * turns.double() / n)
    phase = phase.to(device=device, dtype=torch.complex64)
    return phase[:, None] if axis == -2 else phase
