"""How the slices of a batch that iterate together fare, kept on their device.

Nothing here waits for the device but :meth:`BatchRecord.is_over` and what is asked at the end, so a GPU goes
from one iteration to the next without the host.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointTrace

CALM = 3
"""Iterations in a row that must change the image by less than the tolerance."""
ASKED_EVERY = 4
"""Iterations, where asking means waiting, and slices can only end by numbers that are not finite."""


@dataclass(slots=True)
class BatchRecord:
    """Trace and ends of the slices of a batch."""

    tolerance: float
    """Relative change of the image below which a slice ends; 0: never."""
    ended: Tensor
    """int64 (slice,): the iteration that was a slice's last; 0 while it goes on."""
    calm: Tensor
    """int64 (slice,)"""
    is_asked: bool
    """After each iteration: where slices may converge, or asking costs nothing."""
    rows: list[dict[str, Tensor]] = field(default_factory=list)
    """Per iteration the columns of a :class:`JointTrace`, (slice,) each."""

    @staticmethod
    def start(n_slices: int, device: torch.device, tolerance: float) -> "BatchRecord":
        """Return the record before the first iteration."""
        none = torch.zeros(n_slices, dtype=torch.int64, device=device)
        return BatchRecord(tolerance, none, none, is_asked=tolerance > 0 or device.type == "cpu")

    def put(self, **columns: Tensor) -> None:
        """Note an iteration; see which slices it ended."""
        self.rows.append(columns)
        self.calm = torch.where(columns["relative_change"] < self.tolerance, self.calm + 1, 0)
        stops = ~_is_finite(columns) | (self.calm >= CALM)
        self.ended = torch.where(stops & (self.ended == 0), len(self.rows), self.ended)

    @property
    def has_ended(self) -> Tensor:
        """Whether a slice has ended, bool (slice,)."""
        return self.ended > 0

    @property
    def n_active(self) -> int:
        """How many slices go on, as far as is known."""
        return int((self.ended == 0).sum()) if self.is_asked else len(self.ended)

    def is_over(self) -> bool:
        """Whether all slices have ended."""
        is_asked = self.is_asked or len(self.rows) % ASKED_EVERY == 0
        return is_asked and bool(self.has_ended.all())

    def ends(self, *, out_of_time: bool) -> tuple[tuple[Outcome, ...], tuple[int, ...]]:
        """Return how each slice ended, and after how many iterations."""
        unfinished = Outcome.OUT_OF_TIME if out_of_time else Outcome.OUT_OF_ITERATIONS
        outcomes, counts = [], []
        for row, last in enumerate(self.ended.tolist()):
            counts.append(last or len(self.rows))
            if not last:
                outcomes.append(unfinished)
            else:
                is_finite = bool(_is_finite(self.rows[last - 1])[row])
                outcomes.append(Outcome.CONVERGED if is_finite else Outcome.NOT_FINITE)
        return tuple(outcomes), tuple(counts)

    def trace(self) -> JointTrace:
        """Return what was noted, on the CPU; NaN after a slice ended."""
        numbers = torch.arange(len(self.rows), device=self.ended.device)[:, None]
        is_after = self.has_ended & (numbers >= self.ended)
        columns = {}
        for name in JointTrace.__slots__:
            noted = [row[name].detach().double() for row in self.rows]
            table = torch.stack(noted) if noted else is_after.double()
            columns[name] = torch.where(is_after, torch.nan, table).cpu()
        return JointTrace(**columns)


def _is_finite(columns: dict[str, Tensor]) -> Tensor:
    return torch.isfinite(columns["energy"]) & torch.isfinite(columns["relative_change"])
