"""8-bit PNG files from arrays, without a library of pictures: the process that looks on shall start at once.

PNG (Portable Network Graphics) Specification, W3C: signature, then chunks of length, name, data, CRC-32.
Colour type 3: each pixel is an index into a palette.
"""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEFAULT_METHODS = (0, 0, 0)  # deflate, the five filters, not interlaced
_INDEXED = 3
_FAST = 3

_MAGMA = (
    "0000040a08221d114736106b51127c6a1c818326819c2e7fb73779cf4070e55064f4695cfb8761fea571fec287fde0a1fcfdbf"
)
"""Seventeen colours of matplotlib's map ``magma`` (public domain, CC0), which gets brighter evenly."""


def _between(colours: str) -> NDArray[np.uint8]:
    known = np.frombuffer(bytes.fromhex(colours), np.uint8).reshape(-1, 3)
    at = np.linspace(0, 255, len(known))
    return np.stack(
        [np.rint(np.interp(np.arange(256), at, known[:, channel])) for channel in range(3)], axis=-1
    ).astype(np.uint8)


PALETTES: dict[str, NDArray[np.uint8]] = {"grey": _between("000000ffffff"), "magma": _between(_MAGMA)}
"""Red, green and blue of the levels 0 to 255, uint8 (256, 3)."""


def encode_png(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Return the file of an image of levels (y, x) in the colours of a palette (256, 3)."""
    n_y, n_x = levels.shape
    rows = np.zeros((n_y, 1 + n_x), np.uint8)  # each row begins with its filter: 0, none
    rows[:, 1:] = levels
    return b"".join(
        [
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">II5B", n_x, n_y, 8, _INDEXED, *_DEFAULT_METHODS)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), _FAST)),
            _chunk(b"IEND", b""),
        ]
    )


def encode_palette(name: str) -> bytes:
    """Return the file of a bar of a palette's colours, dark to bright from left to right."""
    return encode_png(np.arange(256, dtype=np.uint8)[None], PALETTES[name])


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
