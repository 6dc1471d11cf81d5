"""What peers say to each other, one frozen dataclass per kind of message.

Texts are kept as they came, a trailing NUL included, so that a stream can be written back byte for byte;
the ``text`` property of a message ends at the first NUL, as some writers count one and XML parsers refuse it.
Arrays are read-only views of the received bytes where that saves a copy. Headers are zero-dimensional numpy
records of the dtypes in :mod:`gadget.wire.headers`: ``header["idx"]["slice"]``.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXT_ENCODING = "utf-8"
TEXT_ERRORS = "surrogateescape"
"""Bytes that are not UTF-8 survive as lone surrogates, so every text can be written back as it came."""

Header = Any
"""A numpy record (``numpy.void``) of one of the dtypes in :mod:`gadget.wire.headers`."""


def _until_nul(raw: str) -> str:
    return raw.partition("\0")[0]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration by name (id 1)."""

    raw: str

    @property
    def text(self) -> str:
        """The name."""
        return _until_nul(self.raw)


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A configuration as text, XML from Gadgetron (id 2)."""

    raw: str

    @property
    def text(self) -> str:
        """The text up to the first NUL."""
        return _until_nul(self.raw)


@dataclass(frozen=True, slots=True, repr=False)
class ScanHeader:
    """The ISMRMRD XML header (id 3). It holds patient data: never log it; ``repr`` shows its length only."""

    raw: str

    @property
    def text(self) -> str:
        """The XML up to the first NUL."""
        return _until_nul(self.raw)

    @property
    def xml(self) -> bytes:
        """The XML up to the first NUL, as the bytes that came: for parsers that heed its encoding."""
        return self.text.encode(TEXT_ENCODING, TEXT_ERRORS)

    def __repr__(self) -> str:
        return f"ScanHeader({len(self.raw)} characters)"


@dataclass(frozen=True, slots=True)
class Text:
    """Free text; from FIRE clients JSON parameters (id 5)."""

    raw: str

    @property
    def text(self) -> str:
        """The text up to the first NUL."""
        return _until_nul(self.raw)


@dataclass(frozen=True, slots=True)
class Close:
    """The sender has nothing more to say (id 4)."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question (id 6)."""

    query_id: int
    raw: str


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a :class:`Query` (id 7)."""

    query_id: int
    raw: str


@dataclass(frozen=True, slots=True)
class Error:
    """A failure, from an external node to Gadgetron only (id 8)."""

    raw: str


@dataclass(frozen=True, slots=True, eq=False)
class Acquisition:
    """One readout (id 1008)."""

    header: Header
    """ACQUISITION_HEADER record."""
    trajectory: NDArray[np.float32]
    """float32 (samples, dimensions)."""
    data: NDArray[np.complex64]
    """complex64 (channels, samples)."""


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """One image (id 1022)."""

    header: Header
    """IMAGE_HEADER record."""
    meta: str
    """Meta attributes as XML, a trailing NUL included where the sender counted one."""
    data: NDArray[Any]
    """(channels, z, y, x), of the dtype that ``header["data_type"]`` names."""


@dataclass(frozen=True, slots=True, eq=False)
class Waveform:
    """Physiological or other waveform samples (id 1026)."""

    header: Header
    """WAVEFORM_HEADER record."""
    data: NDArray[np.uint32]
    """uint32 (channels, samples)."""


@dataclass(frozen=True, slots=True, eq=False)
class ReconDataArray:
    """One buffer of :class:`ReconData`: accumulated k-space of one encoding. All arrays in Fortran order."""

    data: NDArray[np.complex64]
    """complex64, 7-D (RO, E1, E2, CHA, N, S, LOC)."""
    trajectory: NDArray[np.float32] | None
    density: NDArray[np.float32] | None
    headers: NDArray[Any]
    """ACQUISITION_HEADER, 5-D (E1, E2, N, S, LOC)."""
    sampling: bytes
    """The 56-byte sampling description, as it came."""


@dataclass(frozen=True, slots=True, eq=False)
class ReconBit:
    """Data and, where there is one, reference (calibration) of one encoding space."""

    data: ReconDataArray
    reference: ReconDataArray | None


@dataclass(frozen=True, slots=True, eq=False)
class ReconData:
    """Gadgetron's accumulated buffers (id 1023)."""

    bits: tuple[ReconBit, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ImageArray:
    """Gadgetron's image array (id 1024)."""

    data: NDArray[np.complex64]
    """complex64, Fortran order (x, y, z, channel, n, s, loc)."""
    headers: NDArray[Any]
    """IMAGE_HEADER, Fortran order (n, s, loc)."""
    metas: tuple[str, ...]
    waveforms: tuple[Waveform, ...] | None
    acquisition_headers: NDArray[Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class AcquisitionBucket:
    """Gadgetron's bucket of readouts, with per-bucket statistics (id 1050)."""

    data: tuple[Acquisition, ...]
    reference: tuple[Acquisition, ...]
    waveforms: tuple[Waveform, ...]
    data_statistics: bytes = field(repr=False)
    reference_statistics: bytes = field(repr=False)


Message = (
    ConfigFile
    | ConfigText
    | ScanHeader
    | Text
    | Close
    | Query
    | Response
    | Error
    | Acquisition
    | Image
    | Waveform
    | ReconData
    | ImageArray
    | AcquisitionBucket
)
