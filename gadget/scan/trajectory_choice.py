"""What a user may choose about the assembly of non-Cartesian readouts."""

from dataclasses import dataclass

from gadget.scan.trajectory_units import TrajectoryUnits


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryChoice:
    """What a user may choose about non-Cartesian readouts."""

    units: TrajectoryUnits = TrajectoryUnits.AUTO
    delay_correction: bool = True
    """Whether radial spokes are shifted to where they cross."""
    window: int | None = None
    """Readouts of a frame of a real-time series; None: images are told apart by their counters."""
    window_step: int | None = None
    """Readouts from the start of a frame to that of the next; None: as many as ``window``."""
