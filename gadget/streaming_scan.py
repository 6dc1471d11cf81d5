"""One scan's use of the device: in turns with other scans, with what held when the scan started."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gadget.reconstructor import Reconstructor, SliceResult, fallback
from gadget.settings import Settings
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.priors.library import Prior
from reconlib.priors.typicality import Typicality

_NUMBERS = count()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScanDevice:
    """A reconstructor with a scan's settings, prior and turns."""

    reconstructor: Reconstructor
    settings: Settings
    prior: Prior | None
    """As its files were when the scan started; None only where there are nothing but fallbacks."""
    cancelled: Callable[[], bool] = lambda: False
    """Whether nobody waits for the images any more."""
    fallback_only: str = ""
    """Why every image is a fallback, for which neither prior nor device is used; empty: they are not."""

    number: int = field(default_factory=_NUMBERS.__next__, init=False)
    """Tells it from others in the queue for turns, which remembers it for longer than it lives."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.reconstructor.device

    def turn(self, *, urgent: bool) -> AbstractContextManager[None]:
        """Wait for the scan's turn, and hold it inside the ``with``.

        Raises
        ------
        TurnCancelledError
            Nobody waits for the images any more.
        """
        return self.reconstructor.turns.turn(self.number, urgent=urgent, cancelled=self.cancelled)

    def __call__(
        self,
        slices: Sequence[KSpace | NonuniformKSpace],
        *,
        initial_coils: NDArray[np.complex64] | None = None,
        initial_image: NDArray[np.complex64] | None = None,
        peak: float | None = None,
        judged: bool = True,
    ) -> list[SliceResult]:
        """Reconstruct slices in one turn, as :meth:`gadget.reconstructor.Reconstructor.__call__` does."""
        if self.fallback_only:
            return [fallback(one, self.settings, self.fallback_only, prior=self.prior) for one in slices]
        with self.turn(urgent=True):
            return self.reconstructor(
                slices,
                self.settings,
                self.cancelled,
                prior=self.prior,
                initial_coils=initial_coils,
                initial_image=initial_image,
                peak=peak,
                judged=judged,
            )

    def judge(self, image: Tensor) -> Typicality | None:
        """Say how typical an image (1, 1, y, x) is under the prior; None where there is none."""
        if self.prior is None:
            return None
        with self.turn(urgent=True):
            return self.reconstructor.judge(self.prior, image)


def kspace_bytes(kspace: KSpace | NonuniformKSpace) -> int:
    """Return the memory of a slice's k-space."""
    places = (kspace.mask,) if isinstance(kspace, KSpace) else (kspace.trajectory, kspace.weights)
    return sum(tensor.nbytes for tensor in (kspace.samples, *places))
