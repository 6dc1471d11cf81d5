"""From an assembled slice to its :class:`~gadget.scan.context.ScanContext`."""

import numpy as np
from numpy.typing import NDArray

from gadget.scan.context import ScanContext, Vector
from gadget.scan.header import Encoding, ScanDescription
from gadget.scan.open_slice import OpenSlice, SliceKey
from gadget.scan.slice_buffer import SliceArrays, SliceBuffer
from gadget.wire.messages import Header


def describe_slice(
    key: SliceKey,
    slice_: OpenSlice,
    buffer: SliceBuffer,
    arrays: SliceArrays,
    description: ScanDescription,
    *,
    is_complete: bool,
    is_prewhitened: bool,
    notes: tuple[str, ...],
    warnings: tuple[str, ...] = (),
) -> ScanContext:
    """Gather what the image header and the log need; ``notes`` follow those on the assembly.

    A slab keeps its partitions: ``recon_matrix`` and ``recon_fov_mm`` are those of the whole slab.
    """
    encoding, n_columns = slice_.encoding, arrays.samples.shape[-1]
    pixel_y_mm = encoding.encoded.fov_mm[1] / encoding.encoded.matrix[1]
    return scan_context(
        key,
        buffer.nearest_header,
        encoding,
        description,
        is_3d=slice_.is_3d,
        grid_matrix=(n_columns, buffer.n_rows),
        grid_fov_mm=(buffer.grid.pixel_mm * n_columns, pixel_y_mm * buffer.n_rows),
        n_partitions=buffer.n_partitions if slice_.is_3d else 1,
        n_coils=arrays.samples.shape[0],
        n_lines=buffer.n_lines,
        n_calibration_lines=buffer.n_lines - buffer.n_image_lines,
        n_lines_announced=slice_.n_lines_announced,
        n_averages=buffer.largest_count,
        is_complete=is_complete,
        is_prewhitened=is_prewhitened,
        notes=(*_notes(slice_, buffer, arrays, is_complete), *as_notes(warnings), *notes),
        warnings=warnings,
    )


def as_notes(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """Return warnings as they stand among an image's notes."""
    return tuple(f"warning: {one}" for one in warnings)


def scan_context(
    key: SliceKey,
    header: Header,
    encoding: Encoding,
    description: ScanDescription,
    *,
    is_3d: bool,
    grid_matrix: tuple[int, int],
    grid_fov_mm: tuple[float, float],
    n_partitions: int,
    n_coils: int,
    n_lines: int,
    n_calibration_lines: int,
    n_lines_announced: int,
    n_averages: int,
    is_complete: bool,
    is_prewhitened: bool,
    notes: tuple[str, ...],
    warnings: tuple[str, ...],
    coverage: float | None = None,
) -> ScanContext:
    """Make the context of a slice or slab from the header of one of its readouts, and what is counted."""
    return ScanContext(
        encoding_index=key.encoding,
        slice=key.slice,
        contrast=key.contrast,
        phase=key.phase,
        repetition=key.repetition,
        set=key.set,
        average=key.average,
        encoded_matrix=encoding.encoded.matrix,
        recon_matrix=(*encoding.recon.matrix[:2], encoding.recon.matrix[2] if is_3d else 1),
        recon_fov_mm=(
            encoding.recon.fov_mm[0],
            encoding.recon.fov_mm[1],
            encoding.recon.fov_mm[2] / (1 if is_3d else encoding.recon.matrix[2]),
        ),
        grid_matrix=grid_matrix,
        grid_fov_mm=grid_fov_mm,
        n_partitions=n_partitions,
        slab_fov_mm=encoding.encoded.fov_mm[2] if is_3d else 0.0,
        measurement_uid=int(header["measurement_uid"]),
        acquisition_time_stamp=int(header["acquisition_time_stamp"]),
        physiology_time_stamp=_three_ints(header["physiology_time_stamp"]),
        position=_vector(header["position"]),
        read_dir=_vector(header["read_dir"]),
        phase_dir=_vector(header["phase_dir"]),
        slice_dir=_vector(header["slice_dir"]),
        patient_table_position=_vector(header["patient_table_position"]),
        user_int=tuple(int(value) for value in header["user_int"]),
        user_float=tuple(float(value) for value in header["user_float"]),
        measurement_id=description.measurement_id,
        protocol_name=description.protocol_name,
        sequence_name=description.sequence_name,
        series_description=description.series_description,
        n_coils=n_coils,
        n_lines=n_lines,
        n_calibration_lines=n_calibration_lines,
        n_lines_announced=n_lines_announced,
        n_averages=n_averages,
        coverage=coverage,
        is_complete=is_complete,
        is_prewhitened=is_prewhitened,
        notes=notes,
        warnings=warnings,
    )


def _notes(slice_: OpenSlice, buffer: SliceBuffer, arrays: SliceArrays, is_complete: bool) -> tuple[str, ...]:
    encoding, grid = slice_.encoding, buffer.grid
    notes = []
    n_calibration = buffer.n_lines - buffer.n_image_lines
    calibration = f" ({n_calibration} of them calibration only)" if n_calibration else ""
    lines = f"{buffer.n_partitions} x {buffer.n_rows}" if slice_.is_3d else f"{buffer.n_rows}"
    notes.append(f"{buffer.n_lines} of {lines} lines measured{calibration}")
    if slice_.is_late:
        notes.append("these lines came after their slice had been closed; they make an image of their own")
    if not is_complete:
        notes.append(
            f"incomplete: {buffer.n_image_lines} imaging lines where the header announces "
            f"{slice_.n_lines_announced}"
            f", {len(slice_.averages)} average(s)"
        )
    if slice_.rows.note is not None:
        notes.append(slice_.rows.note)
    if slice_.is_3d and slice_.partitions.note is not None:
        notes.append(slice_.partitions.note)
    if grid.removed_upstream:
        notes.append(f"readout oversampling was removed before: {grid.n_columns} samples")
    elif arrays.is_cropped:
        notes.append(f"readout oversampling removed: {grid.n_columns} to {grid.n_kept} columns")
    elif grid.n_kept < grid.n_columns:
        notes.append("incomplete readouts: oversampling stays until after the reconstruction")
    if encoding.encoded.matrix[2] > 1 and not slice_.is_3d:
        notes.append(
            f"{encoding.encoded.matrix[2]} partitions in the header, none encoded: taken as a 2-D slice"
        )
    if buffer.largest_count > 1:
        how = "noise level: root mean square over the lines" if arrays.counts_differ else "equally often"
        notes.append(f"lines measured up to {buffer.largest_count} times are averaged ({how})")
    if slice_.dwells_differ:
        notes.append(
            "imaging readouts of different dwell times: weighted by them, noise scaled for "
            f"{slice_.dwell_us:g} us"
        )
    return tuple(notes)


def echo_warnings(slice_: OpenSlice, buffer: SliceBuffer, offset: tuple[int, int, int]) -> tuple[str, ...]:
    """Say where the strongest line or sample is far from the centre that the header gives.

    ``offset`` is that of :func:`gadget.scan.buffer_survey.echo_offset`. The header is believed:
    an image's own phase can move the echo, too.
    """
    partitions, rows, columns = offset
    warnings = []
    for distance, lines in ((rows, slice_.rows), (partitions, slice_.partitions)):
        if distance and (slice_.is_3d or lines is slice_.rows):
            warnings.append(
                f"the strongest line has {lines.counter} {lines.center + distance}, but the centre of "
                f"k-space is taken to be {lines.center}: check the header's limits, if the image is blurred"
            )
    if columns:
        side = "behind" if columns > 0 else "before"
        warnings.append(
            f"the strongest sample of the readouts lies {abs(columns)} columns {side} the centre of the "
            f"{buffer.grid.n_columns} columns: check center_sample, if the image is blurred"
        )
    return tuple(warnings)


def _vector(values: NDArray[np.float32]) -> Vector:
    x, y, z = (float(value) for value in values)
    return x, y, z


def _three_ints(values: NDArray[np.uint32]) -> tuple[int, int, int]:
    a, b, c = (int(value) for value in values)
    return a, b, c
