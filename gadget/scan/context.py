"""What travels beside a slice's k-space: all that an image header and a log line need, and no tensors."""

from dataclasses import dataclass

Vector = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanContext:
    """One slice of a scan (and contrast, repetition, ...): where it lies, which it is, how it was measured.

    Header values come from the slice's imaging readout nearest to the centre of k-space.
    """

    encoding_index: int
    slice: int
    contrast: int
    phase: int
    repetition: int
    set: int
    average: int

    encoded_matrix: tuple[int, int, int]
    recon_matrix: tuple[int, int, int]
    """Samples of the image to be sent, along x, y and z; z is 1 for slices."""
    recon_fov_mm: Vector
    grid_matrix: tuple[int, int]
    """Samples of the assembled k-space, along x and y: the grid of the reconstruction."""
    grid_fov_mm: tuple[float, float]
    """Field of view of that grid, along x and y."""
    n_partitions: int = 1
    """Encoded partitions (kz) of a slab; 1 for slices."""
    slab_fov_mm: float = 0.0
    """Encoded field of view of a slab along the slice direction."""

    measurement_uid: int
    acquisition_time_stamp: int
    physiology_time_stamp: tuple[int, int, int]
    position: Vector
    read_dir: Vector
    phase_dir: Vector
    slice_dir: Vector
    patient_table_position: Vector
    user_int: tuple[int, ...]
    user_float: tuple[float, ...]

    measurement_id: str | None = None
    protocol_name: str | None = None
    sequence_name: str | None = None
    series_description: str | None = None

    n_coils: int
    """Coils of the assembled k-space (dead ones left out)."""
    n_lines: int
    """Rows of k-space that were measured, calibration included."""
    n_calibration_lines: int
    """Those of them that only calibration-only readouts filled."""
    n_lines_announced: int
    """Imaging lines that the header announces."""
    n_averages: int
    """How often the most-measured line was measured."""
    coverage: float | None = None
    """Share of the cells of k-space that non-Cartesian samples touch as far out as they reach; or None."""
    is_complete: bool
    """False where the stream ended, or went on, before the slice had what the header announces."""
    is_prewhitened: bool
    notes: tuple[str, ...]
    """How the slice was assembled, in sentences for the log and the image's meta. No patient data."""
    warnings: tuple[str, ...] = ()
    """Where header and readouts disagree, and what was taken; they are among the notes, too."""

    def label(self) -> str:
        """Return a short name for log lines, naming only the counters that are not zero besides the slice."""
        parts = [f"slice {self.slice}"]
        for name in ("contrast", "phase", "repetition", "set", "average"):
            if getattr(self, name):
                parts.append(f"{name} {getattr(self, name)}")
        return ", ".join(parts)
