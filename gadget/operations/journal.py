"""What a server's scans have come to since its start: what the monitor page and ``/metrics`` show.

Bounded: the last scans, the last slices with their pictures, the last problems. It lives in memory only.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gadget.answering import Ending, reason_for_peer
from gadget.image_meta import COMPLETED_BY, read_meta
from gadget.operations.latency import Arrivals
from gadget.operations.picture import Picture
from gadget.operations.scan_record import ScanRecord, n_bytes_of
from gadget.operations.slice_record import (
    PASSED_ON,
    RECONSTRUCTIONS,
    SliceRecord,
    kind_of,
    label_of,
    short_text,
)
from gadget.operations.totals import Totals
from gadget.wire.limits import MIB
from gadget.wire.messages import (
    Close,
    ConfigFile,
    ConfigText,
    Error,
    Image,
    Message,
    ScanHeader,
    Text,
)
from gadget.wire.session import Dialect, dialect_of, is_data

MOST_SCANS = 500
MOST_SLICES = 24
MOST_PICTURE_BYTES = 64 * MIB
MOST_PROBLEMS = 100
MOST_LATENCIES = 100


@dataclass(slots=True)
class Problem:
    """A warning or an error of the log."""

    at: float
    level: str
    text: str
    times: int = 1
    """How often it came in a row."""


class Journal:
    """Keeps records; its methods may be called from any thread.

    Parameters
    ----------
    clock
        Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.started_at = clock()
        self.changed = threading.Condition()  # guards all that follows
        self.version = 0
        """Grows with every change that is worth showing at once."""
        self.totals = Totals()
        self.running: list[ScanRecord] = []
        self.finished: deque[ScanRecord] = deque(maxlen=MOST_SCANS)
        self.slices: deque[SliceRecord] = deque()
        self.problems: deque[Problem] = deque(maxlen=MOST_PROBLEMS)
        self.latencies: deque[float] = deque(maxlen=MOST_LATENCIES)
        """Of the first images of the last slices."""
        self._n_scans = 0
        self._n_slices = 0

    def watch(self, address: str) -> "JournalWatch":
        """Return who looks on at a conversation that begins."""
        return JournalWatch(self, address)

    def note_problem(self, level: str, text: str) -> None:
        """Take note of a line of the log."""
        text = short_text(text)
        with self.changed:
            self.totals.problems[level] += 1
            last = self.problems[-1] if self.problems else None
            if last is not None and (last.level, last.text) == (level, text):
                last.times += 1
                last.at = self.clock()
            else:
                self.problems.append(Problem(self.clock(), level, text))
            self.announce()

    def picture(self, slice_number: int, index: int) -> Picture | None:
        """Return a picture of a slice, if it is still there."""
        with self.changed:
            for one in self.slices:
                if one.number == slice_number and 0 <= index < len(one.pictures):
                    return one.pictures[index]
        return None

    def announce(self) -> None:
        """Wake those who wait for a change; called with the lock held."""
        self.version += 1
        self.changed.notify_all()

    def wait_for_change(self, version: int, seconds: float) -> None:
        """Wait until there is something newer than ``version``, at most so long."""
        with self.changed:
            self.changed.wait_for(lambda: self.version != version, seconds)

    def begin(self, address: str) -> ScanRecord:
        """Make the record of a new scan; called with the lock held."""
        self._n_scans += 1
        scan = ScanRecord(self._n_scans, address, self.clock())
        self.running.append(scan)
        self.announce()
        return scan

    def slice_record(self, scan: ScanRecord, image: Image) -> SliceRecord:
        """Make the record of a new slice, and drop the oldest; called with the lock held."""
        self._n_slices += 1
        record = SliceRecord(
            self._n_slices, scan.number, int(image.header["image_index"]), label_of(image), self.clock()
        )
        self.slices.append(record)
        while len(self.slices) > MOST_SLICES:
            self.slices.popleft()
        return record

    def drop_pictures(self) -> None:
        """Drop the oldest pictures beyond the limit of memory; called with the lock held."""
        n_bytes = sum(one.n_bytes for one in self.slices)
        for one in self.slices:
            if n_bytes <= MOST_PICTURE_BYTES:
                return
            n_bytes -= one.n_bytes
            one.pictures.clear()


class JournalWatch:
    """Writes one conversation into the journal."""

    def __init__(self, journal: Journal, address: str) -> None:
        self._journal = journal
        self._address = address
        self._peer = Dialect.MRD.value
        self._arrivals = Arrivals()
        self._scan: ScanRecord | None = None

    def received(self, message: Message, at: float) -> None:
        """Count data; take from config and header what kind of scan it is."""
        if isinstance(message, ConfigFile | ConfigText):
            self._peer = dialect_of(message).value
            return
        if not is_data(message):
            self._received_other(message)
            return
        self._arrivals.received(message, at)
        journal = self._journal
        with journal.changed:
            scan = self._record()
            scan.count(message, journal.clock())
            journal.totals.data_messages += 1
            journal.totals.data_bytes += n_bytes_of(message)

    def sent(self, message: Message, at: float) -> None:
        """Take note of an image, or of what the peer is told."""
        journal = self._journal
        if isinstance(message, Text | Error):
            with journal.changed:
                self._record().words = short_text(message.raw.partition("\0")[0])
                journal.announce()
        if isinstance(message, Close) and self._scan is not None:
            with journal.changed:
                self._scan.state = "answered"
                journal.announce()
        if not isinstance(message, Image):
            return
        meta = read_meta(message)
        kind = kind_of(meta)
        latency_s = self._arrivals.latency(meta.get(COMPLETED_BY), at)
        with journal.changed:
            scan = self._record()
            scan.images[kind] += 1
            journal.totals.images[kind] += 1
            if kind == PASSED_ON:
                journal.announce()
                return
            record = self._slice(scan, message, kind, meta, latency_s)
        # Outside the lock, as it takes milliseconds; only this conversation adds to its records.
        picture = record.picture_of(message, meta)
        with journal.changed:
            record.add(kind, meta, latency_s, picture)
            journal.drop_pictures()
            journal.announce()

    def ended(self, ending: Ending) -> None:
        """Take note of the end of the scan, or of a probe."""
        journal = self._journal
        with journal.changed:
            if self._scan is None:
                journal.totals.probes += 1
                return
            scan = self._scan
            failed = ending.abandoned or ending.failure is not None
            journal.totals.scans["abandoned" if ending.abandoned else "failed" if failed else "done"] += 1
            scan.state = "failed" if failed else "done"
            if ending.failure is not None:
                scan.words = short_text(reason_for_peer(ending.failure))
            scan.end(journal.clock())
            journal.running.remove(scan)
            journal.finished.append(scan)
            journal.announce()

    def _received_other(self, message: Message) -> None:
        journal = self._journal
        with journal.changed:
            if isinstance(message, ScanHeader):
                self._record().describe(message)
                journal.announce()
            elif isinstance(message, Close) and self._scan is not None:
                if self._scan.state == "receiving":
                    self._scan.state = "reconstructing"
                journal.announce()

    def _record(self) -> ScanRecord:
        if self._scan is None:
            self._scan = self._journal.begin(self._address)
            self._scan.peer = self._peer
        return self._scan

    def _slice(
        self, scan: ScanRecord, image: Image, kind: str, meta: dict[str, str], latency_s: float | None
    ) -> SliceRecord:
        """Return the record of an image's slice, a new one for its first image."""
        journal = self._journal
        index = int(image.header["image_index"])
        for record in journal.slices:
            if (record.scan, record.index) == (scan.number, index):
                return record
        if kind in RECONSTRUCTIONS:
            scan.n_reconstructed += 1
            self._note_times(scan, meta, latency_s)
        return journal.slice_record(scan, image)

    def _note_times(self, scan: ScanRecord, meta: dict[str, str], latency_s: float | None) -> None:
        """Take note of the latency of the first image of a slice, and of the time it took."""
        journal = self._journal
        if latency_s is not None:
            scan.latencies.append(latency_s)
            journal.latencies.append(latency_s)
            journal.totals.latency.add(latency_s)
        try:
            journal.totals.reconstruction.add(float(meta["EBM_Seconds"]))
        except (KeyError, ValueError):
            return
