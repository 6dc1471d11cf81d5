"""The layout of Gadgetron's own containers: recon data (1023), image arrays (1024) and buckets (1050)."""

import struct
from collections.abc import Sequence

from gadget.errors import OwnProtocolError, PeerProtocolError
from gadget.wire.binary import (
    UINT64,
    ReadBytes,
    Steps,
    array_of,
    array_parts,
    read_array,
    read_flag,
    read_uint64,
    record_bytes,
)
from gadget.wire.headers import ACQUISITION_HEADER, IMAGE_HEADER, WAVEFORM_HEADER
from gadget.wire.limits import Budget
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    ImageArray,
    ReconBit,
    ReconData,
    ReconDataArray,
    Waveform,
)
from gadget.wire.plain_messages import (
    acquisition_parts,
    long_text_parts,
    read_meta,
    read_waveform,
    readout_sizes,
    waveform_parts,
    waveform_sizes,
)

SAMPLING_BYTES = 56
"""54 bytes of sampling description and 2 of padding."""

_BUCKET_SIZES = struct.Struct("<13Q")
_ABSENT, _PRESENT = b"\0", b"\1"


def read_recon_data(budget: Budget) -> Steps[ReconData]:
    """A uint64 count of bits; each holds data and, where its flag says so, reference."""
    n_bits = budget.claim_items(
        (yield from read_uint64(budget, "The number of recon bits")), "The number of recon bits"
    )
    bits = []
    for _ in range(n_bits):
        data = yield from _read_recon_buffer(budget)
        has_reference = yield from read_flag(budget, "a reference buffer")
        bits.append(ReconBit(data, (yield from _read_recon_buffer(budget)) if has_reference else None))
    return ReconData(tuple(bits))


def recon_data_parts(message: ReconData) -> list[ReadBytes]:
    """Inverse of :func:`read_recon_data`."""
    parts: list[ReadBytes] = [UINT64.pack(len(message.bits))]
    for bit in message.bits:
        parts += _recon_buffer_parts(bit.data)
        parts += [_ABSENT] if bit.reference is None else [_PRESENT, *_recon_buffer_parts(bit.reference)]
    return parts


def _read_recon_buffer(budget: Budget) -> Steps[ReconDataArray]:
    data = yield from read_array(budget, "<c8", "recon data")
    has_trajectory = yield from read_flag(budget, "a trajectory")
    trajectory = (yield from read_array(budget, "<f4", "recon trajectory")) if has_trajectory else None
    has_density = yield from read_flag(budget, "a density")
    density = (yield from read_array(budget, "<f4", "recon density")) if has_density else None
    headers = yield from read_array(budget, ACQUISITION_HEADER, "recon headers")
    if (data.size and data.ndim != 7) or (headers.size and headers.ndim != 5):
        raise PeerProtocolError(
            f"A recon buffer has data of shape {data.shape} and headers of shape {headers.shape}; needed are "
            "7 axes (RO, E1, E2, CHA, N, S, LOC) and 5 (E1, E2, N, S, LOC)."
        )
    sampling = yield budget.claim(SAMPLING_BYTES, "A sampling description")
    return ReconDataArray(data, trajectory, density, headers, bytes(sampling))


def _recon_buffer_parts(buffer: ReconDataArray) -> list[ReadBytes]:
    if len(buffer.sampling) != SAMPLING_BYTES:
        raise OwnProtocolError(
            f"A sampling description has {len(buffer.sampling)} bytes; it must have {SAMPLING_BYTES}."
        )
    parts = array_parts(buffer.data, "<c8", "ReconDataArray.data")
    for array, what in ((buffer.trajectory, "trajectory"), (buffer.density, "density")):
        parts.append(_ABSENT if array is None else _PRESENT)
        if array is not None:
            parts += array_parts(array, "<f4", f"ReconDataArray.{what}")
    parts += array_parts(buffer.headers, ACQUISITION_HEADER, "ReconDataArray.headers")
    return [*parts, buffer.sampling]


def read_image_array(budget: Budget) -> Steps[ImageArray]:
    """Pixels, headers, metas, and where their flags say so waveforms and acquisition headers."""
    data = yield from read_array(budget, "<c8", "image array data")
    headers = yield from read_array(budget, IMAGE_HEADER, "image array headers")
    n_metas = budget.claim_items(
        (yield from read_uint64(budget, "The number of metas")), "The number of metas"
    )
    metas = []
    for _ in range(n_metas):
        metas.append((yield from read_meta(budget)))
    waveforms: list[Waveform] | None = None
    if (yield from read_flag(budget, "a list of waveforms")):
        waveforms = []
        n_waveforms = yield from read_uint64(budget, "The number of waveforms")
        for _ in range(budget.claim_items(n_waveforms, "The number of waveforms")):
            waveforms.append((yield from read_waveform(budget)))
    has_acquisition_headers = yield from read_flag(budget, "an array of acquisition headers")
    acquisition_headers = (
        (yield from read_array(budget, ACQUISITION_HEADER, "acquisition headers"))
        if has_acquisition_headers
        else None
    )
    return ImageArray(
        data, headers, tuple(metas), None if waveforms is None else tuple(waveforms), acquisition_headers
    )


def image_array_parts(message: ImageArray) -> list[ReadBytes]:
    """Inverse of :func:`read_image_array`."""
    parts = array_parts(message.data, "<c8", "ImageArray.data")
    parts += array_parts(message.headers, IMAGE_HEADER, "ImageArray.headers")
    parts.append(UINT64.pack(len(message.metas)))
    for meta in message.metas:
        parts += long_text_parts(meta)
    if message.waveforms is None:
        parts.append(_ABSENT)
    else:
        parts += [_PRESENT, UINT64.pack(len(message.waveforms))]
        for waveform in message.waveforms:
            parts += waveform_parts(waveform)
    if message.acquisition_headers is None:
        return [*parts, _ABSENT]
    return [
        *parts,
        _PRESENT,
        *array_parts(message.acquisition_headers, ACQUISITION_HEADER, "ImageArray.acquisition_headers"),
    ]


def read_bucket(budget: Budget) -> Steps[AcquisitionBucket]:
    """13 counts and sizes, then readouts and statistics for data and for reference, then waveforms."""
    sizes = _BUCKET_SIZES.unpack((yield budget.claim(_BUCKET_SIZES.size, "A bucket")))
    data = yield from _read_readouts(budget, sizes[0:4], "data")
    data_statistics = bytes((yield budget.claim(sizes[8], "The statistics of a bucket's data")))
    reference = yield from _read_readouts(budget, sizes[4:8], "reference")
    reference_statistics = bytes((yield budget.claim(sizes[9], "The statistics of a bucket's reference")))
    waveforms = yield from _read_waveforms(budget, sizes[10:13])
    return AcquisitionBucket(data, reference, waveforms, data_statistics, reference_statistics)


def bucket_parts(message: AcquisitionBucket) -> list[ReadBytes]:
    """Inverse of :func:`read_bucket`."""
    data_sizes, data_parts = _readouts_parts(message.data)
    reference_sizes, reference_parts = _readouts_parts(message.reference)
    headers = [
        record_bytes(waveform.header, WAVEFORM_HEADER, "Waveform.header") for waveform in message.waveforms
    ]
    samples = [waveform_parts(waveform)[1] for waveform in message.waveforms]
    sizes = _BUCKET_SIZES.pack(
        *data_sizes,
        *reference_sizes,
        len(message.data_statistics),
        len(message.reference_statistics),
        *(len(headers), sum(map(len, headers)), sum(map(len, samples))),
    )
    return [
        sizes,
        *data_parts,
        message.data_statistics,
        *reference_parts,
        message.reference_statistics,
        *headers,
        *samples,
    ]


def _read_readouts(budget: Budget, sizes: Sequence[int], what: str) -> Steps[tuple[Acquisition, ...]]:
    """Headers of all readouts, then all trajectories, then all samples."""
    n_readouts, n_header_bytes, n_data_bytes, n_trajectory_bytes = sizes
    budget.claim_items(n_readouts, f"Readouts in a bucket's {what}")
    if n_header_bytes != n_readouts * ACQUISITION_HEADER.itemsize:
        raise _inconsistent_bucket(what, n_header_bytes, f"{n_readouts} acquisition headers")
    raw_headers = memoryview((yield budget.claim(n_header_bytes, f"The headers of a bucket's {what}")))
    headers = array_of(raw_headers, ACQUISITION_HEADER, (n_readouts,))
    claims = [
        readout_sizes(raw_headers[start:]) for start in range(0, n_header_bytes, ACQUISITION_HEADER.itemsize)
    ]
    trajectory_bytes = [4 * n_samples * n_dimensions for n_samples, _, n_dimensions in claims]
    data_bytes = [8 * n_samples * n_channels for n_samples, n_channels, _ in claims]
    if sum(trajectory_bytes) != n_trajectory_bytes:
        raise _inconsistent_bucket(
            what,
            n_trajectory_bytes,
            f"trajectories of {sum(trajectory_bytes)} bytes that its headers tell of",
        )
    if sum(data_bytes) != n_data_bytes:
        raise _inconsistent_bucket(
            what, n_data_bytes, f"samples of {sum(data_bytes)} bytes that its headers tell of"
        )
    raw_trajectories = memoryview(
        (yield budget.claim(n_trajectory_bytes, f"The trajectories of a bucket's {what}"))
    )
    raw_data = memoryview((yield budget.claim(n_data_bytes, f"The samples of a bucket's {what}")))
    readouts = []
    trajectory_start = data_start = 0
    for index, (n_samples, n_channels, n_dimensions) in enumerate(claims):
        trajectory_end = trajectory_start + trajectory_bytes[index]
        data_end = data_start + data_bytes[index]
        readouts.append(
            Acquisition(
                headers[index],
                array_of(raw_trajectories[trajectory_start:trajectory_end], "<f4", (n_samples, n_dimensions)),
                array_of(raw_data[data_start:data_end], "<c8", (n_channels, n_samples)),
            )
        )
        trajectory_start, data_start = trajectory_end, data_end
    return tuple(readouts)


def _readouts_parts(readouts: Sequence[Acquisition]) -> tuple[tuple[int, int, int, int], list[ReadBytes]]:
    """Return the four sizes of a bundle of readouts, and its buffers."""
    columns = [acquisition_parts(readout) for readout in readouts]
    headers, trajectories, data = ([column[k] for column in columns] for k in range(3))
    sizes = (len(readouts), sum(map(len, headers)), sum(map(len, data)), sum(map(len, trajectories)))
    return sizes, [*headers, *trajectories, *data]


def _read_waveforms(budget: Budget, sizes: Sequence[int]) -> Steps[tuple[Waveform, ...]]:
    """Headers of all waveforms, then all samples."""
    n_waveforms, n_header_bytes, n_data_bytes = sizes
    budget.claim_items(n_waveforms, "Waveforms in a bucket")
    if n_header_bytes != n_waveforms * WAVEFORM_HEADER.itemsize:
        raise _inconsistent_bucket("waveforms", n_header_bytes, f"{n_waveforms} waveform headers")
    raw_headers = memoryview((yield budget.claim(n_header_bytes, "The headers of a bucket's waveforms")))
    headers = array_of(raw_headers, WAVEFORM_HEADER, (n_waveforms,))
    claims = [
        waveform_sizes(raw_headers[start:]) for start in range(0, n_header_bytes, WAVEFORM_HEADER.itemsize)
    ]
    if 4 * sum(n_samples * n_channels for n_samples, n_channels in claims) != n_data_bytes:
        raise _inconsistent_bucket("waveforms", n_data_bytes, "the samples that its waveform headers tell of")
    samples = array_of(
        (yield budget.claim(n_data_bytes, "The samples of a bucket's waveforms")), "<u4", (n_data_bytes // 4,)
    )
    waveforms = []
    start = 0
    for header, (n_samples, n_channels) in zip(headers, claims, strict=True):
        end = start + n_samples * n_channels
        waveforms.append(Waveform(header, samples[start:end].reshape(n_channels, n_samples)))
        start = end
    return tuple(waveforms)


def _inconsistent_bucket(what: str, n_bytes: int, needed: str) -> PeerProtocolError:
    return PeerProtocolError(
        f"A bucket's {what} claims {n_bytes} bytes, which does not match {needed}. Gadgetron's "
        "RemoveROOversamplingGadget halves samples but not trajectories: put the external node before it."
    )
