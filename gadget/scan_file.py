"""Recorded scans, read into messages. They are opened for reading only, never changed.

There are two formats, told apart by content: ISMRMRD HDF5 files, which this module reads, and stream files
(:mod:`gadget.spool.stream_file`), which a server writes while a scan comes in.

What a scan is in HDF5: a group (``dataset``, unless another is asked for) with the XML header in ``xml``, the
readouts in ``data`` (records of ``head``, ``traj`` and ``data``), and sometimes ``waveforms``. A file may
hold several such groups, and others with images or arrays.

Every fault of a file leads to an error of this project: :class:`FileError` where the file cannot be read
(on), :class:`ScanError` where what is read is no scan, or contradicts itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gadget.errors import FileError, ScanError
from gadget.scan_groups import (
    elsewhere,
    fields_of,
    is_image_series,
    is_list_of_readouts,
    name_of,
    names_in,
    opened,
    reading,
    required,
    scan_group,
)
from gadget.spool.scan_names import where_it_is
from gadget.spool.stream_file import count_stream_readouts, is_stream, read_stream_scan
from gadget.stored_records import floats_of, headers_of, is_laid_out
from gadget.wire.headers import ACQUISITION_HEADER, WAVEFORM_HEADER
from gadget.wire.messages import (
    TEXT_ENCODING,
    TEXT_ERRORS,
    Acquisition,
    Close,
    Message,
    ScanHeader,
    Waveform,
)

DEFAULT_GROUP = "dataset"
READOUTS_AT_ONCE = 256
"""Readouts that are held in memory at a time, at most."""
BYTES_AT_ONCE = 64 * 2**20
"""Where readouts are long, fewer of them are held, so that they take about this much."""
FIRST_BLOCK = 16
"""Readouts that are read before anything is known about their length."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadoutBlock:
    """Readouts that lie one after another in a file."""

    path: Path
    first: int
    """Number of the first one in the file, from 0."""
    headers: NDArray[Any]
    """ACQUISITION_HEADER (readout,)."""
    samples: NDArray[Any]
    """One array per readout: real and imaginary parts, as they are stored."""
    points: NDArray[Any]
    """One array of trajectory values per readout, as they are stored."""

    def __len__(self) -> int:
        return len(self.headers)

    def acquisition(self, number: int) -> Acquisition:
        """Return a readout of this block, counted from 0.

        Raises
        ------
        ScanError
            Its header and its samples contradict each other, or the samples are no numbers.
        """
        header = self.headers[number]
        n_channels, n_samples = int(header["active_channels"]), int(header["number_of_samples"])
        n_dims = int(header["trajectory_dimensions"])
        name = f"Readout {self.first + number} of {self.path}"
        values, points = floats_of(self.samples[number], name), floats_of(self.points[number], name)
        if values.size != 2 * n_channels * n_samples or points.size != n_dims * n_samples:
            raise ScanError(
                f"{name} has {values.size} values and {points.size} trajectory values; "
                f"its header says {n_channels} channels, {n_samples} samples and {n_dims} trajectory "
                "dimensions."
            )
        return Acquisition(
            header=header,
            trajectory=points.reshape(n_samples, n_dims),
            data=values.view(np.complex64).reshape(n_channels, n_samples),
        )


def read_scan(path: Path, group: str = DEFAULT_GROUP) -> Iterator[Message]:
    """Yield a recorded scan as a peer would send it: header, readouts with waveforms among them, close.

    From HDF5, waveforms come before the first readout that has their time stamp or a later one. A stream file
    has its messages in order, and Gadgetron's buckets and buffers among them; where it breaks off, as after a
    crash, that is logged, and close follows what was whole.

    Raises
    ------
    FileError
        The file cannot be read, or has no such group.
    ScanError
        What is read is no scan.
    """
    path = where_it_is(path)
    if is_stream(path):
        refuse_group_of_stream(path, group)
        yield from read_stream_scan(path)
        return
    with open_scan(path) as file:
        folder = scan_group(file, path, group)
        yield ScanHeader(header_text(folder, path))
        waveforms = read_waveforms(folder, path)
        waiting = next(waveforms, None)
        for block in read_readouts(folder, path):
            for number in range(len(block)):
                acquisition = block.acquisition(number)
                now = acquisition.header["acquisition_time_stamp"]
                while waiting and waiting.header["time_stamp"] <= now:
                    yield waiting
                    waiting = next(waveforms, None)
                yield acquisition
        if waiting:
            yield waiting
            yield from waveforms
    yield Close()


def count_readouts(path: Path, group: str = DEFAULT_GROUP) -> int:
    """Return the number of readouts of a recorded scan, those within Gadgetron's containers not counted."""
    path = where_it_is(path)
    if is_stream(path):
        refuse_group_of_stream(path, group)
        return count_stream_readouts(path)
    with open_scan(path) as file:
        return int(_readouts(scan_group(file, path, group), path).shape[0])


def open_scan(path: Path) -> h5py.File:
    """Open an HDF5 file for reading, also one in a folder that cannot be written to."""
    try:
        if path.is_file():
            with path.open("rb"):
                pass  # what h5py says of a file that may not be read is of no use
            if not h5py.is_hdf5(path):
                if is_stream(path):
                    raise FileError(f"{path} is a stream file, where an HDF5 file is needed.")
                raise FileError(
                    f"{path} is not an HDF5 file; a scan is needed in the ISMRMRD format (.h5). Convert a "
                    "scanner's own files first, with siemens_to_ismrmrd for example."
                )
        return h5py.File(path, "r", locking="best-effort")
    except (OSError, RuntimeError) as error:
        raise FileError(f"Cannot read {path}: {error}.") from error


def refuse_group_of_stream(path: Path, group: str) -> None:
    """Raise FileError where a group of a stream file is asked for."""
    if group != DEFAULT_GROUP:
        raise FileError(
            f"{path} is a stream file: it has one scan and no group '{group}'. Leave --group out."
        )


def header_text(folder: h5py.Group, path: Path) -> str:
    """Return the XML header of a scan. It holds patient data: never log it."""
    where = f"{name_of(folder)}/xml"
    stored = required(folder, "xml", path)
    with reading(path, f"the XML header '{where}'"):
        is_empty = not isinstance(stored, h5py.Dataset) or not stored.size
    if is_empty:
        raise ScanError(
            f"{path} has no XML header '{where}'; a scan cannot be laid out without one.{elsewhere(folder)}"
        )
    with reading(path, f"the XML header '{where}'"):
        xml = stored[()] if stored.shape == () else stored[(0,) * stored.ndim]
    if isinstance(xml, np.bytes_ | bytes):
        return bytes(xml).decode(TEXT_ENCODING, TEXT_ERRORS)
    if isinstance(xml, str):
        return xml
    raise ScanError(
        f"The XML header '{where}' of {path} is no text, but {stored.dtype}. Check the converter."
    )


def read_readouts(folder: h5py.Group, path: Path) -> Iterator[ReadoutBlock]:
    """Yield the readouts of a scan, block by block."""
    for first, rows in _blocks(_readouts(folder, path), path):
        yield ReadoutBlock(
            path=path,
            first=first,
            headers=headers_of(rows["head"], ACQUISITION_HEADER, path),
            samples=rows["data"],
            points=rows["traj"],
        )


def read_waveforms(folder: h5py.Group, path: Path) -> Iterator[Waveform]:
    """Yield the waveforms of a scan; it may have none."""
    stored = opened(folder, "waveforms")
    if stored is None:
        return
    where = f"'{name_of(folder)}/waveforms' of {path}"
    if not isinstance(stored, h5py.Dataset) or not {"head", "data"} <= fields_of(stored):
        raise ScanError(f"{where} is no list of ISMRMRD waveforms (head, data).")
    for first, rows in _blocks(stored, path):
        headers = headers_of(rows["head"], WAVEFORM_HEADER, path)
        for index, (header, values) in enumerate(zip(headers, rows["data"], strict=True), first):
            shape = int(header["channels"]), int(header["number_of_samples"])
            name = f"Waveform {index} of {path}"
            if not np.issubdtype(np.asarray(values).dtype, np.integer):
                raise ScanError(f"{name} holds {np.asarray(values).dtype}; whole numbers are needed.")
            if values.size != shape[0] * shape[1]:
                raise ScanError(f"{name} has {values.size} values, its header says {shape}.")
            yield Waveform(header=header, data=np.ascontiguousarray(values, np.uint32).reshape(shape))


def _readouts(folder: h5py.Group, path: Path) -> h5py.Dataset:
    where = f"{name_of(folder)}/data"
    stored = required(folder, "data", path)
    if is_image_series(folder):
        raise ScanError(f"'{name_of(folder)}' of {path} holds images, not readouts.{elsewhere(folder)}")
    with reading(path, f"'{where}'"):
        is_empty = not isinstance(stored, h5py.Dataset) or not stored.size
    if is_empty:
        series = [name for name in names_in(folder) if is_image_series(opened(folder, name))]
        images = f" It holds images ({', '.join(series)})." if series else ""
        raise ScanError(
            f"{path} has no acquisitions in '{where}': there is nothing to reconstruct.{images}"
            f"{elsewhere(folder)}"
        )
    if not is_list_of_readouts(stored):
        raise ScanError(f"'{where}' of {path} is no list of ISMRMRD acquisitions (head, traj, data).")
    return stored


def _blocks(stored: h5py.Dataset, path: Path) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the entries of a list, block by block, with the number of the first."""
    if not is_laid_out(stored.dtype):
        raise FileError(
            f"Cannot read '{stored.name.strip('/')}' of {path}: the fields of its records overlap. "
            "The file is damaged."
        )
    start, n_entries = 0, FIRST_BLOCK
    while start < stored.shape[0]:
        with reading(path, f"the entries from {start} on in '{stored.name.strip('/')}'"):
            block = stored[start : start + n_entries]
        yield start, block
        start += len(block)
        largest = max(np.asarray(values).nbytes for values in block["data"])
        n_entries = max(1, min(READOUTS_AT_ONCE, BYTES_AT_ONCE // max(largest, 1)))
