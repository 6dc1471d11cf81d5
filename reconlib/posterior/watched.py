r"""The statistics by which chains are judged: those in which slow or stuck chains show.

* the energy of the prior and the data term;
* the real and imaginary part of eight coefficients of the image's Fourier transform: the four lowest
  frequencies, and the four lowest that were not acquired (where there are such). What was acquired is known
  well and mixes fast; the coarse shape of what was not is what takes longest;
* sixteen pixels of the object: of each the part that has the phase of the reconstruction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.joint.data_consistency import DataConsistency
from reconlib.operators.least_squares import LeastSquares
from reconlib.posterior.target import Evaluation

N_FREQUENCIES = 4
"""Of each kind."""
N_PIXELS = 16
OBJECT_THRESHOLD = 0.1
"""Pixels brighter than this times the largest belong to the object."""
_PIXEL_SEED = 340


@dataclass(frozen=True, slots=True, eq=False)
class WatchedStatistics:
    """Where to look in the images of each slice."""

    frequencies: Tensor
    """int64 (slice, frequency): flat index into the FFT of an image."""
    pixels: Tensor
    """int64 (slice, pixel): flat index into an image."""
    directions: Tensor
    """complex64 (slice, pixel): the reconstruction's phase there."""

    @staticmethod
    def choose(image: Tensor, data: DataConsistency | LeastSquares) -> "WatchedStatistics":
        """Choose for reconstructions complex (slice, 1, y, x), of the measured ``data``.

        The choice in a slice does not depend on the others, nor on the random numbers of the chains.
        """
        n_slices, _, n_y, n_x = image.shape
        cycles = torch.fft.fftfreq(n_y)[:, None] ** 2 + torch.fft.fftfreq(n_x) ** 2
        order = cycles.flatten().argsort(stable=True).to(image.device)
        acquired = _acquired(data).expand(n_slices, 1, n_y, n_x).reshape(n_slices, -1)
        lowest = order[:N_FREQUENCIES].expand(n_slices, -1)
        # stable: those not acquired first, by rising frequency; where all are, the lowest once more
        missing = acquired[:, order].to(torch.uint8).argsort(dim=1, stable=True)[:, :N_FREQUENCIES]
        magnitude = image.abs().flatten(1)
        inside = magnitude > OBJECT_THRESHOLD * magnitude.amax(dim=1, keepdim=True)
        drawn = torch.rand(n_y * n_x, generator=torch.Generator().manual_seed(_PIXEL_SEED))
        ranked = torch.where(inside, drawn.to(image.device), drawn.to(image.device) - 1)
        pixels = ranked.topk(min(N_PIXELS, n_y * n_x), dim=1).indices
        there = image.flatten(1).gather(1, pixels)
        return WatchedStatistics(
            frequencies=torch.cat([lowest, order[missing]], dim=1),
            pixels=pixels,
            directions=torch.sgn(there),
        )

    def of(self, image: Tensor, evaluation: Evaluation) -> Tensor:
        """Return the statistics float64 (slice, chain, statistic) of images (slice and chain, 1, y, x)."""
        n_slices = len(self.pixels)
        flat = image.reshape(n_slices, -1, image.shape[-2] * image.shape[-1])
        n_chains = flat.shape[1]
        spectrum = torch.fft.fft2(image, norm="ortho").reshape(flat.shape)
        coefficients = spectrum.gather(2, self.frequencies[:, None].expand(-1, n_chains, -1))
        values = flat.gather(2, self.pixels[:, None].expand(-1, n_chains, -1))
        along = (values * self.directions[:, None].conj()).real
        energies = torch.stack([evaluation.prior, evaluation.data], dim=1).reshape(n_slices, n_chains, 2)
        return torch.cat([energies, coefficients.real, coefficients.imag, along], dim=2)


def _acquired(data: DataConsistency | LeastSquares) -> Tensor:
    """Which frequencies were measured, in FFT order; of a trajectory, those with a sample for each cell."""
    return data.preconditioner < 1 if isinstance(data, LeastSquares) else data.fourier.mask > 0
