"""One object acquired in many ways: scans that all have to give the images of the fully sampled one.

The object is written down in closed form, so a variant is not a rearrangement of another scan's samples: it
samples the object itself, on its own grid. Pixels are 5 x 6 mm, the recon matrix is 26 x 21 (x 11 partitions
of 7 mm), so that sizes differ in all axes and some are odd.

Data has no noise; noise readouts of standard deviation ``NOISE_STD`` set the level, so that the prior weighs
little.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from synthetic_scan import Protocol, noise_readout, readout

from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Message, ScanHeader

NOISE_STD = 1e-3
MATRIX, FOV = (26, 21), (130.0, 126.0)
PARTITIONS, SLAB = 11, 77.0
PLACE = {
    "position": (10.0, -20.0, 30.0),
    "read_dir": (0.6, 0.8, 0.0),
    "phase_dir": (-0.8, 0.6, 0.0),
    "slice_dir": (0.0, 0.0, 1.0),
}
THICKNESS = 7.0
SENSITIVITIES: tuple[tuple[tuple[complex, float, float, float], ...], ...] = (
    ((0.9, 0.0, 0.5, 0.0), (0.5, 0.0, 0.0, 0.5)),
    ((0.8, 0.0, -0.5, 0.0), (0.6j, 0.5, 0.0, -0.5)),
    ((0.7, -0.5, 0.0, 0.5), (-0.4j, 0.0, 0.5, 0.0)),
)
"""Of each coil: sums of waves exp(2 pi i (a x / 130 + b y / 126 + c z / 77)), mm, as (factor, a, b, c)."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """One Gaussian of the object. Lengths in mm."""

    x: float
    y: float
    z: float
    brightness: float
    width: float = 9.0


OBJECT = (
    Blob(x=-13.0, y=8.0, z=4.0, brightness=1.0),
    Blob(x=11.5, y=-10.0, z=-5.5, brightness=0.8, width=9.5),
)


def kspace_of(blobs: tuple[Blob, ...], matrix: tuple[int, ...], fov_mm: tuple[float, ...]) -> np.ndarray:
    """Centred k-space (coil, ky, kx) or (coil, kz, ky, kx) of the unitary transform; (x, y) or (x, y, z).

    A wave moves the Gaussian's transform, s sqrt(2 pi) exp(-2 (pi s k)^2 - 2 pi i k x0) along each axis.
    Without z each blob is a flat one at its own z.
    """
    shape = tuple(reversed(matrix))
    total = np.zeros((len(SENSITIVITIES), *shape), np.complex128)
    for blob in blobs:
        for coil, waves in enumerate(SENSITIVITIES):
            for factor, a, b, c in waves:
                x = _line(matrix[0], fov_mm[0], blob.x, blob.width, a / FOV[0])
                y = _line(matrix[1], fov_mm[1], blob.y, blob.width, b / FOV[1])
                plane = blob.brightness * factor * y[:, None] * x
                if len(matrix) == 2:
                    total[coil] += plane * np.exp(2j * np.pi * c * blob.z / SLAB)
                else:
                    z = _line(matrix[2], fov_mm[2], blob.z, blob.width, c / SLAB)
                    total[coil] += z[:, None, None] * plane
    return total


def _line(n: int, fov_mm: float, place: float, width: float, shift: float) -> np.ndarray:
    k = (np.arange(n) - n // 2) / fov_mm - shift
    transform = np.sqrt(2 * np.pi) * width * np.exp(-2 * (np.pi * width * k) ** 2 - 2j * np.pi * k * place)
    return np.asarray(transform * np.sqrt(n) / fov_mm)


def at(place_mm: float, blobs: tuple[Blob, ...] = OBJECT) -> tuple[Blob, ...]:
    """Return what a thin slice shows of the object, at a place along z."""
    return tuple(
        replace(
            blob,
            z=place_mm,
            brightness=blob.brightness * float(np.exp(-((place_mm - blob.z) ** 2) / (2 * blob.width**2))),
        )
        for blob in blobs
    )


def brightened(factor: float) -> tuple[Blob, ...]:
    """Return another object: its first blob ``factor`` times as bright, in another place."""
    first, *others = OBJECT
    return (replace(first, brightness=factor, y=first.y + 4 * (factor - 1)), *others)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One image: which object it shows, where, and what its header has to count."""

    blobs: tuple[Blob, ...] = OBJECT
    counters: dict[str, int] = field(default_factory=dict)
    moved_mm: float = 0.0
    """Along slice_dir."""


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A variant: its messages, and what has to come out."""

    messages: list[Message]
    images: tuple[Expected, ...] = (Expected(),)
    matrix: tuple[int, int] = MATRIX
    fov: tuple[float, float] = FOV
    settings: dict[str, Any] = field(default_factory=dict)
    before: list[Message] = field(default_factory=list)
    """An earlier scan, whose noise this one uses."""
    warns: str = ""
    """What one of the warnings of each image has to say; without it there must be no warning."""


def protocol(**changes: Any) -> Protocol:
    """Return the protocol of the fully sampled scan, with changes."""
    (nx, ny), (fov_x, fov_y) = MATRIX, FOV
    values: dict[str, Any] = {
        "encoded": (nx, ny, 1),
        "encoded_fov": (fov_x, fov_y, THICKNESS),
        "recon": (nx, ny, 1),
        "recon_fov": (fov_x, fov_y, THICKNESS),
        "limits": {"kspace_encoding_step_1": (0, ny - 1, ny // 2)},
    }
    return Protocol(**{**values, **changes})


def noise(std: float = NOISE_STD, **fields: Any) -> Acquisition:
    """Return the noise readout of every scan."""
    return noise_readout(std, **fields)


def rows_of(
    kspace: np.ndarray,
    lines: Iterable[int] | None = None,
    *,
    columns: slice = slice(None),
    each: Callable[[int], dict[str, Any]] = lambda _line: {},
    flags: Callable[[int], tuple[Flag, ...]] = lambda _line: (),
    first_line: int = 0,
    **fields: Any,
) -> list[Acquisition]:
    """Return readouts of (coil, ky, kx): line = row - ``first_line``; the centre is where it is, if cut."""
    n_rows, n_columns = kspace.shape[1:]
    chosen = range(n_rows) if lines is None else lines
    start = columns.indices(n_columns)[0]
    return [
        readout(
            kspace[:, row, columns],
            row - first_line,
            *flags(row),
            **{"center": n_columns // 2 - start, "scan_counter": row, **PLACE, **fields, **each(row)},
        )
        for row in chosen
    ]


def slab_rows(
    kspace: np.ndarray,
    keep: Callable[[int, int], bool] = lambda _z, _y: True,
    *,
    columns: slice = slice(None),
    first: tuple[int, int] = (0, 0),
    **fields: Any,
) -> list[Acquisition]:
    """Return readouts of (coil, kz, ky, kx), likewise; ``first`` is that of (kz, ky)."""
    n_z, n_y, n_columns = kspace.shape[1:]
    start = columns.indices(n_columns)[0]
    places = [(z, y) for z in range(n_z) for y in range(n_y) if keep(z, y)]
    return [
        readout(
            kspace[:, z, y, columns],
            y - first[1],
            center=n_columns // 2 - start,
            kspace_encode_step_2=z - first[0],
            scan_counter=number,
            **{**PLACE, **fields},
        )
        for number, (z, y) in enumerate(places)
    ]


def twin(
    readouts: Iterable[Acquisition],
    scan: Protocol | str | None = None,
    *,
    noise_readouts: Iterable[Acquisition] | None = None,
    **others: Any,
) -> Twin:
    """Put a scan together."""
    scan = protocol() if scan is None else scan
    text = scan if isinstance(scan, str) else scan.xml()
    first = [noise()] if noise_readouts is None else list(noise_readouts)
    return Twin(messages=[ScanHeader(text), *first, *readouts], **others)


def full(
    blobs: tuple[Blob, ...] = OBJECT, matrix: tuple[int, int] = MATRIX, fov: tuple[float, float] = FOV
) -> Twin:
    """Return the fully sampled scan: nothing oversampled, nothing missing."""
    scan = protocol(
        encoded=(*matrix, 1),
        encoded_fov=(*fov, THICKNESS),
        recon=(*matrix, 1),
        recon_fov=(*fov, THICKNESS),
        limits={"kspace_encoding_step_1": (0, matrix[1] - 1, matrix[1] // 2)},
    )
    return twin(rows_of(kspace_of(blobs, matrix, fov)), scan, matrix=matrix, fov=fov)


def slab_protocol(**changes: Any) -> Protocol:
    """Return the protocol of the fully sampled slab, with changes."""
    values: dict[str, Any] = {
        "encoded": (*MATRIX, PARTITIONS),
        "encoded_fov": (*FOV, SLAB),
        "recon": (*MATRIX, PARTITIONS),
        "recon_fov": (*FOV, SLAB),
        "limits": {
            "kspace_encoding_step_1": (0, MATRIX[1] - 1, MATRIX[1] // 2),
            "kspace_encoding_step_2": (0, PARTITIONS - 1, PARTITIONS // 2),
        },
    }
    return Protocol(**{**values, **changes})


def partitions(n: int = PARTITIONS, thickness: float = THICKNESS) -> tuple[Expected, ...]:
    """Return what the partitions of a slab show."""
    return tuple(
        Expected(
            blobs=at((p - n // 2) * thickness),
            counters={"slice": p},
            moved_mm=(p - n // 2) * thickness,
        )
        for p in range(n)
    )


NX, NY = MATRIX
WIDE = ((2 * NX, NY), (2 * FOV[0], FOV[1]))
"""Twice oversampled readouts."""
FULL = kspace_of(OBJECT, MATRIX, FOV)
DOUBLE = kspace_of(OBJECT, *WIDE)
OVERSAMPLED = protocol(encoded=(2 * NX, NY, 1), encoded_fov=(2 * FOV[0], FOV[1], THICKNESS))


def turned(one: Acquisition) -> Acquisition:
    return replace(one, data=np.ascontiguousarray(one.data[:, ::-1]))
