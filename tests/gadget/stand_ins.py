"""Stand-ins for the joint reconstruction whose images mean something."""

import numpy as np
import torch
from simulated_scans import StandIn


class ZeroFilled(StandIn):
    """A stand-in whose image is the zero-filled root sum of squares, computed by numpy."""

    def __call__(self, kspace, **others):
        result = super().__call__(kspace, **others)
        axes = (-2, -1)
        shifted = np.fft.ifftshift(kspace.samples.numpy(), axes=axes)
        images = np.fft.fftshift(np.fft.ifft2(shifted, norm="ortho"), axes=axes)
        result.image = torch.from_numpy(np.sqrt((np.abs(images) ** 2).sum(axis=1, keepdims=True))).to(
            torch.complex64
        )
        return result
