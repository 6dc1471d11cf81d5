"""How much a peer may claim before we take memory for it."""

from dataclasses import dataclass, fields

from gadget.errors import PeerProtocolError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest sizes that a decoder believes, in bytes unless the name says otherwise."""

    text_bytes: int = 16 * MIB
    """One config, header, text, query, response or error."""
    meta_bytes: int = 16 * MIB
    """The meta attributes of one image."""
    readout_bytes: int = 256 * MIB
    """Trajectory and samples of one readout, or the samples of one waveform."""
    message_bytes: int = 4096 * MIB
    """One whole message of any kind: an image, or Gadgetron's buffers, image arrays and buckets."""
    n_items: int = 4 * MIB
    """Readouts or waveforms in one bucket, images in one array, recon bits in one message."""
    n_dimensions: int = 16
    """Axes of one array."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"Limits.{field.name} is {getattr(self, field.name)}; it must be positive.")


class Budget:
    """The bytes that one message may still claim."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._claimed = 0

    def claim(self, n_bytes: int, what: str) -> int:
        """Return ``n_bytes`` if the message stays within its limit, else raise."""
        self.check(n_bytes, what)
        self._claimed += n_bytes
        return n_bytes

    def check(self, n_bytes: int, what: str) -> None:
        """Raise if ``n_bytes`` more would take the message past its limit."""
        if self._claimed + n_bytes > self.limits.message_bytes:
            raise PeerProtocolError(
                f"{what} claims {n_bytes} bytes, which takes the message to {self._claimed + n_bytes}; at "
                f"most {self.limits.message_bytes} are accepted. Raise Limits.message_bytes if it is real."
            )

    def claim_text(self, n_bytes: int, what: str) -> int:
        """Return the length of a text if it is acceptable, else raise."""
        return self._claim_below(n_bytes, what, "text_bytes")

    def claim_meta(self, n_bytes: int, what: str) -> int:
        """Return the length of a meta text if it is acceptable, else raise."""
        return self._claim_below(n_bytes, what, "meta_bytes")

    def claim_readout(self, n_bytes: int, what: str) -> int:
        """Return the size of one readout's arrays if it is acceptable, else raise."""
        return self._claim_below(n_bytes, what, "readout_bytes")

    def claim_items(self, count: int, what: str) -> int:
        """Return a count of items if it is acceptable, else raise."""
        if count > self.limits.n_items:
            raise PeerProtocolError(
                f"{what}: {count}; at most {self.limits.n_items} are accepted. "
                "Raise Limits.n_items if the data is real."
            )
        return count

    def _claim_below(self, n_bytes: int, what: str, limit: str) -> int:
        most = getattr(self.limits, limit)
        if n_bytes > most:
            raise PeerProtocolError(
                f"{what} claims {n_bytes} bytes; at most {most} are accepted. "
                f"Raise Limits.{limit} if the data is real."
            )
        return self.claim(n_bytes, what)
