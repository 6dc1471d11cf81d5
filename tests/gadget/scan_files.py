"""ISMRMRD files made by hand: from readouts of the synthetic object, with faults where a test wants them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import h5py
import ismrmrd
import numpy as np
from ismrmrd import hdf5

from gadget.wire.messages import Acquisition


def write_scan_file(
    path: Path,
    xml: str | bytes | None,
    acquisitions: Iterable[Acquisition],
    *,
    group: str = "dataset",
    waveforms: Sequence[ismrmrd.Waveform] = (),
) -> Path:
    """Add a scan to a file; without ``xml`` it has no header."""
    readouts = list(acquisitions)
    stored = np.zeros(len(readouts), hdf5.acquisition_dtype)
    for number, readout in enumerate(readouts):
        for name in stored.dtype["head"].names:
            stored[number]["head"][name] = readout.header[name]
        stored[number]["traj"] = np.ascontiguousarray(readout.trajectory, np.float32).reshape(-1)
        stored[number]["data"] = np.ascontiguousarray(readout.data).reshape(-1).view(np.float32)
    with h5py.File(path, "a") as file:
        folder = file.require_group(group)
        if xml is not None:
            folder.create_dataset("xml", (1,), dtype=h5py.special_dtype(vlen=bytes))
            folder["xml"][0] = xml.encode() if isinstance(xml, str) else xml
        folder.create_dataset("data", data=stored, maxshape=(None,), dtype=hdf5.acquisition_dtype)
    if waveforms:
        with ismrmrd.Dataset(str(path), group, mode="a") as dataset:
            for waveform in waveforms:
                dataset.append_waveform(waveform)
    return path
