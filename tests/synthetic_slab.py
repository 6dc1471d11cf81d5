"""Slabs of Gaussian spots, whose k-space and image are known in closed form."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from synthetic_scan import Spot, image_of, kspace_of

from gadget.scan.calibration import CalibrationLines
from gadget.scan.context import ScanContext
from gadget.scan.volume import AssembledVolume

CONTEXT = ScanContext(
    encoding_index=0,
    slice=0,
    contrast=0,
    phase=0,
    repetition=0,
    set=0,
    average=0,
    encoded_matrix=(26, 18, 13),
    recon_matrix=(26, 18, 13),
    recon_fov_mm=(208.0, 180.0, 91.0),
    grid_matrix=(26, 18),
    grid_fov_mm=(208.0, 180.0),
    n_partitions=13,
    slab_fov_mm=91.0,
    measurement_uid=7,
    acquisition_time_stamp=11,
    physiology_time_stamp=(1, 2, 3),
    position=(10.0, -20.0, 30.0),
    read_dir=(1.0, 0.0, 0.0),
    phase_dir=(0.0, 0.8, 0.6),
    slice_dir=(0.0, -0.6, 0.8),
    patient_table_position=(0.0, 0.0, 0.0),
    user_int=(0,) * 8,
    user_float=(0.0,) * 8,
    n_coils=3,
    n_lines=13 * 18,
    n_calibration_lines=0,
    n_lines_announced=13 * 18,
    n_averages=1,
    is_complete=True,
    is_prewhitened=True,
    notes=("234 of 234 lines measured",),
)


@dataclass(frozen=True, kw_only=True)
class SlabSpot:
    """A spot of the plane, Gaussian along z too. Lengths in mm."""

    spot: Spot
    z: float
    width_z: float = 9.0


OBJECT = (
    SlabSpot(spot=Spot(x=-33.0, y=12.0, width=12.0), z=4.0),
    SlabSpot(spot=Spot(x=27.5, y=-23.0, width=13.0, amplitudes=(0.4j, 1.0, 0.6)), z=-5.5, width_z=9.5),
)


def slab_kspace(
    spots: tuple[SlabSpot, ...], matrix: tuple[int, int, int], fov_mm: tuple[float, float, float]
) -> np.ndarray:
    """Centred k-space (coil, kz, ky, kx) of the unitary transform; matrix and fov along x, y, z."""
    kz = (np.arange(matrix[2]) - matrix[2] // 2) / fov_mm[2]
    total = 0
    for one in spots:
        along = np.sqrt(2 * np.pi) * one.width_z * np.exp(-2 * (np.pi * one.width_z * kz) ** 2)
        along = along * np.exp(-2j * np.pi * kz * one.z) * np.sqrt(matrix[2]) / fov_mm[2]
        plane = kspace_of((one.spot,), matrix[:2], fov_mm[:2])
        total = total + along[:, None, None] * plane[:, None]
    return np.asarray(total)


def slab_image(
    spots: tuple[SlabSpot, ...],
    matrix: tuple[int, int, int],
    fov_mm: tuple[float, float, float],
    places_mm: np.ndarray,
) -> np.ndarray:
    """Coil images (coil, z, y, x) at these places along z, from the slab's position."""
    total = 0
    for one in spots:
        along = np.exp(-((places_mm - one.z) ** 2) / (2 * one.width_z**2))
        total = total + along[:, None, None] * image_of((one.spot,), matrix[:2], fov_mm[:2])[:, None]
    return np.asarray(total)


def slab(
    matrix: tuple[int, int, int] = (26, 18, 13),
    fov_mm: tuple[float, float, float] = (208.0, 180.0, 91.0),
    *,
    spots: tuple[SlabSpot, ...] = OBJECT,
    mask: np.ndarray | None = None,
    noise_std: float = 1e-3,
    calibration: CalibrationLines | None = None,
    **changes: Any,
) -> AssembledVolume:
    """Return such a slab, by default measured completely and without oversampling; ``mask`` (kz, ky, kx)."""
    samples = slab_kspace(spots, matrix, fov_mm).astype(np.complex64)
    mask = (
        np.ones(samples.shape[1:], bool) if mask is None else np.broadcast_to(mask, samples.shape[1:]).copy()
    )
    values = {
        "encoded_matrix": matrix,
        "recon_matrix": matrix,
        "recon_fov_mm": fov_mm,
        "grid_matrix": matrix[:2],
        "grid_fov_mm": fov_mm[:2],
        "n_partitions": matrix[2],
        "slab_fov_mm": fov_mm[2],
        **changes,
    }
    return AssembledVolume(replace(CONTEXT, **values), samples * mask, mask, noise_std, calibration)
