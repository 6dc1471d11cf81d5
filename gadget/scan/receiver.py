"""What a scan's receiver coils are, what noise they have, and what their samples are multiplied with.

The rules, in one place:

* **Same coils.** All readouts of a scan hold the same coils (number, and channels where ``channel_mask``
  tells them), noise readouts excepted: their coils are matched to those of the data
  (:mod:`gadget.scan.coil_identity`).
* **Coils without data.** A coil that is zero throughout the imaging readouts of a slice, or NaN or infinite
  throughout one of them, is left out of that slice; so is one whose noise is not known (zero or not finite
  throughout a noise readout), and one that only copies others. The others are whitened as if it were not
  there. A readout with *some* NaN or infinite numbers in a coil, or in all coils, is damaged and refused.
* **Which noise.** That of the scan's own noise readouts up to the first slice that is complete; without any,
  that of the measurement that the header names as its dependency of the type Noise (upper or lower case),
  where it was kept; without that, an estimate from the data, which is not prewhitened. Noise of an earlier
  measurement that cannot be matched is not used, with a warning; a scan's own is refused.
* **Compression** follows whitening, and only that: unitary rows keep the noise at 1. All images of one slice
  position of one encoding (contrasts, phases, repetitions, sets, averages) share the matrix, found from the
  first of them that is complete, so that their coils, and so their phases, can be compared.
"""

import dataclasses
import logging
from collections.abc import Hashable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError
from gadget.scan.coil_compression import CoilCompression, CompressionChoice, coil_compression
from gadget.scan.coil_identity import CoilIdentity, identify, match
from gadget.scan.header import ScanDescription
from gadget.scan.noise import NoiseCovariance, NoiseScan, NoiseSource, Prewhitening
from gadget.scan.readout_kinds import known_dwell
from gadget.scan.readout_labels import ReadoutLabels
from gadget.wire.messages import Acquisition

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CoilMap:
    """What the samples of a slice's coils are multiplied with, and what they are then."""

    matrix: NDArray[np.complex128] | None
    """complex128 (coil of the k-space, coil of the scanner); None where nothing is to be multiplied."""
    coils: tuple[int, ...]
    """The scanner's coils that are used."""
    is_white: bool
    """Whether the noise is then independent in the coils, with standard deviation 1 per real component."""
    notes: tuple[str, ...]
    """Words for the log."""


class NoiseStore(Protocol):
    """Keeps noise measurements from one scan to another."""

    def keep(self, measurement_id: str, noise: NoiseCovariance) -> None:
        """Keep the noise of a measurement; what goes wrong is logged."""

    def find(self, measurement_id: str) -> NoiseCovariance | None:
        """Return the noise of a measurement; None where it is not there, or cannot be trusted (logged)."""


class Receiver:
    """The coils of one scan."""

    def __init__(
        self,
        description: ScanDescription,
        *,
        source: NoiseSource,
        store: NoiseStore | None = None,
        compression: CompressionChoice | None = None,
    ) -> None:
        self._description = description
        self._source = source
        self._store = store
        self._choice = CompressionChoice() if compression is None else compression
        self._noise = NoiseScan()
        self._noise_coils: CoilIdentity | None = None
        self._coils: CoilIdentity | None = None
        self._mask = b""
        self._n_kept_readouts = 0
        self._is_settled = False
        self._covariance: NoiseCovariance | None = None
        self._why_no_noise = ""
        self._match_notes: tuple[str, ...] = ()
        self._whitenings: dict[tuple[int, ...], Prewhitening | None] = {}
        self._compressions: dict[tuple[Hashable, tuple[int, ...]], CoilCompression | None] = {}
        self._silent: dict[Hashable, NDArray[np.bool_] | None] = {}
        self._damaged: dict[Hashable, set[int]] = {}

    # Readouts in

    def add_noise(self, acquisition: Acquisition, name: str) -> bool:
        """Take a noise readout; return whether it is used: not after the first slice was whitened."""
        if self._is_settled:
            return False
        if self._source is not NoiseSource.READOUTS:
            return True
        _refuse_empty(acquisition, name)
        data, _ = _finite(acquisition.data, name)
        coils = identify(acquisition.header, data.shape[0], self._description.coil_labels)
        if self._noise_coils is None:
            self._noise_coils = coils
            self._refuse_unmatched(name, coils.n_coils)
        elif coils != self._noise_coils:
            raise ScanError(
                f"{name} has {coils.n_coils} coils, but earlier noise readouts have "
                f"{self._noise_coils.n_coils}; all noise readouts need the same coils, by channel_mask too."
            )
        self._noise.add(data, known_dwell(acquisition.header))
        return True

    def check(self, acquisition: Acquisition, labels: ReadoutLabels, key: Hashable, name: str) -> Acquisition:
        """Check the coils of a readout of a slice; return it with dead coils at zero instead of NaN."""
        _refuse_empty(acquisition, name)
        data = acquisition.data
        mask = labels.channel_mask
        if self._coils is None or data.shape[0] != self._coils.n_coils or mask != self._mask:
            self._check_coils(acquisition, name)
            self._mask = mask
        if self._noise.n_readouts != self._n_kept_readouts:
            self._keep_noise()
        clean, damaged = _finite(data, name)
        if damaged:
            self._damaged.setdefault(key, set()).update(damaged)
            acquisition = dataclasses.replace(acquisition, data=clean)
        if key not in self._silent:
            self._silent[key] = _is_silent(clean)
        silent = self._silent[key]
        if silent is not None:
            silent[silent] = _is_silent(clean[silent])
            if not silent.any():
                self._silent[key] = None
        return acquisition

    def _check_coils(self, acquisition: Acquisition, name: str) -> None:
        n_coils = acquisition.data.shape[0]
        coils = identify(acquisition.header, n_coils, self._description.coil_labels)
        if self._coils is None:
            self._coils = coils
            self._refuse_unmatched(name, coils.n_coils)
        elif n_coils != self._coils.n_coils:
            raise ScanError(
                f"{name} has {n_coils} coils, but earlier readouts have {self._coils.n_coils}; all readouts "
                "of a scan need the same coils."
            )
        elif coils != self._coils:
            raise ScanError(
                f"{name} has other coils than earlier ones, by its channel_mask; all readouts of a scan "
                "need the same coils."
            )

    def _refuse_unmatched(self, name: str, n_coils: int) -> None:
        if self._noise_coils is None or self._coils is None:
            return
        rows = match(self._noise_coils, self._coils, is_same_scan=True)
        if isinstance(rows, str):
            other = self._noise_coils if n_coils == self._coils.n_coils else self._coils
            raise ScanError(
                f"{name} has {n_coils} coils, but earlier readouts have {other.n_coils}; the noise cannot be "
                f"matched to the data: {rows}. Correct the converter, or set noise.source to data."
            )

    # Noise

    def finish(self) -> None:
        """Keep the noise of a scan that ends without having made an image: an adjustment of only noise."""
        if self._noise.n_readouts != self._n_kept_readouts:
            self._keep_noise()

    def _pooled(self) -> NoiseCovariance | None:
        names = () if self._noise_coils is None else self._noise_coils.names
        return self._noise.covariance(names, self._description.relative_receiver_noise_bandwidth)

    def _keep_noise(self) -> None:
        self._n_kept_readouts = self._noise.n_readouts
        noise, own_id = self._pooled(), self._description.measurement_id
        if self._store is not None and own_id and noise is not None:
            self._store.keep(own_id, noise)

    def _settle(self) -> None:
        self._is_settled = True
        if self._source is not NoiseSource.READOUTS:
            return
        self.finish()
        pooled = self._pooled()
        if pooled is not None and self._noise_coils is not None and self._coils is not None:
            rows = match(self._noise_coils, self._coils, is_same_scan=True)
            if isinstance(rows, str):
                raise RuntimeError("noise that cannot be matched is refused when it comes")
            self._covariance = pooled.of_coils(rows)
            if self._noise_coils.n_coils != self._coils.n_coils:
                self._match_notes = (
                    f"the noise readouts have {self._noise_coils.n_coils} coils: matched to the "
                    f"{self._coils.n_coils} of the data by name or channel",
                )
            return
        self._covariance, self._why_no_noise = self._earlier_noise()

    def _earlier_noise(self) -> tuple[NoiseCovariance | None, str]:
        ids = [
            measurement
            for kind, measurement in self._description.dependencies.items()
            if kind.strip().lower() == "noise" and measurement
        ]
        if not ids or self._coils is None:
            return None, ""
        if self._store is None:
            return None, "the header names an earlier noise measurement, but noise.cache is not set"
        noise = self._store.find(ids[0])
        if noise is None:
            return None, "the earlier noise measurement that the header names is not in noise.cache"
        theirs = CoilIdentity(noise.matrix.shape[0], names=noise.coil_names)
        rows = match(theirs, self._coils, is_same_scan=False)
        if isinstance(rows, str):
            note = f"the earlier noise measurement that the header names cannot be used: {rows}"
            logger.warning("Noise: %s.", note)
            return None, note
        if not (theirs.names and self._coils.names):
            self._match_notes = ("the coils' names are not known: taken in the order of the earlier noise",)
        elif rows != tuple(range(theirs.n_coils)):
            self._match_notes = ("coils of the earlier noise measurement matched by name",)
        return dataclasses.replace(noise.of_coils(rows), origin=" of an earlier measurement"), ""

    # Slices out

    @property
    def why_no_noise(self) -> str:
        """Why the noise of an earlier measurement, that the header names, is not used; empty if not so."""
        return self._why_no_noise

    def coil_map(self, key: Hashable, dwell_us: float) -> CoilMap:
        """Return the map of a complete slice, before compression; ``dwell_us`` is that of its readouts."""
        if not self._is_settled:
            self._settle()
        coils = self._coils
        if coils is None:
            raise RuntimeError("a slice is whitened before any of its readouts was checked")
        left_out, notes = self._without_data(key, coils)
        used = tuple(coil for coil in range(coils.n_coils) if coil not in left_out)
        if left_out not in self._whitenings:
            known = self._covariance
            self._whitenings[left_out] = None if known is None else known.prewhitening(left_out)
        whitening = self._whitenings[left_out]
        if whitening is None:
            picked = np.eye(coils.n_coils, dtype=np.complex128)[list(used)] if left_out else None
            is_white = self._source is NoiseSource.PREWHITENED
            return CoilMap(matrix=picked, coils=used, is_white=is_white, notes=notes)
        header = self._description
        bandwidth, is_known = header.noise_bandwidth, header.relative_receiver_noise_bandwidth is not None
        if whitening.bandwidth is not None:
            bandwidth, is_known = whitening.bandwidth, True
        how = whitening.describe_scale(dwell_us, bandwidth, from_header=is_known)
        return CoilMap(
            matrix=whitening.matrix * whitening.scale(dwell_us, bandwidth),
            coils=whitening.kept_coils,
            is_white=True,
            notes=(*whitening.notes, how, *self._match_notes, *notes),
        )

    def compressed(
        self, position: Hashable, samples: NDArray[np.complex64], coil_map: CoilMap
    ) -> tuple[NDArray[np.complex64], CoilMap]:
        """Compress the coils of a slice, where that is to be done.

        Parameters
        ----------
        position
            What the images that share a compression have in common.
        samples
            complex64 (coil, ...), mapped by ``coil_map``.

        Returns
        -------
        samples : complex64 (virtual coil, ...)
        coil_map : CoilMap
            With the compression in it, for other samples of this slice.
        """
        if not self._choice.applies_to(samples.shape[0]):
            return samples, coil_map
        if not coil_map.is_white:
            note = "coils not compressed: that needs prewhitened data"
            return samples, dataclasses.replace(coil_map, notes=(*coil_map.notes, note))
        group = (position, coil_map.coils)
        if group not in self._compressions:
            self._compressions[group] = coil_compression(samples, self._choice)
        compression = self._compressions[group]
        if compression is None:
            return samples, coil_map
        before = np.eye(samples.shape[0]) if coil_map.matrix is None else coil_map.matrix
        mixed = compression.matrix.astype(np.complex64) @ samples.reshape(samples.shape[0], -1)
        return mixed.reshape(-1, *samples.shape[1:]), dataclasses.replace(
            coil_map,
            matrix=compression.matrix @ before,
            notes=(*coil_map.notes, compression.describe()),
        )

    def _without_data(self, key: Hashable, coils: CoilIdentity) -> tuple[tuple[int, ...], tuple[str, ...]]:
        damaged = self._damaged.pop(key, set())
        silent_rows = self._silent.pop(key, None)
        silent = set() if silent_rows is None else set(np.flatnonzero(silent_rows).tolist()) - damaged
        if len(silent | damaged) == coils.n_coils:
            silent = set()  # a scan of zeros: said elsewhere
        notes = []
        if silent:
            notes.append(f"{coils.say(sorted(silent))} left out: no signal in the imaging readouts")
        if damaged:
            notes.append(f"{coils.say(sorted(damaged))} left out: NaN or infinite throughout a readout")
        return tuple(sorted(silent | damaged)), tuple(notes)


def _refuse_empty(acquisition: Acquisition, name: str) -> None:
    n_coils, n_samples = acquisition.data.shape
    if n_coils == 0 or n_samples == 0:
        raise ScanError(f"{name} is empty: {n_coils} coils, {n_samples} samples.")


def _is_silent(data: NDArray[np.complex64]) -> NDArray[np.bool_]:
    return np.asarray(~data.any(axis=1), np.bool_)


def _finite(data: NDArray[np.complex64], name: str) -> tuple[NDArray[np.complex64], list[int]]:
    """Return the data with dead coils (NaN or infinite throughout) at zero, and which these are."""
    is_finite = np.isfinite(np.ascontiguousarray(data).view(np.float32))
    if is_finite.all():
        return data, []
    n_bad = (~is_finite.reshape(*data.shape, 2)).any(axis=2).sum(axis=1)
    dead = n_bad == data.shape[1]
    if dead.all() or (n_bad[~dead] > 0).any():
        raise ScanError(
            f"{name} holds {int((~is_finite).sum())} NaN or infinite numbers. The data was damaged before it "
            "came here."
        )
    return np.where(dead[:, None], np.complex64(0), data), np.flatnonzero(dead).tolist()
