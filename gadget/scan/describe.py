"""From an assembled slice to its :class:`~gadget.scan.context.ScanContext`."""

import numpy as np
from numpy.typing import NDArray

from gadget.scan.context import ScanContext, Vector
from gadget.scan.header import ScanDescription
from gadget.scan.open_slice import OpenSlice, SliceKey
from gadget.scan.placement import expected_lines
from gadget.scan.slice_buffer import SliceArrays, SliceBuffer


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
) -> ScanContext:
    """Gather what the image header and the log need; ``notes`` follow those on the assembly."""
    header, encoding = buffer.nearest_header, slice_.encoding
    n_columns = arrays.samples.shape[2]
    pixel_y_mm = encoding.encoded.fov_mm[1] / encoding.encoded.matrix[1]
    return ScanContext(
        encoding_index=key.encoding,
        slice=key.slice,
        contrast=key.contrast,
        phase=key.phase,
        repetition=key.repetition,
        set=key.set,
        average=key.average,
        encoded_matrix=encoding.encoded.matrix,
        recon_matrix=(encoding.recon.matrix[0], encoding.recon.matrix[1], 1),
        recon_fov_mm=(
            encoding.recon.fov_mm[0],
            encoding.recon.fov_mm[1],
            encoding.recon.fov_mm[2] / encoding.recon.matrix[2],
        ),
        grid_matrix=(n_columns, buffer.n_rows),
        grid_fov_mm=(buffer.grid.pixel_mm * n_columns, pixel_y_mm * buffer.n_rows),
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
        n_coils=arrays.samples.shape[0],
        n_lines=buffer.n_lines,
        n_calibration_lines=buffer.n_lines - buffer.n_image_lines,
        n_lines_announced=expected_lines(encoding),
        n_averages=buffer.largest_count,
        is_complete=is_complete,
        is_prewhitened=is_prewhitened,
        notes=(*_notes(slice_, buffer, arrays, is_complete), *notes),
    )


def _notes(slice_: OpenSlice, buffer: SliceBuffer, arrays: SliceArrays, is_complete: bool) -> tuple[str, ...]:
    encoding, grid = slice_.encoding, buffer.grid
    notes = []
    n_calibration = buffer.n_lines - buffer.n_image_lines
    calibration = f" ({n_calibration} of them calibration only)" if n_calibration else ""
    notes.append(f"{buffer.n_lines} of {buffer.n_rows} lines measured{calibration}")
    if slice_.is_late:
        notes.append("these lines came after their slice had been closed; they make an image of their own")
    if not is_complete:
        notes.append(
            f"incomplete: {buffer.n_image_lines} imaging lines where the header announces "
            f"{expected_lines(encoding)}"
            f", {len(slice_.averages)} average(s)"
        )
    if slice_.rows.note is not None:
        notes.append(slice_.rows.note)
    if grid.removed_upstream:
        notes.append(f"readout oversampling was removed before: {grid.n_columns} samples")
    elif arrays.is_cropped:
        notes.append(f"readout oversampling removed: {grid.n_columns} to {grid.n_kept} columns")
    elif grid.n_kept < grid.n_columns:
        notes.append("incomplete readouts: oversampling stays until after the reconstruction")
    if encoding.encoded.matrix[2] > 1:
        notes.append(
            f"{encoding.encoded.matrix[2]} partitions in the header, none encoded: taken as a 2-D slice"
        )
    if buffer.largest_count > 1:
        how = "noise level: root mean square over the lines" if arrays.counts_differ else "equally often"
        notes.append(f"lines measured up to {buffer.largest_count} times are averaged ({how})")
    if slice_.dwells_differ:
        notes.append(f"imaging readouts of different dwell times: noise scaled for {slice_.dwell_us:g} us")
    return tuple(notes)


def _vector(values: NDArray[np.float32]) -> Vector:
    x, y, z = (float(value) for value in values)
    return x, y, z


def _three_ints(values: NDArray[np.uint32]) -> tuple[int, int, int]:
    a, b, c = (int(value) for value in values)
    return a, b, c
