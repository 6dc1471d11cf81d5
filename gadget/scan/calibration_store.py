"""Keeps calibration-only readouts, and gives each slice those that lie where it does."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError
from gadget.scan.calibration import CalibrationLines
from gadget.scan.header import Encoding
from gadget.scan.kept_readout import kept_copy
from gadget.scan.open_slice import OpenSlice
from gadget.scan.readout_kinds import known_dwell
from gadget.scan.readout_labels import labels_of
from gadget.wire.messages import Acquisition, Header

_LARGEST_TILT = 0.02
"""Largest difference of direction vectors (about 1 degree) between a calibration and its slice."""


class CalibrationKey(NamedTuple):
    """What calibration lines have in common that are one k-space."""

    encoding: int
    slice: int
    contrast: int
    set: int
    n_samples: int
    dwell_us: float

    @classmethod
    def of(cls, header: Header) -> "CalibrationKey":
        """Return the key of a readout."""
        idx = header["idx"]
        return cls(
            encoding=int(header["encoding_space_ref"]),
            slice=int(idx["slice"]),
            contrast=int(idx["contrast"]),
            set=int(idx["set"]),
            n_samples=int(header["number_of_samples"]),
            dwell_us=known_dwell(header),
        )


@dataclass(slots=True)
class _Calibration:
    encoding: Encoding
    first: Header
    lines: dict[tuple[int, int], tuple[tuple[int, ...], Acquisition]] = field(default_factory=dict)
    n_unused: int = 0
    version: int = 0
    made: tuple[int, bool, NDArray[np.complex128] | None, CalibrationLines] | None = None


class CalibrationStore:
    """The calibration-only readouts of a scan.

    * Readouts of one encoding, slice counter, contrast, set, number of samples and dwell time are one
      calibration. Of a line that came several times (repetitions, averages) the last by its counters is kept.
    * A slice gets a calibration that has its slice counter and lies at its position, or another one that lies
      at its position: centres nearer than half the slice thickness (at least 0.5 mm), directions within about
      1 degree; a 3-D calibration for a slab, a 2-D one for a slice. Of several the one with the most lines.
    * Not one that is the slice's own k-space, where its lines entered the data.
    """

    def __init__(self) -> None:
        self.n_bytes = 0
        self._found: dict[CalibrationKey, _Calibration] = {}

    def add(self, acquisition: Acquisition, encoding: Encoding) -> None:
        """Keep a readout of finite samples."""
        header = acquisition.header
        calibration = self._found.setdefault(CalibrationKey.of(header), _Calibration(encoding, header))
        calibration.n_unused += 1
        idx = header["idx"]
        line = int(idx["kspace_encode_step_1"]), int(idx["kspace_encode_step_2"])
        rank = (int(idx["repetition"]), int(idx["phase"]), int(idx["average"]), int(header["scan_counter"]))
        kept = calibration.lines.get(line)
        if kept is not None and kept[0] >= rank:
            return
        self.n_bytes += 0 if kept is not None else acquisition.data.nbytes
        without_trajectory = replace(acquisition, trajectory=np.zeros((0, 0), np.float32))
        calibration.lines[line] = rank, kept_copy(without_trajectory)
        calibration.version += 1

    def entered_data(self, key: CalibrationKey, n_readouts: int) -> None:
        """Note that readouts of this kind entered a slice's data."""
        calibration = self._found.get(key)
        if calibration is not None:
            calibration.n_unused = max(0, calibration.n_unused - n_readouts)

    def unused(self) -> dict[int, int]:
        """Return how many readouts were of no use, by slice counter."""
        counts: dict[int, int] = {}
        for key, calibration in self._found.items():
            if calibration.n_unused:
                counts[key.slice] = counts.get(key.slice, 0) + calibration.n_unused
        return counts

    def lines_for(
        self,
        slice_: OpenSlice,
        *,
        matrix: NDArray[np.complex128] | None,
        thickness_mm: float,
        has_own: bool,
    ) -> tuple[CalibrationLines | None, tuple[str, ...]]:
        """Return the calibration for a slice that has all its readouts, and what to say of it."""
        if not self._found or slice_.buffer is None:
            return None, ()
        header = slice_.buffer.nearest_header
        own_key = CalibrationKey.of(header)
        fitting = []
        for key, calibration in self._found.items():
            if has_own and key == own_key:
                continue
            if _is_at(calibration.first, header, max(0.5, thickness_mm / 2)):
                fitting.append((key.slice != own_key.slice, -len(calibration.lines), key))
        notes: list[str] = []
        for _, _, key in sorted(fitting):
            calibration = self._found[key]
            try:
                lines = _made(calibration, key, slice_, matrix)
            except ScanError as error:
                notes.append(f"calibration lines cannot be used: {error}")
                continue
            if lines is None:
                continue
            calibration.n_unused = 0
            shape = " x ".join(str(n) for n in reversed(lines.mask.shape))
            fov = " x ".join(f"{mm:g}" for mm in lines.fov_mm)
            notes.append(
                f"{len(calibration.lines)} calibration lines of encoding {key.encoding}, contrast "
                f"{key.contrast} ({shape} over {fov} mm) are for the coil maps, not image data"
            )
            return lines, tuple(notes)
        return None, tuple(notes)


def _made(
    calibration: _Calibration, key: CalibrationKey, slice_: OpenSlice, matrix: NDArray[np.complex128] | None
) -> CalibrationLines | None:
    """Lay a calibration out, or take what was laid out for the slice before; None where it does not fit."""
    grid = None if slice_.buffer is None else slice_.buffer.grid
    is_same_encoding = slice_.encoding.index == key.encoding
    was_removed = is_same_encoding and grid is not None and grid.removed_upstream
    made = calibration.made
    if made is not None and made[:2] == (calibration.version, was_removed) and _equal(made[2], matrix):
        return made[3]
    own = OpenSlice(
        encoding=calibration.encoding,
        max_bytes=2**62,
        keeps_oversampling=is_same_encoding and not was_removed,
    )
    for _, acquisition in sorted(calibration.lines.values(), key=lambda kept: kept[0]):
        own.add_image(acquisition, labels_of(acquisition.header), "A calibration readout")
    buffer = own.buffer
    if buffer is None or own.is_3d != slice_.is_3d:
        return None
    arrays = buffer.arrays(matrix, is_3d=own.is_3d)
    encoded = calibration.encoding.encoded
    fov_mm = (buffer.grid.pixel_mm * arrays.samples.shape[-1], encoded.fov_mm[1])
    lines = CalibrationLines(
        samples=arrays.samples,
        mask=arrays.mask,
        fov_mm=(*fov_mm, encoded.fov_mm[2]) if own.is_3d else fov_mm,
    )
    calibration.made = calibration.version, was_removed, matrix, lines
    return lines


def _equal(a: NDArray[np.complex128] | None, b: NDArray[np.complex128] | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _is_at(calibration: Header, image: Header, largest_mm: float) -> bool:
    """Whether a calibration lies where an image does; a scan without positions has all of them at 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = float(np.linalg.norm(calibration["position"].astype(np.float64) - image["position"]))
        tilts = [
            float(np.abs(calibration[name].astype(np.float64) - image[name]).max())
            for name in ("read_dir", "phase_dir", "slice_dir")
        ]
    has_positions = bool(calibration["position"].any() or image["position"].any())
    if not has_positions and calibration["idx"]["slice"] != image["idx"]["slice"]:
        return False
    return distance <= largest_mm and max(tilts) <= _LARGEST_TILT
