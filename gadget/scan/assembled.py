"""What the assembly hands on of a slice."""

from collections.abc import Hashable
from dataclasses import dataclass

from gadget.scan.calibration import CalibrationLines
from gadget.scan.context import ScanContext
from reconlib.kspace import KSpace, NonuniformKSpace


@dataclass(frozen=True, slots=True)
class AssembledSlice:
    """One complete slice: what an image header needs, and its k-space (a batch of one)."""

    context: ScanContext
    kspace: KSpace | NonuniformKSpace
    calibration: CalibrationLines | None = None
    """Calibration of another encoding, matrix or contrast at this position: for coil maps only."""
    series: Hashable | None = None
    """What the frames of one real-time series have in common; None for other slices."""
