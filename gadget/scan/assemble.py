"""Readouts in, complete slices of k-space out, as soon as a slice is complete.

When is a slice complete? The rule, in one place:

1. A readout with **LAST_IN_SLICE** closes its slice, **LAST_IN_REPETITION** all slices of its repetition,
   **LAST_IN_MEASUREMENT** all slices, if they have what the header announces: every average, the calibration
   lines of an embedded calibration, and for the readout's own slice 60 % of the imaging lines, for the others
   all of them (flags are set after each shot by some sequences, and come first when readouts are sorted
   otherwise).
2. The first readout of a **later repetition** closes the same slice of earlier ones, if they have all lines.
3. **The end of the stream** closes what is still open; a slice without what the header announces says so.

The start of another slice or contrast closes nothing: scans are interleaved. Lines that come after their
slice was closed are never dropped silently: imaging lines make an image of their own, labelled;
calibration-only lines are counted in the report.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch

from gadget.errors import ScanError
from gadget.scan.context import ScanContext
from gadget.scan.describe import describe_slice
from gadget.scan.header import Encoding, ScanDescription
from gadget.scan.noise import NoiseScan, Prewhitening
from gadget.scan.open_slice import TRUSTED_PART, OpenSlice, SliceKey
from gadget.scan.readout_kinds import ReadoutKind, kind_of_readout
from gadget.scan.slice_buffer import SliceArrays, SliceBuffer
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition, Header
from reconlib.kspace import KSpace

_LAST_BITS = Flag.LAST_IN_SLICE.bit | Flag.LAST_IN_REPETITION.bit | Flag.LAST_IN_MEASUREMENT.bit


class NoiseSource(Enum):
    """Where the noise level comes from."""

    READOUTS = "readouts"
    """Prewhiten with the scan's noise readouts; without any, estimate from the data."""
    DATA = "data"
    """Estimate from the data; no prewhitening."""
    PREWHITENED = "prewhitened"
    """The data came prewhitened: standard deviation 1 per real component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblySettings:
    """Choices of the assembly."""

    noise: NoiseSource = NoiseSource.READOUTS
    use_calibration_lines: bool = True
    """Whether calibration-only lines of the same k-space enter the data."""
    keep_averages: bool = False
    """Whether every average makes an image of its own; otherwise their mean does."""
    max_open_bytes: int = 16 * 2**30
    """Memory for slices that are being received."""


@dataclass(frozen=True, slots=True)
class AssembledSlice:
    """One complete slice: what an image header needs, and its k-space (a batch of one)."""

    context: ScanContext
    kspace: KSpace


class SliceAssembler:
    """Sorts a scan's readouts into slices.

    Raises
    ------
    ScanError
        On construction where no encoding of the header is supported; later with the first readout that is
        faulty or not supported.
    """

    def __init__(self, description: ScanDescription, settings: AssemblySettings | None = None) -> None:
        self.description = description
        self.settings = AssemblySettings() if settings is None else settings
        self.counts: Counter[ReadoutKind] = Counter()
        """Readouts so far, by kind."""
        self._refusals = tuple(encoding.refusal() for encoding in description.encodings)
        if all(self._refusals):
            raise ScanError(str(self._refusals[0]))
        self._n_readouts = 0
        self._n_coils: int | None = None
        self._noise = NoiseScan()
        self._prewhitening: Prewhitening | None = None
        self._noise_is_fixed = False
        self._open: dict[SliceKey, OpenSlice] = {}
        self._closed: set[SliceKey] = set()
        self._calibrated: set[tuple[int, int]] = set()
        self._unused: Counter[str] = Counter()

    def add(self, acquisition: Acquisition) -> tuple[AssembledSlice, ...]:
        """Take one readout; return the slices that are complete with it."""
        header = acquisition.header
        self._n_readouts += 1
        flags = int(header["flags"])
        kind = kind_of_readout(flags)
        self.counts[kind] += 1
        done: list[SliceKey] = []
        if kind is ReadoutKind.NOISE:
            self._add_noise(acquisition)
            return ()
        if kind is ReadoutKind.IMAGE:
            done += self._add_image(acquisition)
        elif kind is ReadoutKind.CALIBRATION:
            self._add_calibration(acquisition)
        if flags & _LAST_BITS:
            done += self._closed_by(flags, header)
        return tuple(self._emit(key, is_complete=True) for key in done)

    def finish(self) -> tuple[AssembledSlice, ...]:
        """Return the slices that are still open, at the end of the stream."""
        slices = []
        for key in sorted(self._open):
            slice_ = self._open[key]
            if slice_.buffer is None:
                self._unused["calibration-only readouts without imaging readouts"] += slice_.n_waiting
                del self._open[key]
                continue
            part = TRUSTED_PART if slice_.was_flagged else 1.0
            is_complete = slice_.has_all_announced(averages_kept=self.settings.keep_averages, part=part)
            slices.append(self._emit(key, is_complete=is_complete))
        return tuple(slices)

    def report(self) -> tuple[str, ...]:
        """Say how many readouts of each kind came, and which were not used. No patient data."""
        used = (ReadoutKind.IMAGE, ReadoutKind.CALIBRATION, ReadoutKind.NOISE)
        lines = [
            ", ".join(f"{self.counts[kind]} {kind.value}" for kind in used if self.counts[kind]) + " readouts"
        ]
        skipped = [f"{n} {kind.value}" for kind, n in self.counts.items() if kind not in used]
        if skipped:
            lines.append("not image data, skipped: " + ", ".join(skipped))
        lines += [f"not used: {n} {what}" for what, n in self._unused.items() if n]
        return tuple(lines)

    # Readouts in

    def _name(self, header: Header) -> str:
        return f"Readout {self._n_readouts} of the stream (scan_counter {int(header['scan_counter'])})"

    def _check(self, acquisition: Acquisition) -> None:
        header, data = acquisition.header, acquisition.data
        n_coils = data.shape[0]
        if n_coils != self._n_coils:
            if n_coils == 0 or data.shape[1] == 0:
                raise ScanError(f"{self._name(header)} is empty: {n_coils} coils, {data.shape[1]} samples.")
            if self._n_coils is not None:
                raise ScanError(
                    f"{self._name(header)} has {n_coils} coils, but earlier readouts have {self._n_coils}; "
                    "all readouts of a scan, noise included, need the same coils."
                )
            self._n_coils = n_coils
        is_finite = np.isfinite(np.ascontiguousarray(data).view(np.float32))
        if not is_finite.all():
            raise ScanError(
                f"{self._name(header)} holds {int((~is_finite).sum())} NaN or infinite numbers. The data was "
                "damaged before it came here."
            )

    def _add_noise(self, acquisition: Acquisition) -> None:
        self._check(acquisition)
        if self._noise_is_fixed:
            self._unused["noise readouts after the first slice (all slices are whitened alike)"] += 1
            return
        self._noise.add(acquisition.data, float(acquisition.header["sample_time_us"]))

    def _add_image(self, acquisition: Acquisition) -> list[SliceKey]:
        header = acquisition.header
        encoding = self.description.encoding_of(int(header["encoding_space_ref"]))
        refusal = self._refusals[encoding.index]
        if refusal is not None:
            raise ScanError(refusal)
        partition = int(header["idx"]["kspace_encode_step_2"])
        if partition != 0:
            raise ScanError(
                f"{self._name(header)} has kspace_encode_step_2 {partition}: a 3-D scan, which is not "
                "supported yet. Only 2-D slices can be reconstructed."
            )
        self._check(acquisition)
        key = self._key(header)
        done = []
        slice_ = self._open.get(key)
        if slice_ is None:
            done = self._earlier_repetitions(key)
            slice_ = self._open_slice(key, encoding)
        if slice_.buffer is None:
            slice_.max_bytes = self._bytes_left() + slice_.bytes_held
        slice_.add_image(acquisition, self._name(header))
        return done

    def _add_calibration(self, acquisition: Acquisition) -> None:
        header = acquisition.header
        index = int(header["encoding_space_ref"])
        encoding = self.description.encoding_of(index)
        key = self._key(header)
        self._calibrated.add((index, key.slice))
        if not self.settings.use_calibration_lines:
            self._unused["calibration-only readouts, as set"] += 1
        elif self._refusals[index] is not None or int(header["idx"]["kspace_encode_step_2"]) != 0:
            self._unused["calibration-only readouts of an encoding that is not supported"] += 1
        elif key in self._closed and key not in self._open:
            self._unused["calibration-only readouts after their slice was complete"] += 1
        else:
            self._check(acquisition)
            slice_ = self._open.get(key) or self._open_slice(key, encoding)
            slice_.add_calibration(acquisition, self._name(header))
            if slice_.n_waiting and self._bytes_left() < 0:
                raise ScanError(
                    f"{self._name(header)}: calibration-only readouts that wait for imaging readouts of "
                    f"their slice fill the {self.settings.max_open_bytes / 2**30:.1f} GiB for slices that "
                    "are being received."
                )

    def _key(self, header: Header) -> SliceKey:
        idx = header["idx"]
        return SliceKey(
            encoding=int(header["encoding_space_ref"]),
            repetition=int(idx["repetition"]),
            set=int(idx["set"]),
            phase=int(idx["phase"]),
            contrast=int(idx["contrast"]),
            average=int(idx["average"]) if self.settings.keep_averages else 0,
            slice=int(idx["slice"]),
        )

    def _open_slice(self, key: SliceKey, encoding: Encoding) -> OpenSlice:
        slice_ = OpenSlice(encoding=encoding, max_bytes=0, is_late=key in self._closed)
        self._open[key] = slice_
        return slice_

    def _bytes_left(self) -> int:
        return self.settings.max_open_bytes - sum(slice_.bytes_held for slice_ in self._open.values())

    # Slices out

    def _is_complete(self, key: SliceKey, part: float) -> bool:
        slice_ = self._open[key]
        if not slice_.has_all_announced(averages_kept=self.settings.keep_averages, part=part):
            return False
        waits = self.settings.use_calibration_lines and slice_.awaits_calibration()
        return not waits or (key.encoding, key.slice) in self._calibrated

    def _closed_by(self, flags: int, header: Header) -> list[SliceKey]:
        own = self._key(header)
        done = []
        for key in sorted(self._open):
            is_meant = (
                key == own
                or bool(flags & Flag.LAST_IN_MEASUREMENT.bit)
                or (flags & Flag.LAST_IN_REPETITION.bit and key[:2] == own[:2])
            )
            if not is_meant:
                continue
            self._open[key].was_flagged |= key == own
            if self._is_complete(key, TRUSTED_PART if key == own else 1.0):
                done.append(key)
        return done

    def _earlier_repetitions(self, new: SliceKey) -> list[SliceKey]:
        return [
            key
            for key in sorted(self._open)
            if key.repetition < new.repetition
            and key.same_but_repetition(new)
            and self._is_complete(key, 1.0)
        ]

    def _emit(self, key: SliceKey, *, is_complete: bool) -> AssembledSlice:
        slice_ = self._open.pop(key)
        self._closed.add(key)
        if not self._noise_is_fixed:
            self._noise_is_fixed = True
            if self.settings.noise is NoiseSource.READOUTS:
                self._prewhitening = self._noise.prewhitening()
        self._unused["calibration-only readouts unlike the imaging ones (samples or dwell time)"] += (
            slice_.n_calibration_unlike
        )
        self._unused["calibration-only readouts of lines that imaging readouts cover"] += (
            slice_.n_calibration_covered
        )
        buffer = slice_.buffer
        if buffer is None:
            raise RuntimeError("a slice without imaging readouts cannot be complete")
        matrix, whitening_notes = self._whitening(slice_)
        arrays = buffer.arrays(matrix)
        noise_std, noise_notes = self._noise_std(buffer, arrays)
        context = describe_slice(
            key,
            slice_,
            buffer,
            arrays,
            self.description,
            is_complete=is_complete,
            is_prewhitened=self._prewhitening is not None or self.settings.noise is NoiseSource.PREWHITENED,
            notes=(*whitening_notes, *noise_notes),
        )
        kspace = KSpace(
            samples=torch.from_numpy(arrays.samples)[None],
            mask=torch.from_numpy(arrays.mask)[None, None],
            noise_std=noise_std,
        )
        return AssembledSlice(context, kspace)

    def _whitening(self, slice_: OpenSlice) -> tuple[np.ndarray | None, tuple[str, ...]]:
        whitening = self._prewhitening
        if whitening is None:
            return None, ()
        header = self.description
        scale = whitening.scale(slice_.dwell_us, header.noise_bandwidth)
        how = whitening.describe_scale(
            slice_.dwell_us,
            header.noise_bandwidth,
            from_header=header.relative_receiver_noise_bandwidth is not None,
        )
        return whitening.matrix * scale, (*whitening.notes, how)

    def _noise_std(self, buffer: SliceBuffer, arrays: SliceArrays) -> tuple[float, tuple[str, ...]]:
        if self._prewhitening is not None:
            return arrays.noise_factor, ()
        if self.settings.noise is NoiseSource.PREWHITENED:
            return arrays.noise_factor, ("taken as prewhitened before it came here",)
        cause = "" if self.settings.noise is NoiseSource.DATA else ", as there are no usable noise readouts"
        estimate = buffer.edge_noise_std() * arrays.noise_factor
        largest = float(np.abs(arrays.samples).max(initial=0.0))
        if largest == 0:
            return 1.0, ("all samples are zero: noise level 1 assumed",)
        if estimate < 1e-6 * largest:
            return 1e-6 * largest, (
                f"no noise found in the outermost samples{cause}: a millionth of the largest sample assumed",
            )
        return estimate, (f"noise level estimated from the outermost samples{cause}; not prewhitened",)
