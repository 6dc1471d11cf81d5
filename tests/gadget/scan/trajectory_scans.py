"""Readouts with trajectories and the encodings that they belong to, written by hand."""

from dataclasses import replace
from typing import Any

import numpy as np

from gadget.scan.header import Encoding, Limit, Space
from gadget.wire.messages import Acquisition
from tests.synthetic_scan import readout

ENCODING = Encoding(
    index=0,
    encoded=Space(matrix=(64, 64, 1), fov_mm=(320.0, 320.0, 5.0)),
    recon=Space(matrix=(64, 64, 1), fov_mm=(320.0, 320.0, 5.0)),
    limits={"kspace_encoding_step_1": Limit(minimum=0, maximum=23, center=0)},
    trajectory="radial",
)
"""64 x 64 pixels of 5 mm; 24 spokes."""

OVERSAMPLED = replace(ENCODING, encoded=Space(matrix=(128, 64, 1), fov_mm=(640.0, 320.0, 5.0)))


def partitions(encoding: Encoding, number: int) -> Encoding:
    """Return the encoding as one of a stack."""
    return replace(
        encoding,
        encoded=Space(matrix=(*encoding.encoded.matrix[:2], number), fov_mm=encoding.encoded.fov_mm),
        limits={
            **encoding.limits,
            "kspace_encoding_step_2": Limit(minimum=0, maximum=number - 1, center=number // 2),
        },
    )


def spokes(n_spokes: int = 24, n_samples: int = 64, spacing: float = 1.0) -> np.ndarray:
    """Points (spoke, sample, 2) in cycles per field of view, the centre at n // 2."""
    angle = np.pi * np.arange(n_spokes) / n_spokes
    along = (np.arange(n_samples) - n_samples // 2) * spacing
    return np.stack([along * np.cos(angle)[:, None], along * np.sin(angle)[:, None]], axis=-1)


def with_points(points: np.ndarray, n_samples: int | None = None, **fields: Any) -> list[Acquisition]:
    """Return a readout of ones for each row of points (readout, sample, column)."""
    acquisitions = []
    for row, columns in enumerate(points):
        made = readout(
            np.ones((2, n_samples or len(columns))),
            row,
            scan_counter=100 + row,
            trajectory_dimensions=columns.shape[1],
            **fields,
        )
        acquisitions.append(Acquisition(made.header, columns.astype(np.float32), made.data))
    return acquisitions


def without_points(numbers: list[int], n_samples: int = 64, **fields: Any) -> list[Acquisition]:
    """Return a readout of ones without a trajectory for each spoke number."""
    return [readout(np.ones((2, n_samples)), number, scan_counter=number, **fields) for number in numbers]
