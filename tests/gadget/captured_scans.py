"""Bytes that real peers sent, taken apart by struct, and the images that belong to them."""

import math
import re
import struct
from pathlib import Path

import numpy as np
import scripted_peer as script
from scripted_peer import ACQUISITION, IMAGE, WAVEFORM

NOISE = 1 << 18
"""Flag ACQ_IS_NOISE_MEASUREMENT, number 19."""


def captured(data_folder: Path, name: str) -> tuple[bytes, list[bytes]]:
    """Return the header, and the messages after it, of a capture that our scripted peer can take apart."""
    recorded = (data_folder / "wire" / f"{name}.bin").read_bytes()
    position = 6 + struct.unpack_from("<I", recorded, 2)[0]
    (header_length,) = struct.unpack_from("<I", recorded, position + 2)
    header = recorded[position + 6 : position + 6 + header_length]
    return header, pieces(recorded[position + 6 + header_length :])


def pieces(stream: bytes) -> list[bytes]:
    """Cut a stream, up to CLOSE, into readouts, waveforms and images, or a pair of equal length of others."""
    found: list[bytes] = []
    while stream and stream != script.CLOSE_BYTES:
        (message_id,) = struct.unpack_from("<H", stream)
        if message_id == ACQUISITION:
            n_samples, _, n_channels = struct.unpack_from("<HHH", stream, 2 + 34)
            (n_dimensions,) = struct.unpack_from("<H", stream, 2 + 176)
            size = 2 + 340 + n_samples * (4 * n_dimensions + 8 * n_channels)
        elif message_id == WAVEFORM:
            n_samples, n_channels = struct.unpack_from("<HH", stream, 2 + 28)
            size = 2 + 40 + 4 * n_samples * n_channels
        elif message_id == IMAGE:
            (data_type,) = struct.unpack_from("<H", stream, 2 + 2)
            n_pixels = math.prod(struct.unpack_from("<3H", stream, 2 + 16))
            (n_channels,) = struct.unpack_from("<H", stream, 2 + 34)
            (meta_length,) = struct.unpack_from("<Q", stream, 2 + 198)
            size = 2 + 198 + 8 + meta_length + n_pixels * n_channels * script.PIXEL_BYTES[data_type]
        else:
            size = len(stream.removesuffix(script.CLOSE_BYTES)) // (2 if not found else 1)
        found.append(stream[:size])
        stream = stream[size:]
    return found


def images_of(results: list[tuple[int, bytes]]) -> np.ndarray:
    """Return the magnitudes (image, row, column) that came back, in the values that their meta gives."""
    found = []
    for message_id, body in results:
        if message_id != IMAGE:
            continue
        (data_type,) = struct.unpack_from("<H", body, 2)
        n_x, n_y = struct.unpack_from("<2H", body, 16)
        dtype = {1: "<u2", 2: "<i2", 5: "<f4"}[data_type]
        pixels = np.frombuffer(body[-n_x * n_y * np.dtype(dtype).itemsize :], dtype).reshape(n_y, n_x)
        slope = re.search(rb"<name>RescaleSlope</name>\s*<value>([^<]+)</value>", body)
        assert (slope is None) == (data_type == 5)
        found.append(pixels * (float(slope[1]) if slope else 1.0))
    return np.stack(found)


def noise_adjusted(messages: list[bytes]) -> list[bytes]:
    """Return what Gadgetron's NoiseAdjustGadget makes of a scan whose first readout is noise, and that alone.

    It whitens with the inverse of the Cholesky factor of the noise's covariance, to a standard deviation of 1
    per real component, for a relative noise bandwidth of 0.793, its default.
    """
    noise = samples_of(messages[0])
    factor = np.linalg.cholesky(noise @ noise.conj().T / (noise.shape[1] - 1))
    whitener = np.linalg.inv(factor) * np.sqrt(2 * 0.793)
    adjusted = []
    for one in messages[1:]:
        if one[:2] == struct.pack("<H", ACQUISITION):
            samples = whitener @ samples_of(one)
            one = one[: -8 * samples.size] + samples.astype("<c8").tobytes()
        adjusted.append(one)
    return adjusted


def samples_of(readout: bytes) -> np.ndarray:
    """Return (coil, sample); all readouts of the captured scan have 4 coils and 128 samples."""
    return np.frombuffer(readout[-4 * 128 * 8 :], "<c8").reshape(4, 128)


def root_sum_of_squares(messages: list[bytes]) -> np.ndarray:
    """Return (repetition, row, column) of the readouts of a fully sampled scan with twofold oversampling."""
    kspace = np.zeros((2, 4, 64, 128), np.complex64)
    for one in messages:
        if one[:2] != struct.pack("<H", ACQUISITION):
            continue
        (flags,) = struct.unpack_from("<Q", one, 2 + 2)
        if flags & NOISE == 0:
            (line,) = struct.unpack_from("<H", one, 2 + 242)
            (repetition,) = struct.unpack_from("<H", one, 2 + 254)
            kspace[repetition, :, line] = samples_of(one)
    axes = (-2, -1)
    coil_images = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(kspace, axes), norm="ortho"), axes)
    return np.sqrt((np.abs(coil_images[..., 32:96]) ** 2).sum(1))


def assert_is_phantom(images: np.ndarray, expected: np.ndarray) -> None:
    """Compare up to one scale for all: so few iterations do not smooth the noise of the phantom away."""
    assert images.shape == expected.shape
    scale = (images * expected).sum() / (images**2).sum()
    for image, other in zip(images, expected, strict=True):
        assert np.linalg.norm(scale * image - other) < 0.06 * np.linalg.norm(other)
