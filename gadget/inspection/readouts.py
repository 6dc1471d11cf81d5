"""Tallies over the headers of a scan's readouts: kinds, flags, loops, geometry and time stamps."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget.counted import counted
from gadget.errors import ScanError
from gadget.inspection.content import Loop, ReadoutGroup, SliceGeometry, Times
from gadget.prior_suitability import tilts
from gadget.scan.header import Encoding
from gadget.scan.readout_kinds import ReadoutKind, kind_of_readout
from gadget.wire.headers import ENCODING_COUNTERS
from gadget.wire.headers import AcquisitionFlag as Flag

COMPRESSED = "compressed"
"""Kind of readouts whose samples mean nothing to us."""
TICK_S = 2.5e-3
NOT_ORTHONORMAL = 1e-3

_ALIKE = ("active_channels", "number_of_samples", "center_sample", "discard_pre", "discard_post")
_DIRECTIONS = ("position", "read_dir", "phase_dir", "slice_dir")


def kinds_of(flags: NDArray[np.uint64]) -> NDArray[Any]:
    """Return the kind of each readout: a :class:`ReadoutKind`, or ``COMPRESSED``."""
    different, where = np.unique(flags, return_inverse=True)
    kinds = np.empty(different.size, dtype=object)
    for number, value in enumerate(different):
        try:
            kinds[number] = kind_of_readout(int(value))
        except ScanError:
            kinds[number] = COMPRESSED
    return np.asarray(kinds[where.reshape(-1)])


class ReadoutTally:
    """Counts readouts by what their headers say."""

    def __init__(self) -> None:
        self.n_readouts = 0
        self._groups: Counter[tuple[Any, ...]] = Counter()
        self._flags: Counter[int] = Counter()
        self._values: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._geometries: dict[tuple[int, int], Counter[bytes]] = defaultdict(Counter)
        self._first_stamp: int | None = None
        self._last_stamp = 0
        self._physiology: set[int] = set()
        self._uids: set[int] = set()

    def add(self, headers: NDArray[Any], kinds: NDArray[Any]) -> None:
        """Add a block of readouts: headers and kinds of equal length, not empty."""
        self.n_readouts += len(headers)
        octets = headers["flags"].astype("<u8")[:, None].view(np.uint8)
        bits = np.unpackbits(octets, axis=1, bitorder="little")
        for bit in np.flatnonzero(bits.any(axis=0)):
            self._flags[int(bit)] += int(bits[:, bit].sum())
        is_reversed = headers["flags"] & np.uint64(Flag.IS_REVERSE.bit) != 0
        for row in zip(
            headers["encoding_space_ref"].tolist(),
            kinds,
            *(headers[name].tolist() for name in _ALIKE),
            is_reversed.tolist(),
            headers["sample_time_us"].tolist(),
            headers["trajectory_dimensions"].tolist(),
            strict=True,
        ):
            self._groups[row] += 1
        self._uids |= set(headers["measurement_uid"].tolist())
        stamps = headers["acquisition_time_stamp"]
        first = int(stamps.min())
        self._first_stamp = first if self._first_stamp is None else min(first, self._first_stamp)
        self._last_stamp = max(int(stamps.max()), self._last_stamp)
        self._physiology |= set(np.flatnonzero(headers["physiology_time_stamp"].any(axis=0)).tolist())
        is_placed = [kind in (ReadoutKind.IMAGE, ReadoutKind.CALIBRATION) for kind in kinds]
        for index in np.unique(headers["encoding_space_ref"][is_placed]):
            self._add_loops(int(index), headers[is_placed & (headers["encoding_space_ref"] == index)])
        for header in headers[[kind is ReadoutKind.IMAGE for kind in kinds]]:
            where = int(header["encoding_space_ref"]), int(header["idx"]["slice"])
            self._geometries[where][b"".join(header[name].tobytes() for name in _DIRECTIONS)] += 1

    def _add_loops(self, encoding: int, headers: NDArray[Any]) -> None:
        values = self._values[encoding]
        for name in ENCODING_COUNTERS.names or ():
            counter = headers["idx"][name]
            if counter.ndim == 1:
                values[name] |= set(np.unique(counter).tolist())
                continue
            for number in np.flatnonzero(counter.any(axis=0)):
                values[f"{name}[{number}]"] |= set(np.unique(counter[:, number]).tolist())

    @property
    def encodings(self) -> tuple[int, ...]:
        """Encodings that readouts name, noise and the like included."""
        return tuple(sorted({row[0] for row in self._groups}))

    def groups(self) -> tuple[ReadoutGroup, ...]:
        """Return the readouts that are alike, the most numerous of each encoding and kind first."""
        order = {kind: number for number, kind in enumerate([*ReadoutKind, COMPRESSED])}
        rows = sorted(self._groups.items(), key=lambda item: (item[0][0], order[item[0][1]], -item[1]))
        return tuple(
            ReadoutGroup(
                encoding=row[0],
                kind=row[1] if isinstance(row[1], str) else row[1].value,
                n_readouts=n_readouts,
                n_coils=row[2],
                n_samples=row[3],
                center_sample=row[4],
                discard_pre=row[5],
                discard_post=row[6],
                is_reversed=row[7],
                dwell_us=row[8],
                trajectory_dimensions=row[9],
            )
            for row, n_readouts in rows
        )

    def flags(self) -> dict[str, int]:
        """Return how many readouts have each flag."""
        names = {flag.value - 1: flag.name for flag in Flag}
        return {names.get(bit, f"bit {bit + 1}"): n for bit, n in sorted(self._flags.items())}

    def loops(self, index: int, encoding: Encoding | None) -> tuple[Loop, ...]:
        """Compare the counters of an encoding's readouts with the limits in the header."""
        limits: Mapping[str, Any] = {} if encoding is None else encoding.limits
        values = self._values.get(index, {})
        loops: list[Loop] = []
        for name in (*(name for name in ENCODING_COUNTERS.names or () if name != "user"), *sorted(values)):
            if any(loop.name == name for loop in loops):
                continue
            announced = limits.get(name.replace("kspace_encode_", "kspace_encoding_"))
            found = values.get(name, set())
            loops.append(
                Loop(
                    name=name,
                    announced=announced,
                    minimum=min(found, default=None),
                    maximum=max(found, default=None),
                    n_values=len(found),
                    note=_loop_note(name, found, announced),
                )
            )
        return tuple(loops)

    def geometry(self) -> tuple[SliceGeometry, ...]:
        """Return where slices lie: of each the geometry that most of its imaging readouts have."""
        slices = []
        for (encoding, slice_), found in sorted(self._geometries.items()):
            numbers = np.frombuffer(found.most_common(1)[0][0], "<f4").astype(float).reshape(4, 3)
            position, read, phase, normal = (tuple(row.tolist()) for row in numbers)
            slices.append(
                SliceGeometry(
                    encoding=encoding,
                    slice=slice_,
                    position_mm=position,
                    read_dir=read,
                    phase_dir=phase,
                    slice_dir=normal,
                    plane=plane_of(numbers[1:]),
                    n_geometries=len(found),
                )
            )
        return tuple(slices)

    def times(self) -> Times | None:
        """Return what the time stamps say; None without readouts."""
        if self._first_stamp is None:
            return None
        return Times(
            first=self._first_stamp,
            last=self._last_stamp,
            duration_s=(self._last_stamp - self._first_stamp) * TICK_S,
            physiology_stamps=tuple(sorted(self._physiology)),
            n_measurement_uids=len(self._uids),
        )


def plane_of(directions: NDArray[np.float64]) -> str:
    """Name the plane of a slice from its read, phase and slice direction, (3, 3)."""
    if not np.isfinite(directions).all():
        return "directions are not finite"
    if not directions.any():
        return "not given"
    with np.errstate(over="ignore", invalid="ignore"):
        is_orthonormal = np.abs(directions @ directions.T - np.eye(3)).max() < NOT_ORTHONORMAL
    if not is_orthonormal:
        return "directions are not orthonormal"
    x, y, z = directions[2].tolist()
    angles = tilts((x, y, z)) or {}
    plane = min(angles, key=lambda one: angles[one])
    return f"{plane}, tilted by {angles[plane]:.0f} degrees" if round(angles[plane]) else plane


def _loop_note(name: str, found: set[int], announced: Any) -> str | None:
    if announced is None or not found:
        return None
    outside = sorted(value for value in found if not announced.minimum <= value <= announced.maximum)
    if outside:
        return (
            f"{counted(len(outside), 'value')} outside the header's limits "
            f"({outside[0]}{f' to {outside[-1]}' if len(outside) > 1 else ''})"
        )
    if not name.startswith(("kspace", "segment")) and len(found) < announced.size:
        return f"{len(found)} of {announced.size} announced values are there"
    return None
