"""The layout of configs, texts, readouts, images and waveforms: what every MRD peer speaks.

For each kind a decoder (see :mod:`gadget.wire.binary`) and its inverse, which returns buffers to send.
"""

import struct
from math import prod
from typing import Any

import numpy as np

from gadget.errors import OwnProtocolError, PeerProtocolError
from gadget.wire.binary import (
    UINT32,
    UINT64,
    ReadBytes,
    Steps,
    array_of,
    buffer_of,
    bytes_of_text,
    read_uint64,
    record_bytes,
    record_of,
    text_of,
)
from gadget.wire.headers import ACQUISITION_HEADER, IMAGE_HEADER, WAVEFORM_HEADER
from gadget.wire.limits import Budget
from gadget.wire.messages import Acquisition, ConfigFile, Image, Waveform

CONFIG_FILE_BYTES = 1024

PIXEL_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<u2"),
    2: np.dtype("<i2"),
    3: np.dtype("<u4"),
    4: np.dtype("<i4"),
    5: np.dtype("<f4"),
    6: np.dtype("<f8"),
    7: np.dtype("<c8"),
    8: np.dtype("<c16"),
}
"""ISMRMRD's ``data_type`` of images."""

_PIXEL_TYPE_NAMES = ", ".join(f"{number} {dtype.name}" for number, dtype in PIXEL_TYPES.items())

_READOUT_SIZES = tuple(
    (struct.Struct("<H"), ACQUISITION_HEADER.fields[name][1])  # type: ignore[index]
    for name in ("number_of_samples", "active_channels", "trajectory_dimensions")
)
_WAVEFORM_SIZES = tuple(
    (struct.Struct("<H"), WAVEFORM_HEADER.fields[name][1])  # type: ignore[index]
    for name in ("number_of_samples", "channels")
)


def read_config_file(budget: Budget) -> Steps[ConfigFile]:
    """1024 bytes, a name padded with NUL."""
    raw = yield budget.claim(CONFIG_FILE_BYTES, "The config name")
    return ConfigFile(text_of(raw).rstrip("\0"))


def config_file_parts(message: ConfigFile) -> list[ReadBytes]:
    """Inverse of :func:`read_config_file`."""
    raw = bytes_of_text(message.raw)
    if len(raw) > CONFIG_FILE_BYTES:
        raise OwnProtocolError(f"The config name is {len(raw)} bytes long; at most {CONFIG_FILE_BYTES} fit.")
    return [raw.ljust(CONFIG_FILE_BYTES, b"\0")]


def read_short_text(budget: Budget, what: str) -> Steps[str]:
    """A uint32 length, then the text."""
    (length,) = UINT32.unpack((yield budget.claim(4, what)))
    return text_of((yield budget.claim_text(length, what)))


def short_text_parts(text: str) -> list[ReadBytes]:
    """Inverse of :func:`read_short_text`."""
    raw = bytes_of_text(text)
    if len(raw) >= 1 << 32:
        raise OwnProtocolError(f"A text of {len(raw)} bytes does not fit into a uint32 length.")
    return [UINT32.pack(len(raw)), raw]


def read_long_text(budget: Budget, what: str) -> Steps[str]:
    """A uint64 length, then the text."""
    length = yield from read_uint64(budget, what)
    return text_of((yield budget.claim_text(length, what)))


def read_meta(budget: Budget) -> Steps[str]:
    """Meta attributes of an image: a uint64 length, then XML."""
    length = yield from read_uint64(budget, "The meta of an image")
    return text_of((yield budget.claim_meta(length, "The meta of an image")))


def long_text_parts(text: str) -> list[ReadBytes]:
    """Inverse of :func:`read_long_text` and :func:`read_meta`."""
    raw = bytes_of_text(text)
    return [UINT64.pack(len(raw)), raw]


def readout_sizes(raw_header: ReadBytes) -> tuple[int, int, int]:
    """Return samples, channels and trajectory dimensions that an acquisition header claims."""
    n_samples, n_channels, n_dimensions = (
        size.unpack_from(raw_header, offset)[0] for size, offset in _READOUT_SIZES
    )
    if n_channels == 0:
        raise PeerProtocolError(
            f"A readout of {n_samples} samples claims 0 active channels; it must have at least 1. "
            "The stream is out of step, or its writer does not set active_channels."
        )
    return n_samples, n_channels, n_dimensions


def read_acquisition(budget: Budget) -> Steps[Acquisition]:
    """A 340-byte header, the trajectory, the samples."""
    raw_header = yield budget.claim(ACQUISITION_HEADER.itemsize, "A readout")
    n_samples, n_channels, n_dimensions = readout_sizes(raw_header)
    n_trajectory_bytes = 4 * n_samples * n_dimensions
    n_data_bytes = 8 * n_samples * n_channels
    budget.claim_readout(
        n_trajectory_bytes + n_data_bytes, f"A readout of {n_channels} channels and {n_samples} samples"
    )
    raw_trajectory = (yield n_trajectory_bytes) if n_trajectory_bytes else b""
    raw_data = yield n_data_bytes
    return Acquisition(
        record_of(raw_header, ACQUISITION_HEADER),
        array_of(raw_trajectory, "<f4", (n_samples, n_dimensions)),
        array_of(raw_data, "<c8", (n_channels, n_samples)),
    )


def acquisition_parts(message: Acquisition) -> list[ReadBytes]:
    """Inverse of :func:`read_acquisition`."""
    raw_header = record_bytes(message.header, ACQUISITION_HEADER, "Acquisition.header")
    n_samples, n_channels, n_dimensions = (
        size.unpack_from(raw_header, offset)[0] for size, offset in _READOUT_SIZES
    )
    if message.data.shape != (n_channels, n_samples) or message.trajectory.shape != (n_samples, n_dimensions):
        raise OwnProtocolError(
            f"Acquisition has data {message.data.shape} and trajectory {message.trajectory.shape}, but its "
            f"header says ({n_channels}, {n_samples}) and ({n_samples}, {n_dimensions}). Set the header from "
            "the arrays."
        )
    return [
        raw_header,
        buffer_of(message.trajectory, "<f4", "Acquisition.trajectory"),
        buffer_of(message.data, "<c8", "Acquisition.data"),
    ]


def read_image(budget: Budget) -> Steps[Image]:
    """A 198-byte header, the meta with a uint64 length, the pixels."""
    header = record_of((yield budget.claim(IMAGE_HEADER.itemsize, "An image")), IMAGE_HEADER)
    dtype = PIXEL_TYPES.get(int(header["data_type"]))
    if dtype is None:
        raise PeerProtocolError(
            f"An image has data_type {header['data_type']}, which ISMRMRD does not define "
            f"(known: {_PIXEL_TYPE_NAMES})."
        )
    shape = image_shape(header)
    if 0 in shape:
        raise PeerProtocolError(
            f"An image claims the shape {shape} (channels, z, y, x); every axis must be at least 1."
        )
    meta = yield from read_meta(budget)
    n_bytes = prod(shape) * dtype.itemsize
    raw = yield budget.claim(n_bytes, f"An image of shape {shape} and type {dtype.name}")
    return Image(header, meta, array_of(raw, dtype, shape))


def image_shape(header: Any) -> tuple[int, int, int, int]:
    """Return (channels, z, y, x) from an image header."""
    n_x, n_y, n_z = (int(n) for n in header["matrix_size"])
    return int(header["channels"]), n_z, n_y, n_x


def image_parts(message: Image) -> list[ReadBytes]:
    """Inverse of :func:`read_image`."""
    raw_header = record_bytes(message.header, IMAGE_HEADER, "Image.header")
    dtype = PIXEL_TYPES.get(int(message.header["data_type"]))
    if dtype is None:
        raise OwnProtocolError(
            f"Image.header has data_type {message.header['data_type']}; known are {_PIXEL_TYPE_NAMES}."
        )
    if message.data.shape != image_shape(message.header):
        raise OwnProtocolError(
            f"Image.data has shape {message.data.shape}, but its header says {image_shape(message.header)} "
            "(channels, z, y, x). Set the header from the array."
        )
    return [raw_header, *long_text_parts(message.meta), buffer_of(message.data, dtype, "Image.data")]


def waveform_sizes(raw_header: ReadBytes) -> tuple[int, int]:
    """Return samples and channels that a waveform header claims."""
    n_samples, n_channels = (size.unpack_from(raw_header, offset)[0] for size, offset in _WAVEFORM_SIZES)
    return n_samples, n_channels


def read_waveform(budget: Budget) -> Steps[Waveform]:
    """A 40-byte header, then the samples."""
    raw_header = yield budget.claim(WAVEFORM_HEADER.itemsize, "A waveform")
    n_samples, n_channels = waveform_sizes(raw_header)
    what = f"A waveform of {n_channels} channels and {n_samples} samples"
    raw = yield budget.claim_readout(4 * n_samples * n_channels, what)
    return Waveform(record_of(raw_header, WAVEFORM_HEADER), array_of(raw, "<u4", (n_channels, n_samples)))


def waveform_parts(message: Waveform) -> list[ReadBytes]:
    """Inverse of :func:`read_waveform`."""
    raw_header = record_bytes(message.header, WAVEFORM_HEADER, "Waveform.header")
    n_samples, n_channels = waveform_sizes(raw_header)
    if message.data.shape != (n_channels, n_samples):
        raise OwnProtocolError(
            f"Waveform.data has shape {message.data.shape}, but its header says ({n_channels}, {n_samples}). "
            "Set the header from the array."
        )
    return [raw_header, buffer_of(message.data, "<u4", "Waveform.data")]
