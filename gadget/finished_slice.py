"""What came of a slice: its image, and later its posterior."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget.prior_suitability import Mismatch
from gadget.reconstructor import SliceResult
from gadget.scan.assembled import AssembledSlice
from gadget.scan.context import ScanContext
from gadget.wire.messages import Image
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.posterior import Posterior

RELIABLE = (PosteriorOutcome.DONE, PosteriorOutcome.OUT_OF_TIME)


@dataclass(frozen=True, slots=True)
class VolumePartition:
    """A partition of a volume that was reconstructed in planes across it: it has no k-space of its own."""

    context: ScanContext


@dataclass(frozen=True, slots=True)
class FinishedSlice:
    """An image that has just left, for callers that keep more than the image (coil maps, pictures)."""

    slice: AssembledSlice | VolumePartition
    result: SliceResult
    image: Image
    completed_by: int
    """Number of the scan's data message, from 1, that completed it."""
    slope: float | None = None
    """RescaleSlope of the image; None where its pixels are no integers."""
    others: tuple[Image, ...] = ()
    """Its other components (phase, complex, real), with the same ``image_index``."""
    mismatches: tuple[Mismatch, ...] = ()
    """How the slice is not what its prior was made for."""

    @property
    def kspace(self) -> KSpace | NonuniformKSpace:
        """What the image was made from.

        Raises
        ------
        ValueError
            It is a partition of a volume, which has no k-space of its own.
        """
        if isinstance(self.slice, VolumePartition):
            raise ValueError(f"{self.slice.context.label()} is a partition without k-space of its own.")
        return self.slice.kspace


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledSlice:
    """A slice whose posterior was sampled, or could not be."""

    finished: FinishedSlice
    posterior: Posterior | None
    """Of the slice's batch; None where the sampling failed."""
    row: int = 0
    """The slice's place in its batch."""
    failure: str = ""
    """Why the sampling failed: words without patient data."""

    @property
    def outcome(self) -> PosteriorOutcome | None:
        """How the sampling ended; None where it failed."""
        return None if self.posterior is None else self.posterior.outcomes[self.row]

    @property
    def is_reliable(self) -> bool:
        """Whether mean and width can be relied on."""
        return self.outcome in RELIABLE

    @property
    def words(self) -> str:
        """How the sampling ended, in words."""
        return self.failure if self.outcome is None else self.outcome.value

    @property
    def seconds(self) -> float:
        """Those of the batch, divided by its slices; 0 where it failed."""
        return 0.0 if self.posterior is None else self.posterior.seconds / len(self.posterior.outcomes)

    def images(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Return magnitude of the mean, and standard deviation: float32 (y, x) in the units of the samples.

        None where there are none to show: too few draws, a chain that is not finite, a failure.
        """
        if self.posterior is None:
            return None
        mean = self.posterior.mean[self.row, 0].abs().cpu().numpy()
        std = self.posterior.std[self.row, 0].cpu().numpy()
        return (mean, std) if np.isfinite(mean).all() and np.isfinite(std).all() else None
