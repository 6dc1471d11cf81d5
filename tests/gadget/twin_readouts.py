"""Twin scans: readouts, phase encoding and matrices."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from synthetic_scan import readout
from twin_scans import (
    DOUBLE,
    FOV,
    FULL,
    NX,
    NY,
    OBJECT,
    OVERSAMPLED,
    PLACE,
    THICKNESS,
    Twin,
    kspace_of,
    protocol,
    rows_of,
    turned,
    twin,
)

from gadget.wire.headers import AcquisitionFlag as Flag


def oversampled() -> Twin:
    return twin(rows_of(DOUBLE), OVERSAMPLED)


def oversampled_odd() -> Twin:
    """51 columns over 265.2 mm hold 25 over 130 mm."""
    matrix, fov = (25, NY), (130.0, FOV[1])
    scan = protocol(
        encoded=(51, NY, 1),
        encoded_fov=(265.2, FOV[1], THICKNESS),
        recon=(*matrix, 1),
        recon_fov=(*fov, THICKNESS),
    )
    return twin(rows_of(kspace_of(OBJECT, (51, NY), (265.2, FOV[1]))), scan, matrix=matrix, fov=fov)


def oversampled_by_a_quarter() -> Twin:
    matrix, fov = (32, NY), (160.0, FOV[1])
    return twin(
        rows_of(kspace_of(OBJECT, matrix, fov)), protocol(encoded=(*matrix, 1), encoded_fov=(*fov, 7.0))
    )


def oversampled_only_in_the_data() -> Twin:
    return twin(rows_of(DOUBLE), protocol(), warns="2 times more oversampling, over 260 mm")


def oversampled_with_the_matrix_not_doubled() -> Twin:
    scan = protocol(encoded_fov=(2 * FOV[0], FOV[1], THICKNESS))
    return twin(rows_of(DOUBLE), scan, warns="taken as 52 columns over its 260 mm")


def resolution_that_looks_like_oversampling() -> Twin:
    scan = protocol(encoded=(2 * NX, NY, 1))
    kspace = kspace_of(OBJECT, (2 * NX, NY), FOV)
    return twin(rows_of(kspace), scan, warns="taken as pixels of half the size")


def removed_upstream(center: int) -> Callable[[], Twin]:
    return lambda: twin(rows_of(FULL, center=center), OVERSAMPLED)


def center_not_set() -> Twin:
    return twin(rows_of(DOUBLE, center=0), OVERSAMPLED)


def asymmetric() -> Twin:
    return twin(rows_of(DOUBLE, columns=slice(14, None)), OVERSAMPLED)


def asymmetric_not_oversampled() -> Twin:
    return twin(rows_of(FULL, columns=slice(6, None)))


def asymmetric_reversed(center: int) -> Callable[[], Twin]:
    readouts = rows_of(DOUBLE, columns=slice(14, None), center=center, flags=lambda _row: (Flag.IS_REVERSE,))
    return lambda: twin([turned(one) for one in readouts], OVERSAMPLED)


def partial_kx_by_discarding() -> Twin:
    """Full readouts of which the first 14 samples are not to be used: noise."""
    rough = DOUBLE.copy()
    rough[..., :14] = 3
    return twin(rows_of(rough, discard_pre=14), OVERSAMPLED)


def discarded() -> Twin:
    """Two samples more at the start and three at the end than the matrix has columns."""
    padded = np.pad(DOUBLE, ((0, 0), (0, 0), (2, 3)), constant_values=5)
    return twin(rows_of(padded, discard_pre=2, discard_post=3, center=NX + 2), OVERSAMPLED)


def discarded_reversed() -> Twin:
    padded = np.pad(DOUBLE, ((0, 0), (0, 0), (2, 3)), constant_values=5)
    # In the order of acquisition: 3 samples, then the last column; the centre is sample 56 - (26 + 2).
    readouts = rows_of(
        padded, discard_pre=3, discard_post=2, center=56 - (NX + 2), flags=lambda _row: (Flag.IS_REVERSE,)
    )
    return twin([turned(one) for one in readouts], OVERSAMPLED)


def reversed_readouts() -> Twin:
    return twin([turned(one) for one in rows_of(DOUBLE, flags=lambda _row: (Flag.IS_REVERSE,))], OVERSAMPLED)


def alternating() -> Twin:
    readouts = rows_of(DOUBLE, flags=lambda row: (Flag.IS_REVERSE,) if row % 2 else ())
    return twin([turned(one) if row % 2 else one for row, one in enumerate(readouts)], OVERSAMPLED)


# Phase encoding and matrices


def phase_oversampled() -> Twin:
    matrix, fov = (2 * NX, 31), (2 * FOV[0], 186.0)
    scan = protocol(
        encoded=(*matrix, 1),
        encoded_fov=(*fov, THICKNESS),
        limits={"kspace_encoding_step_1": (0, 30, 15)},
    )
    return twin(rows_of(kspace_of(OBJECT, matrix, fov)), scan)


def partial_fourier(start: int, stop: int, *, from_0: bool = False) -> Callable[[], Twin]:
    first = start if from_0 else 0
    limits = {"kspace_encoding_step_1": (start - first, stop - 1 - first, NY // 2 - first)}
    return lambda: twin(
        rows_of(DOUBLE, range(start, stop), first_line=first), replace(OVERSAMPLED, limits=limits)
    )


def partial_fourier_in_both() -> Twin:
    limits = {"kspace_encoding_step_1": (5, NY - 1, NY // 2)}
    return twin(rows_of(DOUBLE, range(5, NY), columns=slice(14, None)), replace(OVERSAMPLED, limits=limits))


def without_limits() -> Twin:
    return twin(rows_of(FULL), protocol(limits={}))


def center_that_cannot_be() -> Twin:
    limits = {"kspace_encoding_step_1": (0, NY - 1, 0)}
    return twin(rows_of(FULL), protocol(limits=limits), warns="centre 0 of kspace_encoding_step_1 cannot be")


def lines_outside() -> Twin:
    outside = [readout(9 * FULL[:, 0], line, **PLACE) for line in (NY, NY + 1)]
    return twin([*rows_of(FULL), *outside], warns="2 readouts of lines outside the matrix left out")


def recon_zero_filled() -> Twin:
    matrix = (2 * NX, 2 * NY)
    return twin(rows_of(DOUBLE), replace(OVERSAMPLED, recon=(*matrix, 1)), matrix=matrix)


def recon_zero_filled_odd() -> Twin:
    matrix = (39, 63)
    return twin(rows_of(DOUBLE), replace(OVERSAMPLED, recon=(*matrix, 1)), matrix=matrix)


def recon_smaller_than_encoded() -> Twin:
    matrix = (39, 42)
    scan = protocol(encoded=(*matrix, 1), limits={"kspace_encoding_step_1": (0, 41, 21)})
    return twin(rows_of(kspace_of(OBJECT, matrix, FOV)), scan)


def recon_of_a_smaller_field_of_view() -> Twin:
    matrix, fov = (23, 19), (115.0, 114.0)
    return twin(
        rows_of(FULL), protocol(recon=(*matrix, 1), recon_fov=(*fov, THICKNESS)), matrix=matrix, fov=fov
    )


def recon_of_a_larger_field_of_view() -> Twin:
    matrix, fov = (30, 25), (150.0, 150.0)
    scan = protocol(recon=(*matrix, 1), recon_fov=(*fov, THICKNESS))
    return twin(rows_of(FULL), scan, matrix=matrix, fov=fov)


def trajectory_ignored() -> Twin:
    """Cartesian readouts that carry a trajectory."""
    trajectory = np.linspace(-0.5, 0.5, NX, dtype=np.float32)[:, None]
    return twin([replace(one, trajectory=trajectory) for one in rows_of(FULL)])
