"""Where an inspection reads from: one group of an HDF5 file, or a stream file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import h5py
import numpy as np

from gadget.errors import ScanError
from gadget.scan.buckets import readouts_of_bucket
from gadget.scan.recon_data import readouts_of
from gadget.scan_file import READOUTS_AT_ONCE, ReadoutBlock, header_text, read_readouts, read_waveforms
from gadget.spool.stream_file import StreamReader
from gadget.wire.headers import ACQUISITION_HEADER
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    Message,
    ReconData,
    ScanHeader,
    Waveform,
)


class Recording(Protocol):
    """A recorded scan; what is faulty raises FileError or ScanError where it is read."""

    def header(self) -> str: ...
    def readouts(self) -> Iterator[ReadoutBlock]: ...
    def waveforms(self) -> Iterator[Waveform]: ...
    def broken_off(self) -> str | None:
        """Return where the recording breaks off, once it was read; None where it is whole."""


class GroupRecording:
    """A group of an HDF5 file."""

    def __init__(self, folder: h5py.Group, path: Path) -> None:
        self._folder, self._path = folder, path

    def header(self) -> str:
        return header_text(self._folder, self._path)

    def readouts(self) -> Iterator[ReadoutBlock]:
        return read_readouts(self._folder, self._path)

    def waveforms(self) -> Iterator[Waveform]:
        return read_waveforms(self._folder, self._path)

    def broken_off(self) -> None:
        return None


class StreamRecording:
    """A stream file, read once for each question; Gadgetron's containers are taken apart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._broken_off: str | None = None

    def header(self) -> str:
        for message in StreamReader(self._path):
            if isinstance(message, ScanHeader):
                return message.text
        raise ScanError(f"{self._path} has no XML header; a scan cannot be laid out without one.")

    def readouts(self) -> Iterator[ReadoutBlock]:
        first, block = 0, list[Acquisition]()
        reader = StreamReader(self._path)
        for message in reader:
            block += _readouts_in(message)
            if len(block) >= READOUTS_AT_ONCE:
                yield self._block(first, block)
                first, block = first + len(block), []
        if block:
            yield self._block(first, block)
        self._broken_off = reader.broken_off

    def waveforms(self) -> Iterator[Waveform]:
        for message in StreamReader(self._path):
            if isinstance(message, Waveform):
                yield message
            elif isinstance(message, AcquisitionBucket):
                yield from message.waveforms

    def broken_off(self) -> str | None:
        return self._broken_off

    def _block(self, first: int, readouts: list[Acquisition]) -> ReadoutBlock:
        headers = np.array([readout.header for readout in readouts], ACQUISITION_HEADER)
        samples, points = (np.empty(len(readouts), object) for _ in range(2))
        for number, readout in enumerate(readouts):
            samples[number], points[number] = readout.data, readout.trajectory
        return ReadoutBlock(path=self._path, first=first, headers=headers, samples=samples, points=points)


def _readouts_in(message: Message) -> Iterator[Acquisition]:
    if isinstance(message, Acquisition):
        yield message
    elif isinstance(message, AcquisitionBucket):
        yield from readouts_of_bucket(message)
    elif isinstance(message, ReconData):
        yield from readouts_of(message)
