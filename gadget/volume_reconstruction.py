"""Volumes that are under-sampled in two directions: a two-dimensional problem for each plane.

The volume is transformed along the axis that is complete (readouts, as a rule; see
:mod:`gadget.scan.volume_partitions`), and each plane across it is reconstructed by itself, rows z. What holds
the planes together:

* **one brightness**: all planes are scaled by the maximum of the zero-filled root-sum-of-squares of the whole
  volume, so that noise level and weight of the prior are the same in all of them, and a plane with little
  signal is not taken for a bright one with much noise;
* **one noise level**, that of the volume: the transform is unitary;
* images are in the units of the samples, so no plane is brighter or darker than its neighbours.

Coil maps are estimated plane by plane, and with them the reference of the phase. So only the magnitude has a
meaning across planes: partitions are magnitudes. How typical an image is, is told of the partitions, which
are what is looked at, not of the planes. There is no uncertainty.

Where planes failed, they are zero-filled root sums of squares in all partitions, which are labelled as
fallbacks and say how many.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gadget.finished_slice import VolumePartition
from gadget.reconstructor import ImageKind, SliceResult
from gadget.scan.volume import AssembledVolume
from gadget.scan.volume_partitions import PartitionGrid, partition_contexts, partition_grid
from gadget.scan.volume_planes import VolumePlanes
from gadget.streaming_scan import ScanDevice
from gadget.wire.limits import MIB
from reconlib.reconstruction import zero_filled

logger = logging.getLogger(__name__)

NOT_SAMPLED = "not sampled for a volume that is reconstructed in planes across its partitions"
"""Why there are no uncertainty images."""

SOLVER_COPIES = 25
"""What a reconstruction holds at once, in copies of the coil images of its batch: measured 19 to 24."""


def peak_bytes(*, n_coils: int, matrix: tuple[int, int, int], n_sent: int, batch: int) -> int:
    """Return the memory that a volume takes while it is reconstructed, its prior apart.

    That is the volume, whose samples are overwritten by their transform, the magnitudes of the partitions
    that are sent, and one batch of planes with what the solver makes of it (``SOLVER_COPIES``).

    Parameters
    ----------
    matrix
        Of the assembled k-space: kz, the axis across the planes, and the one along which they lie.
    n_sent
        Partitions that are sent.
    batch
        Planes that are reconstructed together.
    """
    n_z, n_across, n_planes = matrix
    volume = n_z * n_across * n_planes * (8 * n_coils + 1)
    images = 4 * n_sent * n_across * n_planes
    return volume + images + batch * SOLVER_COPIES * 8 * n_coils * n_z * n_across


def reconstruct_volume(
    volume: AssembledVolume,
    scan: ScanDevice,
) -> Iterator[tuple[VolumePartition, SliceResult]]:
    """Reconstruct a volume that is complete along kx or ky, and yield its partitions.

    The volume is used up: its samples are overwritten.
    """
    planes, grid = VolumePlanes.of(volume), partition_grid(volume.context)
    n_planes, n_coils, n_z, n_across = planes.hybrid.shape
    logger.info(
        "%s: a volume, in %d planes of %d coils x %d x %d (%.0f MiB)",
        volume.context.label(),
        n_planes,
        n_coils,
        n_z,
        n_across,
        volume.samples.nbytes / MIB,
    )
    peak = max(float(zero_filled(planes.kspace(plane)).max()) for plane in range(n_planes))
    partitions = np.zeros((grid.n_sent, n_across, n_planes), np.float32)
    tally = _Tally()
    for start in range(0, n_planes, scan.settings.batch_slices):
        batch = range(start, min(start + scan.settings.batch_slices, n_planes))
        results = scan(
            [planes.kspace(plane) for plane in batch],
            initial_coils=planes.initial_coils(batch),
            peak=peak if 0 < peak < np.inf else None,
            judged=False,
        )
        for plane, result in zip(batch, results, strict=True):
            partitions[:, :, plane] = _magnitude(result, grid)
            tally.add(result)
    together = tally.together(grid.n_sent)
    contexts = partition_contexts(volume.context, planes.words)
    for context, image in zip(contexts, planes.restack(partitions), strict=True):
        pixels = np.ascontiguousarray(image)
        found = None
        if together.kind is not ImageKind.FALLBACK and pixels.any():
            found = scan.judge(torch.from_numpy(pixels)[None, None])
        yield VolumePartition(context), replace(together, image=pixels, typicality=found)


def _magnitude(result: SliceResult, grid: PartitionGrid) -> NDArray[np.float32]:
    """Bring a plane (z, across) to the partitions that are sent; its phase has no meaning beyond it."""
    return np.asarray(grid.fit(torch.from_numpy(np.ascontiguousarray(result.image)), 0).abs().numpy())


@dataclass(slots=True)
class _Tally:
    """How the planes of a volume ended. It keeps no image."""

    n: int = 0
    by_kind: dict[ImageKind, list[SliceResult]] = field(default_factory=dict)
    """Without images and maps."""

    def add(self, result: SliceResult) -> None:
        self.n += 1
        bare = replace(result, image=np.zeros((0, 0), np.float32), coils=None)
        self.by_kind.setdefault(result.kind, []).append(bare)

    def together(self, n_images: int) -> SliceResult:
        """Return what is said of all images of the volume, itself without an image.

        The kind is the worst one of any plane; of the numbers that differ from plane to plane the largest of
        iterations, and the mean of the maps' magnitude.
        """
        order = (ImageKind.FALLBACK, ImageKind.OUT_OF_TIME, ImageKind.RECONSTRUCTED, ImageKind.ALL_ZERO)
        kind = next(kind for kind in order if kind in self.by_kind)
        worst = self.by_kind[kind]
        everything = [result for results in self.by_kind.values() for result in results]
        seconds = sum(result.seconds for result in everything) / n_images
        outcome = worst[0].outcome
        if kind in (ImageKind.FALLBACK, ImageKind.OUT_OF_TIME) and len(worst) < self.n:
            outcome = f"{outcome}, in {len(worst)} of {self.n} planes"
        if kind is ImageKind.FALLBACK:
            return replace(worst[0], outcome=outcome, seconds=seconds)
        magnitudes = [result.mean_coil_magnitude for result in worst]
        return replace(
            worst[0],
            outcome=outcome,
            seconds=seconds,
            iterations=max(result.iterations or 0 for result in worst),
            mean_coil_magnitude=sum(value or 0.0 for value in magnitudes) / len(magnitudes),
        )
