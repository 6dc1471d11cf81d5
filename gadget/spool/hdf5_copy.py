"""Finished stream files become ISMRMRD HDF5 files, which every ISMRMRD reader takes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gadget.errors import FileError, GadgetError
from gadget.scan_file import (
    DEFAULT_GROUP,
    header_text,
    open_scan,
    read_readouts,
    read_waveforms,
)
from gadget.spool.stream_file import StreamReader
from gadget.whole_hdf5 import new_hdf5_file
from gadget.wire.binary import bytes_of_text
from gadget.wire.headers import ACQUISITION_HEADER, WAVEFORM_HEADER
from gadget.wire.limits import MIB
from gadget.wire.messages import (
    Acquisition,
    Close,
    ConfigFile,
    ConfigText,
    Message,
    ScanHeader,
    Text,
    Waveform,
)

ASKED_GROUP = "asked"
"""Group with what the peer asked its server for: ``kind`` (ConfigFile, ConfigText or Text) and ``text``."""

_ACQUISITION = np.dtype(
    [
        ("head", ACQUISITION_HEADER),
        ("traj", h5py.special_dtype(vlen=np.dtype("<f4"))),
        ("data", h5py.special_dtype(vlen=np.dtype("<f4"))),
    ]
)
_WAVEFORM = np.dtype([("head", WAVEFORM_HEADER), ("data", h5py.special_dtype(vlen=np.dtype("<u4")))])
_ASKED = np.dtype([("kind", "S16"), ("text", h5py.special_dtype(vlen=bytes))])
_BYTES_AT_ONCE = MIB
_ROWS_PER_CHUNK = 64

Row = tuple[Any, ...]


class NotForHdf5(GadgetError):
    """A stream file holds what ISMRMRD's HDF5 format has no place for, or is not whole: it stays as it is."""


class Stopped(GadgetError):
    """The copy was given up, as was asked."""


def copy_to_hdf5(stream: Path, target: Path, *, stopped: Callable[[], bool] = lambda: False) -> None:
    """Write a whole stream file as an ISMRMRD HDF5 file, and compare header, readouts and waveforms.

    Texts end at their first NUL. The order of waveforms among readouts is lost; time stamps tell it.

    Parameters
    ----------
    stopped
        Asked now and then; when it turns true, :class:`Stopped` is raised.

    Raises
    ------
    NotForHdf5
        The stream is not whole, has no readouts, or holds buckets, buffers or images.
    FileError
        A file cannot be read or written, or what was written reads otherwise; then it is removed again.
    """
    with new_hdf5_file(target) as (file, check):
        group = file.create_group(DEFAULT_GROUP)
        lists = {
            Acquisition: _List(group, "data", _ACQUISITION),
            Waveform: _List(group, "waveforms", _WAVEFORM),
            Text: _List(file, f"{ASKED_GROUP}/messages", _ASKED),
        }
        for message in _copied(stream, stopped):
            if isinstance(message, ScanHeader):
                xml = group.create_dataset("xml", shape=(1,), dtype=h5py.special_dtype(vlen=bytes))
                xml[0] = message.xml
            elif isinstance(message, Acquisition | Waveform):
                lists[type(message)].append(_row(message))
            elif isinstance(message, ConfigFile | ConfigText | Text):
                lists[Text].append((type(message).__name__.encode(), bytes_of_text(message.text)))
            check()
        for one in lists.values():
            one.flush()
        if not lists[Acquisition].n_rows:
            raise NotForHdf5(f"{stream} has no readouts.")
    try:
        if not is_copy(stream, target, stopped=stopped):
            raise FileError(f"{target} reads otherwise than {stream} after it was written from it.")
    except GadgetError:
        target.unlink(missing_ok=True)
        raise


def is_copy(stream: Path, target: Path, *, stopped: Callable[[], bool] = lambda: False) -> bool:
    """Whether an HDF5 file has the header, readouts and waveforms of a stream file, bit by bit.

    Raises
    ------
    GadgetError
        One of the files cannot be read, or the stream is not for HDF5.
    """
    with open_scan(target) as file:
        folder = file.get(DEFAULT_GROUP)
        if not isinstance(folder, h5py.Group):
            return False
        readouts = (
            block.acquisition(number)
            for block in read_readouts(folder, target)
            for number in range(len(block))
        )
        waveforms = read_waveforms(folder, target)
        for message in _copied(stream, stopped):
            if isinstance(message, ScanHeader):
                same = header_text(folder, target) == message.text
            elif isinstance(message, Acquisition):
                same = _bytes_of(next(readouts, None)) == _bytes_of(message)
            elif isinstance(message, Waveform):
                same = _bytes_of(next(waveforms, None)) == _bytes_of(message)
            else:
                continue
            if not same:
                return False
        return next(readouts, None) is None and next(waveforms, None) is None


def _copied(stream: Path, stopped: Callable[[], bool]) -> Iterator[Message]:
    """Yield the messages of a stream if HDF5 can hold them all."""
    reader = StreamReader(stream)
    for message in reader:
        if stopped():
            raise Stopped(f"The copy of {stream} was given up.")
        if isinstance(message, Acquisition | Waveform | ScanHeader | ConfigFile | ConfigText | Text):
            yield message
        elif not isinstance(message, Close):
            raise NotForHdf5(
                f"{stream} holds a {type(message).__name__}, for which HDF5 files have no place."
            )
    if reader.broken_off:
        raise NotForHdf5(reader.broken_off)


def _bytes_of(message: Acquisition | Waveform | None) -> list[bytes] | None:
    if message is None:
        return None
    arrays = [message.data] if isinstance(message, Waveform) else [message.trajectory, message.data]
    return [message.header.tobytes(), *(array.tobytes() for array in arrays)]


def _row(message: Acquisition | Waveform) -> Row:
    if isinstance(message, Waveform):
        return message.header, message.data.reshape(-1)
    samples = np.ascontiguousarray(message.data).reshape(-1).view("<f4")
    return message.header, message.trajectory.reshape(-1), samples


class _List:
    """A list of records in a file, made when the first comes, written in blocks."""

    def __init__(self, folder: h5py.Group, name: str, dtype: np.dtype[Any]) -> None:
        self.n_rows = 0
        self._folder = folder
        self._name = name
        self._dtype = dtype
        self._rows: list[Row] = []
        self._n_bytes = 0

    def append(self, row: Row) -> None:
        self._rows.append(row)
        self.n_rows += 1
        self._n_bytes += sum(part.nbytes if hasattr(part, "nbytes") else len(part) for part in row)
        if self._n_bytes >= _BYTES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        block: NDArray[Any] = np.empty(len(self._rows), self._dtype)
        for number, row in enumerate(self._rows):
            for name, part in zip(self._dtype.names or (), row, strict=True):
                block[name][number] = part
        if self._name not in self._folder:
            self._folder.create_dataset(
                self._name, (0,), maxshape=(None,), chunks=(_ROWS_PER_CHUNK,), dtype=self._dtype
            )
        stored = self._folder[self._name]
        stored.resize((self.n_rows,))
        stored[self.n_rows - len(block) :] = block
        self._rows.clear()
        self._n_bytes = 0
