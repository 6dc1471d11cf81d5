"""Messages written with struct from PROTOCOL.md, byte by byte: a second opinion on the codec."""

import struct

import numpy as np


def uint64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def config_file(name: bytes) -> bytes:
    return struct.pack("<H1024s", 1, name)


def short_text(message_id: int, text: bytes) -> bytes:
    return struct.pack("<HI", message_id, len(text)) + text


def close() -> bytes:
    return b"\x04\x00"


def query(query_id: int, text: bytes) -> bytes:
    return struct.pack("<HQQQ", 6, 0, query_id, len(text)) + text


def response(query_id: int, text: bytes) -> bytes:
    return struct.pack("<HQQ", 7, query_id, len(text)) + text


def error(text: bytes) -> bytes:
    return struct.pack("<HQ", 8, len(text)) + text


def acquisition_header(
    *, n_samples: int, n_channels: int, n_dimensions: int = 0, flags: int = 0, line: int = 0
) -> bytes:
    """340 bytes, packed as in ismrmrd.h."""
    raw = b"".join(
        (
            struct.pack("<HQIII3I", 1, flags, 7, 11, 13, 17, 19, 23),
            struct.pack("<HHH16Q", n_samples, n_channels, n_channels, *range(16)),
            struct.pack("<HHHHH", 1, 2, n_samples // 2, 0, n_dimensions),
            struct.pack("<f3f3f3f3f3f", 2.5, *range(15)),
            struct.pack("<HHHHHHHHH8H", line, 0, 0, 1, 2, 3, 4, 5, 6, *range(8)),
            struct.pack("<8i8f", *range(-4, 4), *range(8)),
        )
    )
    assert len(raw) == 340
    return raw


def acquisition(n_samples: int, n_channels: int, n_dimensions: int = 0, **fields: int) -> bytes:
    header = acquisition_header(
        n_samples=n_samples, n_channels=n_channels, n_dimensions=n_dimensions, **fields
    )
    return b"\xf0\x03" + header + trajectory(n_samples, n_dimensions) + samples(n_channels, n_samples)


def trajectory(n_samples: int, n_dimensions: int) -> bytes:
    """Element (s, d) is 100 s + d."""
    return struct.pack(
        f"<{n_samples * n_dimensions}f", *(100 * s + d for s in range(n_samples) for d in range(n_dimensions))
    )


def samples(n_channels: int, n_samples: int) -> bytes:
    """Element (c, s) is c + i s."""
    return b"".join(struct.pack("<2f", c, s) for c in range(n_channels) for s in range(n_samples))


def image_header(
    *, data_type: int, matrix: tuple[int, int, int], n_channels: int = 1, meta_length: int = 0
) -> bytes:
    """198 bytes, packed as in ismrmrd.h."""
    raw = b"".join(
        (
            struct.pack("<HHQI3H3fH", 1, data_type, 0, 5, *matrix, 256.0, 192.0, 6.0, n_channels),
            struct.pack("<15f", *range(15)),
            struct.pack("<6HI3I", 1, 2, 3, 4, 5, 6, 77, 1, 2, 3),
            struct.pack("<HHH8i8fI", 1, 21, 22, *range(8), *range(8), meta_length),
        )
    )
    assert len(raw) == 198
    return raw


def image(pixels: np.ndarray, data_type: int, meta: bytes = b"") -> bytes:
    """Pixels have the axes (channels, z, y, x)."""
    n_channels, n_z, n_y, n_x = pixels.shape
    header = image_header(
        data_type=data_type, matrix=(n_x, n_y, n_z), n_channels=n_channels, meta_length=len(meta)
    )
    return b"\xfe\x03" + header + uint64(len(meta)) + meta + pixels.tobytes()


def waveform_header(n_samples: int, n_channels: int, padding: bytes = b"\0") -> bytes:
    """40 bytes: the C struct has 6 bytes of padding after version, and 2 at the end."""
    raw = struct.pack(
        "<H6sQIIIHHfH2s", 1, padding * 6, 9, 3, 4, 5, n_samples, n_channels, 2.5, 2, padding * 2
    )
    assert len(raw) == 40
    return raw


def waveform_samples(n_samples: int, n_channels: int) -> bytes:
    return struct.pack(f"<{n_samples * n_channels}I", *range(n_samples * n_channels))


def waveform(n_samples: int, n_channels: int, padding: bytes = b"\0") -> bytes:
    return (
        b"\x02\x04"
        + waveform_header(n_samples, n_channels, padding)
        + waveform_samples(n_samples, n_channels)
    )


def array(shape: tuple[int, ...], raw: bytes) -> bytes:
    return uint64(len(shape), *shape) + raw


def recon_buffer(*, with_trajectory: bool, with_density: bool) -> bytes:
    """3 samples, 2 lines, 1 partition, 2 channels."""
    data = array((3, 2, 1, 2, 1, 1, 1), samples(1, 12))
    flags_and_arrays = (
        b"\x01" + array((2, 3, 2, 1, 1, 1, 1), trajectory(6, 2)) if with_trajectory else b"\0"
    ) + (b"\x01" + array((3, 2, 1, 1, 1, 1), trajectory(6, 1)) if with_density else b"\0")
    headers = array(
        (2, 1, 1, 1, 1), b"".join(acquisition_header(n_samples=3, n_channels=2, line=k) for k in range(2))
    )
    return data + flags_and_arrays + headers + bytes(range(56))


def recon_data() -> bytes:
    """Two bits; the first has a reference."""
    first = recon_buffer(with_trajectory=True, with_density=True)
    second = recon_buffer(with_trajectory=False, with_density=False)
    return b"\xff\x03" + uint64(2) + first + b"\x01" + second + second + b"\0"


def image_array(*, with_extras: bool) -> bytes:
    """Two images of 3 x 2 pixels."""
    headers = image_header(data_type=7, matrix=(3, 2, 1)) * 2
    metas = uint64(2) + uint64(5) + b"<a/>\0" + uint64(0)
    extras = b"\0\0"
    if with_extras:
        waveforms = uint64(2) + waveform(2, 3)[2:] + waveform(1, 1)[2:]
        readouts = acquisition_header(n_samples=3, n_channels=2) * 4
        extras = b"\x01" + waveforms + b"\x01" + array((2, 1, 2, 1, 1), readouts)
    return (
        b"\x00\x04"
        + array((3, 2, 1, 1, 2, 1, 1), samples(1, 12))
        + array((2, 1, 1), headers)
        + metas
        + extras
    )


def bucket(*, trajectory_bytes: int | None = None) -> bytes:
    """Two readouts of different shapes (the first with a trajectory), one as reference, two waveforms."""
    readouts = ((3, 2, 2), (2, 1, 0))
    headers = b"".join(acquisition_header(n_samples=s, n_channels=c, n_dimensions=d) for s, c, d in readouts)
    trajectories = b"".join(trajectory(s, d) for s, _, d in readouts)
    data = b"".join(samples(c, s) for s, c, _ in readouts)
    reference = acquisition_header(n_samples=1, n_channels=4)
    reference_data = samples(4, 1)
    statistics = uint64(1) + bytes(72)
    waveforms = ((2, 3), (1, 1))
    waveform_headers = b"".join(waveform_header(*shape) for shape in waveforms)
    waveform_data = b"".join(waveform_samples(*shape) for shape in waveforms)
    sizes = uint64(
        *(2, len(headers), len(data), len(trajectories) if trajectory_bytes is None else trajectory_bytes),
        *(1, len(reference), len(reference_data), 0),
        *(len(statistics), 8),
        *(2, len(waveform_headers), len(waveform_data)),
    )
    assert len(sizes) == 104
    return b"".join(
        (
            *(b"\x1a\x04", sizes, headers, trajectories, data, statistics),
            *(reference, reference_data, uint64(0), waveform_headers, waveform_data),
        )
    )


def one_of_each() -> dict[str, bytes]:
    """Every message of PROTOCOL.md, by a readable name."""
    pixels = np.arange(24).reshape(2, 1, 3, 4)
    return {
        "config file": config_file(b"default.xml"),
        "config file without padding": config_file(b"x" * 1024),
        "config text": short_text(2, b"<configuration/>\n\0"),
        "header": short_text(3, "<name>Jos\u00e9</name>".encode()),
        "header in latin-1": short_text(3, "<name>Jos\u00e9</name>".encode("latin-1")),
        "text": short_text(5, b'{"parameters": {}}'),
        "empty text": short_text(5, b""),
        "query": query(3, b"gadgetron::info"),
        "response": response(3, b"4.7.2"),
        "error": error(b"no header"),
        "acquisition": acquisition(5, 3),
        "acquisition with trajectory": acquisition(5, 3, 2, flags=1 << 18, line=40),
        "acquisition without samples": acquisition(0, 1),
        "waveform": waveform(5, 2),
        "waveform with garbage in its padding": waveform(5, 2, padding=b"\xa5"),
        "image of uint16": image(pixels.astype("<u2"), 1),
        "image of int16": image(pixels.astype("<i2"), 2, b"<ismrmrdMeta/>"),
        "image of uint32": image(pixels.astype("<u4"), 3),
        "image of int32": image(pixels.astype("<i4"), 4),
        "image of float": image(pixels.astype("<f4"), 5, b"<ismrmrdMeta/>\n\0"),
        "image of double": image(pixels.astype("<f8"), 6),
        "image of complex64": image((1j * pixels).astype("<c8"), 7),
        "image of complex128": image((1j * pixels).astype("<c16"), 8, b"odd"),
        "recon data": recon_data(),
        "recon data without bits": b"\xff\x03" + uint64(0),
        "image array": image_array(with_extras=False),
        "image array with waveforms and readout headers": image_array(with_extras=True),
        "image array of nothing": b"\x00\x04" + uint64(0, 0, 0) + b"\0\0",
        "bucket": bucket(),
        "empty bucket": b"\x1a\x04" + uint64(*[0] * 13),
        "close": close(),
    }
