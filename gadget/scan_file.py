"""Recorded scans: ISMRMRD HDF5 files, read into messages. They are opened for reading only, never changed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gadget.errors import FileError, ScanError
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

READOUTS_AT_ONCE = 256
"""Readouts that are held in memory at a time."""


def read_scan(path: Path, group: str = "dataset") -> Iterator[Message]:
    """Yield a recorded scan as a peer would send it: header, readouts with waveforms among them, close.

    Waveforms come before the first readout that has their time stamp or a later one.
    """
    with open_scan(path) as file:
        folder = _group(file, path, group)
        yield ScanHeader(_xml(folder, path, group))
        waveforms = _waveforms(folder, path)
        waiting = next(waveforms, None)
        for acquisition in _acquisitions(folder, path, group):
            while waiting and waiting.header["time_stamp"] <= acquisition.header["acquisition_time_stamp"]:
                yield waiting
                waiting = next(waveforms, None)
            yield acquisition
        if waiting:
            yield waiting
            yield from waveforms
    yield Close()


def count_readouts(path: Path, group: str = "dataset") -> int:
    """Return the number of readouts of a recorded scan."""
    with open_scan(path) as file:
        return int(_readouts(_group(file, path, group), path, group).shape[0])


def open_scan(path: Path) -> h5py.File:
    """Open an HDF5 file for reading, also one in a folder that cannot be written to."""
    try:
        if path.is_file() and not h5py.is_hdf5(path):
            raise FileError(f"{path} is not an HDF5 file; a scan is needed in the ISMRMRD format (.h5).")
        return h5py.File(path, "r", locking="best-effort")
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error}.") from error


def _group(file: h5py.File, path: Path, group: str) -> h5py.Group:
    found = file.get(group)
    if isinstance(found, h5py.Group):
        return found
    groups = sorted(name for name, item in file.items() if isinstance(item, h5py.Group))
    there = f"it has {', '.join(groups)}" if groups else "it has no groups at all"
    raise FileError(f"{path} has no group '{group}'; {there}. Choose one with --group.")


def _xml(folder: h5py.Group, path: Path, group: str) -> str:
    stored = folder.get("xml")
    if not isinstance(stored, h5py.Dataset) or stored.size == 0:
        raise ScanError(f"{path} has no XML header '{group}/xml'; a scan cannot be laid out without one.")
    xml = stored[()] if stored.shape == () else stored[0]
    return xml.decode(TEXT_ENCODING, TEXT_ERRORS) if isinstance(xml, bytes) else str(xml)


def _readouts(folder: h5py.Group, path: Path, group: str) -> h5py.Dataset:
    stored = folder.get("data")
    if not isinstance(stored, h5py.Dataset) or stored.size == 0:
        raise ScanError(f"{path} has no acquisitions in '{group}/data': there is nothing to reconstruct.")
    if stored.ndim != 1 or not {"head", "traj", "data"} <= set(stored.dtype.names or ()):
        raise ScanError(f"'{group}/data' of {path} is no list of ISMRMRD acquisitions (head, traj, data).")
    return stored


def _acquisitions(folder: h5py.Group, path: Path, group: str) -> Iterator[Acquisition]:
    for index, row in _rows(_readouts(folder, path, group), path):
        header = _header(row["head"], ACQUISITION_HEADER, path)
        n_channels, n_samples = int(header["active_channels"]), int(header["number_of_samples"])
        n_dims = int(header["trajectory_dimensions"])
        values = np.ascontiguousarray(row["data"], dtype=np.float32)
        points = np.ascontiguousarray(row["traj"], dtype=np.float32)
        if values.size != 2 * n_channels * n_samples or points.size != n_dims * n_samples:
            raise ScanError(
                f"Readout {index} of {path} has {values.size} values and {points.size} trajectory values; "
                f"its header says {n_channels} channels, {n_samples} samples and {n_dims} trajectory "
                "dimensions."
            )
        yield Acquisition(
            header=header,
            trajectory=points.reshape(n_samples, n_dims),
            data=values.view(np.complex64).reshape(n_channels, n_samples),
        )


def _waveforms(folder: h5py.Group, path: Path) -> Iterator[Waveform]:
    stored = folder.get("waveforms")
    if not isinstance(stored, h5py.Dataset):
        return
    for index, row in _rows(stored, path):
        header = _header(row["head"], WAVEFORM_HEADER, path)
        shape = int(header["channels"]), int(header["number_of_samples"])
        values = np.ascontiguousarray(row["data"], dtype=np.uint32)
        if values.size != shape[0] * shape[1]:
            raise ScanError(f"Waveform {index} of {path} has {values.size} values, its header says {shape}.")
        yield Waveform(header=header, data=values.reshape(shape))


def _rows(stored: h5py.Dataset, path: Path) -> Iterator[tuple[int, Any]]:
    for start in range(0, stored.shape[0], READOUTS_AT_ONCE):
        try:
            block = stored[start : start + READOUTS_AT_ONCE]
        except OSError as error:
            raise FileError(
                f"{path} cannot be read on from entry {start} of {stored.name}: {error}."
            ) from error
        yield from enumerate(block, start)


def _header(stored: Any, wanted: np.dtype[Any], path: Path) -> Any:
    """Copy a header record field by field by name; layouts differ in padding and in byte order."""
    names = stored.dtype.names or ()
    missing = [name for name in wanted.names or () if name not in names]
    if missing:
        raise ScanError(
            f"Headers in {path} have no {', '.join(missing)}; they are not ISMRMRD headers of version 1."
        )
    header: NDArray[Any] = np.zeros((), dtype=wanted)
    for name in wanted.names or ():
        header[name] = stored[name]
    return header[()]
