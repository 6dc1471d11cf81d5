"""Files with k-space to evaluate on: what they are, and recorded ISMRMRD scans as assembled slices."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import torch

from gadget.assembly_settings import assembly_settings
from gadget.errors import FileError, ScanError
from gadget.scan.assemble import AssembledSlice, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.scan.volume import AssembledVolume
from gadget.scan_file import open_scan, read_scan
from gadget.scan_writer import read_truth
from gadget.settings import Settings
from gadget.spool.stream_file import is_stream
from gadget.wire.messages import Acquisition, ScanHeader

NO_TRUTH = "{} has no truth in it; only scans by `simulate` have. Use the reference 'rss'."

FROM_OUTERMOST = "from the outermost samples"


def kind_of_file(path: Path) -> Literal["array", "fastMRI", "ISMRMRD"]:
    """Return what a file with k-space is: by its name, and by what is in it."""
    if path.suffix == ".npy":
        return "array"
    if path.suffix == ".npz":
        raise FileError(
            f"{path} is an archive of arrays; k-space is needed, as .npy or .h5. Magnitude images are for "
            "`evaluate --study simulated` and `--study single-coil`."
        )
    if is_stream(path):
        return "ISMRMRD"
    with open_scan(path) as file:
        return "fastMRI" if isinstance(file.get("kspace"), h5py.Dataset) else "ISMRMRD"


def is_non_cartesian(path: Path) -> bool:
    """Whether a file is an ISMRMRD scan whose first encoding is none of lines on the grid."""
    if kind_of_file(path) != "ISMRMRD":
        return False
    header = next((one for one in read_scan(path) if isinstance(one, ScanHeader)), None)
    return header is not None and not parse_scan_header(header.text).encodings[0].is_cartesian


def assembled_slices(
    path: Path, settings: Settings, stays: Callable[[Acquisition], bool] = lambda _readout: True
) -> list[AssembledSlice]:
    """Assemble an ISMRMRD scan of slices as the pipeline does, of the readouts that stay."""
    assembler: SliceAssembler | None = None
    complete: list[AssembledSlice | AssembledVolume] = []
    for message in read_scan(path):
        if isinstance(message, ScanHeader):
            assembler = SliceAssembler(parse_scan_header(message.text), assembly_settings(settings))
        elif isinstance(message, Acquisition) and assembler is not None and stays(message):
            complete += assembler.add(message)
    if assembler is not None:
        complete += assembler.finish()
    assembled = [one for one in complete if isinstance(one, AssembledSlice)]
    if len(assembled) < len(complete):
        raise ScanError(f"{path} is a 3-D scan, which is not evaluated; give a scan of slices.")
    return assembled


def truth_of_slice(path: Path, one: AssembledSlice) -> torch.Tensor:
    """Return the truth of a slice that ``simulate`` stored, float32 (1, 1, y, x)."""
    truth = read_truth(path)
    if truth is None:
        raise ScanError(NO_TRUTH.format(path))
    return torch.from_numpy(truth.magnitude[one.context.slice].astype(np.float32))[None, None]


def noise_words(one: AssembledSlice) -> str:
    """Say where the noise level of an assembled slice comes from."""
    whitened = any("prewhitened with" in note for note in one.context.notes)
    return "from the noise readouts" if whitened else FROM_OUTERMOST


def middle(n: int, wanted: int | None) -> range:
    """Return which slices of ``n`` are the ``wanted`` ones in the middle; all where None are wanted."""
    if wanted is None or wanted >= n:
        return range(n)
    first = (n - wanted) // 2
    return range(first, first + wanted)
