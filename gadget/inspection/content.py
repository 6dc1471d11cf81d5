"""What an inspection finds, as plain data: the text, the pictures and the JSON all show this.

The names of the fields are the keys of the JSON; they stay as they are once released.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gadget.scan.header import Limit

Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """One group of the HDF5 file."""

    name: str
    kind: str
    """scan, images, header, arrays or empty."""
    holds: str
    """In words."""
    n_readouts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The scanner, and how the measurement is set up: nothing that tells who was scanned."""

    vendor: str | None
    model: str | None
    field_strength_t: float | None
    receiver_channels: int | None
    relative_receiver_noise_bandwidth: float | None
    protocol_name: str | None
    sequence_name: str | None
    patient_position: str | None
    echo_times_ms: tuple[float, ...]
    repetition_times_ms: tuple[float, ...]
    depends_on: tuple[str, ...]
    """Kinds of earlier measurements that this one refers to: Noise, SenMap, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One counter of an encoding's imaging and calibration readouts."""

    name: str
    announced: Limit | None
    """The limits in the header."""
    minimum: int | None
    maximum: int | None
    n_values: int
    """How many different values the readouts have."""
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingContent:
    """One encoding: what the header says, and what the readouts say to it."""

    index: int
    trajectory: str | None
    """None where the header has no such encoding, as all that comes from it."""
    encoded_matrix: tuple[int, int, int] | None
    encoded_fov_mm: Vector | None
    recon_matrix: tuple[int, int, int] | None
    recon_fov_mm: Vector | None
    encoded_pixel_mm: Vector | None
    recon_pixel_mm: Vector | None
    acceleration: tuple[int, int] | None
    calibration_mode: str | None
    multiband_factor: int | None
    echo_train_length: int | None
    loops: tuple[Loop, ...]
    refusal: str | None
    """Why its readouts cannot be reconstructed, in the words of the refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadoutGroup:
    """Readouts that are alike."""

    encoding: int
    kind: str
    n_readouts: int
    n_coils: int
    n_samples: int
    center_sample: int
    discard_pre: int
    discard_post: int
    is_reversed: bool
    dwell_us: float
    trajectory_dimensions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Which lines of k-space some images have; the same for all of them."""

    encoding: int
    images: str
    """Which images: slices, contrasts, repetitions, ..."""
    n_images: int
    n_rows: int
    n_partitions: int
    """1 for two-dimensional scans."""
    center_row: int
    n_imaging: int
    """Rows (of all partitions) with an imaging line."""
    n_calibration: int
    """Rows with calibration-only lines alone."""
    largest_count: int
    """How often the most-measured row was measured."""
    codes: tuple[str, ...]
    """One text per partition, one letter per row: see :data:`gadget.inspection.sampling.LETTERS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coil:
    """One coil; the numbers are in the units of the file."""

    number: int
    """From 0, in the order of the samples."""
    name: str | None
    noise_std: float | None
    """Per real component, of the noise readouts."""
    signal_rms: float | None
    """Root mean square of the magnitude of all imaging samples."""
    largest_correlation: float | None
    """Of its noise with another coil's, magnitude."""
    correlated_with: int | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise readouts."""

    n_readouts: int
    n_samples: int
    dwell_us: tuple[float, ...]
    correlation: tuple[tuple[float, ...], ...]
    """Magnitude, (coil, coil)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceGeometry:
    """Where a slice (or slab) lies, in patient coordinates (left, posterior, head)."""

    encoding: int
    slice: int
    position_mm: Vector
    read_dir: Vector
    phase_dir: Vector
    slice_dir: Vector
    plane: str
    n_geometries: int
    """How many different positions and directions its readouts have; more than 1 is unusual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Time stamps, in ticks of the scanner's clock."""

    first: int
    last: int
    duration_s: float
    """Taking a tick for 2.5 ms, as Siemens' are."""
    physiology_stamps: tuple[int, ...]
    """Which of the three physiology stamps are used, from 0."""
    n_measurement_uids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRange:
    """Range of the stored k-space points, by dimension."""

    dimensions: int
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveformGroup:
    """Waveforms of one identifier."""

    waveform_id: int
    n_waveforms: int
    n_channels: int
    n_samples: int
    """Of all of them together."""
    sample_time_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedImages:
    """The image of a slice, or the images of a slab, that a reconstruction would give."""

    label: str
    encoding: int
    n_images: int
    matrix: tuple[int, int]
    """Pixels along x and y."""
    fov_mm: tuple[float, float]
    n_coils: int
    """Of the assembled k-space: without dead ones."""
    n_lines: int
    n_lines_announced: int
    is_complete: bool
    noise_std: float
    """Per real component, in the units of the assembled k-space (1 after prewhitening)."""
    notes: tuple[str, ...]
    """How they would be assembled, warnings included, in the words of the images' meta."""
    prior_mismatches: tuple[str, ...]
    """Where they are not what the default prior was made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What ``replay`` would do with the default settings; series of uncertainty not counted."""

    n_images: int
    images: tuple[ExpectedImages, ...]
    report: tuple[str, ...]
    """What came of the readouts, as the log says it."""
    refusal: str | None
    """Why it would stop, in the words of the error; the images before come all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """All that was found."""

    file: str
    n_bytes: int
    groups: tuple[FileGroup, ...]
    group: str | None
    """The one that the rest is about."""
    n_readouts: int
    """Read from it; more may be announced where reading broke off."""
    is_whole: bool
    """Whether the file could be read to its end."""
    faults: tuple[str, ...]
    """What is wrong, in sentences."""
    system: System | None
    encodings: tuple[EncodingContent, ...]
    readouts: tuple[ReadoutGroup, ...]
    flags: dict[str, int]
    """How many readouts have each flag."""
    sampling: tuple[Pattern, ...]
    coils: tuple[Coil, ...]
    noise: Noise | None
    trajectory: tuple[TrajectoryRange, ...]
    waveforms: tuple[WaveformGroup, ...]
    geometry: tuple[SliceGeometry, ...]
    times: Times | None
    outcome: Outcome
    patient: dict[str, dict[str, str]] | None
    """Subject, study and measurement, where asked for."""


def as_json(inspection: Inspection) -> dict[str, Any]:
    """Return the content for ``json.dumps``; numbers that are not finite become null."""
    plain: dict[str, Any] = _plain(inspection)
    return plain


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "items"):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
