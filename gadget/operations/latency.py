"""How long after its last data an image leaves.

The reconstruction says in the meta of each image which data message completed its slice (``EBM_CompletedBy``,
counted from 1); here it is known when that message came.
"""

import logging
import math
from array import array
from collections.abc import Sequence

from gadget.answering import Ending
from gadget.image_meta import COMPLETED_BY, read_meta
from gadget.logs import facts
from gadget.wire.messages import Image, Message
from gadget.wire.session import is_data

logger = logging.getLogger(__name__)

FIRST_SERIES = 1
"""Images of other series follow later by design: uncertainty is sampled when there is time."""


class Arrivals:
    """When each data message of one scan came: 8 bytes for each."""

    def __init__(self) -> None:
        self._at = array("d")

    def __len__(self) -> int:
        """Return how many data messages came."""
        return len(self._at)

    def received(self, message: Message, at: float) -> None:
        """Take note of a message; what is not data is not counted."""
        if is_data(message):
            self._at.append(at)

    def latency(self, completed_by: str | None, sent_at: float) -> float | None:
        """Return the seconds from the message of this number to ``sent_at``; None where it is not known."""
        if completed_by is None or not completed_by.isascii() or not completed_by.isdigit():
            return None
        number = int(completed_by[:20])
        return sent_at - self._at[number - 1] if 1 <= number <= len(self._at) else None


class LatencyWatch:
    """Logs the latency of each image of a conversation, and at its end what they came to."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._arrivals = Arrivals()
        self._latencies = array("d")

    def received(self, message: Message, at: float) -> None:
        """Take note of when data came."""
        self._arrivals.received(message, at)

    def sent(self, message: Message, at: float) -> None:
        """Log the latency of an image that says what completed it."""
        if not isinstance(message, Image):
            return
        seconds = self._arrivals.latency(read_meta(message).get(COMPLETED_BY), at)
        if seconds is None:
            return
        series, number, slice_ = (
            int(message.header[name]) for name in ("image_series_index", "image_index", "slice")
        )
        if series == FIRST_SERIES:
            self._latencies.append(seconds)
        logger.info(
            "%s: image %d of series %d, slice %d: sent %s s after its last data",
            self._address,
            number,
            series,
            slice_,
            in_seconds(seconds),
            extra=facts(
                scan=self._address, image=number, series=series, slice=slice_, latency_s=round(seconds, 3)
            ),
        )

    def ended(self, _ending: Ending) -> None:
        """Log the median, and what 95 % of the images of series 1 stayed below."""
        if not self._latencies:
            return
        median, most = (quantile(self._latencies, part) for part in (0.5, 0.95))
        logger.info(
            "%s: %d images of series %d, from last data to sent: median %s s, 95 %% within %s s",
            self._address,
            len(self._latencies),
            FIRST_SERIES,
            in_seconds(median),
            in_seconds(most),
            extra=facts(
                scan=self._address,
                images=len(self._latencies),
                median_latency_s=round(median, 3),
                p95_latency_s=round(most, 3),
            ),
        )


def in_seconds(seconds: float) -> str:
    """Return a time as log and monitor write it, without the unit."""
    return f"{seconds:.3f}"


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that at least ``part`` of the values do not exceed (the nearest rank)."""
    if not values or not 0 < part <= 1:
        raise ValueError(f"There is no quantile {part} of {len(values)} values.")
    return sorted(values)[math.ceil(part * len(values)) - 1]
