"""What is counted from the start of a server on, for ``/metrics`` and the monitor page."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Histogram:
    """How many values were at most as large as each bound; bounds in seconds, ascending."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    """For each bound those above the one before; the last are above all bounds."""
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


_BOUNDS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


@dataclass(slots=True)
class Totals:
    """Counts since the start; nothing in here says what was scanned."""

    scans: Counter[str] = field(default_factory=Counter)
    """By how they ended: done, failed, abandoned."""
    probes: int = 0
    """Connections that came and went without a scan."""
    data_messages: int = 0
    data_bytes: int = 0
    images: Counter[str] = field(default_factory=Counter)
    """Images sent, by kind; ``PASSED_ON`` are those that came in as images."""
    problems: Counter[str] = field(default_factory=Counter)
    """Lines of the log, by level: warning, error."""
    latency: Histogram = field(default_factory=lambda: Histogram(_BOUNDS_S))
    """From the last data of a slice to its first image sent."""
    reconstruction: Histogram = field(default_factory=lambda: Histogram(_BOUNDS_S))
    """Time that the reconstruction of a slice took, waiting not counted."""
