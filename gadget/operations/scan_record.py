"""What the monitor knows of one scan: how it was measured, how far it is, how it ended.

No text of its header is kept.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, field

from gadget.errors import ScanError
from gadget.operations.latency import quantile
from gadget.scan.header import Encoding, parse_scan_header
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    Image,
    ImageArray,
    Message,
    ReconData,
    ScanHeader,
    Waveform,
)

_COUNTERS = ("slice", "contrast", "phase", "repetition", "set")


@dataclass(slots=True)
class ScanRecord:
    """One scan."""

    number: int
    """Counts the scans since the start of the server."""
    address: str
    began_at: float
    """Seconds since the epoch, as all times here."""
    peer: str = ""
    """What kind of peer sends it."""
    measured: str = ""
    """Matrix, field of view, trajectory, field strength."""
    n_coils: int = 0
    n_announced: int | None = None
    """Images that the header announces, where that can be told from it."""
    n_data: int = 0
    n_bytes: int = 0
    last_data_at: float | None = None
    images: Counter[str] = field(default_factory=Counter)
    """Images sent, by kind."""
    n_reconstructed: int = 0
    """Slices whose first image was sent."""
    state: str = "receiving"
    """receiving, reconstructing (the peer has sent all), answered (it has not ended yet), done, failed."""
    words: str = ""
    """What the peer was told, or why it failed."""
    ended_at: float | None = None
    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    """Of the first image of each slice, in seconds; empty once the scan has ended."""
    latency_s: tuple[float, float] | None = None
    """Of an ended scan: the median, and what 95 % stayed below."""

    @property
    def receiving_s(self) -> float:
        """Seconds from its beginning to the last data so far."""
        return (self.last_data_at or self.began_at) - self.began_at

    def describe(self, header: ScanHeader) -> None:
        """Take over from a header what says how was measured."""
        try:
            scan = parse_scan_header(header.text)
        except ScanError:
            self.measured = "its header cannot be read"
            return
        encoding = scan.encodings[0]
        x, y, z = encoding.recon.matrix
        width, height, _ = encoding.recon.fov_mm
        size = f"{x} x {y}" if z == 1 else f"{x} x {y} x {z}"
        parts = [size, f"{width:g} x {height:g} mm", _sampling(encoding)]
        if scan.field_strength_t:
            parts.append(f"{scan.field_strength_t:.3g} T")
        self.measured = ", ".join(parts)
        self.n_announced = _announced(encoding)

    def count(self, message: Message, at: float) -> None:
        """Take note of a data message."""
        self.n_data += 1
        self.n_bytes += n_bytes_of(message)
        self.last_data_at = at
        if not self.n_coils and isinstance(message, Acquisition):
            self.n_coils = message.data.shape[0]

    def end(self, at: float) -> None:
        """Take note of the end, and keep of the latencies what they come to."""
        self.ended_at = at
        if self.latencies:
            self.latency_s = (quantile(self.latencies, 0.5), quantile(self.latencies, 0.95))
        self.latencies = array("d")


def n_bytes_of(message: Message) -> int:
    """Return the bytes of a message's samples; its headers are left out."""
    match message:
        case Acquisition() | Image() | Waveform() | ImageArray():
            return int(message.data.nbytes)
        case AcquisitionBucket():
            return sum(int(one.data.nbytes) for one in (*message.data, *message.reference))
        case ReconData():
            arrays = [array for bit in message.bits for array in (bit.data, bit.reference) if array]
            return sum(int(array.data.nbytes) for array in arrays)
        case _:
            return 0


def _sampling(encoding: Encoding) -> str:
    if not encoding.is_cartesian:
        return encoding.trajectory
    along_y, along_z = encoding.acceleration
    if along_y == along_z == 1:
        return "cartesian"
    return f"cartesian, accelerated {along_y} x {along_z}"


def _announced(encoding: Encoding) -> int:
    """Return the images that the counters' limits make: a volume counts its partitions."""
    n_images = encoding.recon.matrix[2] if encoding.announces_partitions else 1
    for name in _COUNTERS:
        if (limit := encoding.limits.get(name)) is not None:
            n_images *= limit.size
    return n_images
