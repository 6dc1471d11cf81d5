"""Readouts in, complete slices and slabs of k-space out, as soon as they are complete.

When is a slice complete? The rule, in one place:

1. A readout with **LAST_IN_SLICE** closes its slice, **LAST_IN_REPETITION** all slices of its repetition,
   **LAST_IN_MEASUREMENT** all slices, if they have what the header announces: every average, the calibration
   lines of an embedded calibration, and for the readout's own slice 60 % of the imaging lines, for the others
   all of them (flags come first when readouts are sorted otherwise). Some sequences set them after each shot:
   once one of a slice came with fewer, its later ones close it with all of the lines only. Of a slab three
   quarters of that (elliptical scans).
2. **All lines came**: an imaging readout closes its slice when no announced line of no announced average is
   missing. Only where nothing else can follow: in accelerated scans all announced lines of an embedded
   calibration (or any of a separate one) have to be there, or the mode is one without any (interleaved);
   noise readouts, where they are used, came before; and no LAST flag came too early for its slice, as in a
   stream in another order than that of acquisition.
3. The first readout of a **later repetition** closes the same slice of earlier ones, if they have what a LAST
   flag would ask of them.
4. **The end of the stream** closes what is still open; a slice without what the header announces says so.
   Where the last of the announced averages is in no readout of the scan, the header is taken to give their
   number, as some converters do, with a warning.

Readouts of non-Cartesian encodings are no lines: :mod:`gadget.scan.trajectory_slices` has their rules.

The start of another slice or contrast closes nothing: scans are interleaved. Lines that come after their
slice was closed are never dropped silently: imaging lines make an image of their own, labelled;
calibration-only lines are counted in the report, and used for the coil maps of later images.
"""

import logging
from collections import Counter
from dataclasses import dataclass, replace

import torch

from gadget.errors import ScanError
from gadget.scan.assembled import AssembledSlice as AssembledSlice  # what comes out of here
from gadget.scan.buffer_survey import echo_offset
from gadget.scan.calibration_store import CalibrationKey, CalibrationStore
from gadget.scan.coil_compression import CompressionChoice
from gadget.scan.context import ScanContext
from gadget.scan.describe import describe_slice, echo_warnings
from gadget.scan.header import Encoding, ScanDescription
from gadget.scan.noise import NoiseSource as NoiseSource  # part of the settings, imported from here
from gadget.scan.noise_estimate import noise_std_from_data
from gadget.scan.noise_level import noise_level
from gadget.scan.open_slice import TRUSTED_PART, OpenSlice, SliceKey
from gadget.scan.readout_kinds import ReadoutKind, kind_of_readout
from gadget.scan.readout_labels import ReadoutLabels, labels_of
from gadget.scan.receiver import CoilMap, NoiseStore, Receiver
from gadget.scan.slice_buffer import SliceArrays, SliceBuffer
from gadget.scan.trajectory_choice import TrajectoryChoice
from gadget.scan.trajectory_slices import TrajectorySlices
from gadget.scan.volume import AssembledVolume
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition
from reconlib.kspace import KSpace

logger = logging.getLogger(__name__)

_LAST_BITS = Flag.LAST_IN_SLICE.bit | Flag.LAST_IN_REPETITION.bit | Flag.LAST_IN_MEASUREMENT.bit


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblySettings:
    """Choices of the assembly."""

    noise: NoiseSource = NoiseSource.READOUTS
    noise_store: NoiseStore | None = None
    """Where noise is kept for later scans, and found; None: nowhere."""
    coil_compression: CompressionChoice = CompressionChoice()
    use_calibration_lines: bool = True
    """Whether calibration-only lines of the same k-space enter the data; else they are for coil maps only."""
    trajectory: TrajectoryChoice = TrajectoryChoice()
    keep_averages: bool = False
    """Whether every average makes an image of its own; otherwise their mean does."""
    max_open_bytes: int = 16 * 2**30
    """Memory for slices that are being received."""


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
        self._receiver = Receiver(
            description,
            source=self.settings.noise,
            store=self.settings.noise_store,
            compression=self.settings.coil_compression,
        )
        self._trajectories = TrajectorySlices(
            description,
            self._receiver,
            self.settings.noise,
            self.settings.trajectory,
            averages_kept=self.settings.keep_averages,
        )
        self._open: dict[SliceKey, OpenSlice] = {}
        self._closed: set[SliceKey] = set()
        self._calibrations = CalibrationStore()
        self._calibrated: set[tuple[int, int]] = set()
        self._phase_corrected: set[int] = set()
        self._warned: set[str] = set()
        self._unused: Counter[str] = Counter()

    def add(self, acquisition: Acquisition) -> tuple[AssembledSlice | AssembledVolume, ...]:
        """Take one readout; return the slices and slabs that are complete with it."""
        labels = labels_of(acquisition.header)
        self._n_readouts += 1
        kind = kind_of_readout(labels.flags)
        self.counts[kind] += 1
        done: list[SliceKey] = []
        others: list[AssembledSlice] = []
        if kind is ReadoutKind.NOISE:
            self._add_noise(acquisition, labels)
            return ()
        if kind is ReadoutKind.IMAGE:
            encoding = self._supported(labels)
            if encoding.is_cartesian:
                done += self._add_image(acquisition, labels, encoding)
            else:
                others += self._add_trajectory(acquisition, labels, encoding)
        elif kind is ReadoutKind.CALIBRATION:
            self._add_calibration(acquisition, labels)
        elif kind is ReadoutKind.PHASE_CORRECTION:
            self._phase_corrected.add(labels.encoding_space_ref)
        if labels.flags & _LAST_BITS:
            own = self._key(labels)
            done += self._closed_by(labels.flags, own)
            others += self._trajectories.closed_by(labels.flags, own)
        if not (done or others):
            return ()
        for one in others:
            self._warn(one.context)
        return (*(self._emit(key, is_complete=True) for key in dict.fromkeys(done)), *others)

    def finish(self) -> tuple[AssembledSlice | AssembledVolume, ...]:
        """Return the slices and slabs that are still open, at the end of the stream."""
        self._receiver.finish()
        slices: list[AssembledSlice | AssembledVolume] = []
        self._count_averages()
        # Slices without images stay until the others are out: the latter may use their calibration.
        for key in sorted(self._open, key=lambda key: (self._open[key].buffer is None, key)):
            slice_ = self._open[key]
            if slice_.buffer is None:
                self._unused["readouts of lines outside the matrix"] += slice_.n_outside
                del self._open[key]
                continue
            part = TRUSTED_PART if slice_.was_flagged else 1.0
            is_complete = slice_.has_all_announced(averages_kept=self.settings.keep_averages, part=part)
            slices.append(self._emit(key, is_complete=is_complete))
        for one in self._trajectories.finish():
            self._warn(one.context)
            slices.append(one)
        return tuple(slices)

    def _count_averages(self) -> None:
        """Tell the slices where the header announces one average more than any readout has."""
        for index in {key.encoding for key in self._open} - {key.encoding for key in self._closed}:
            slices = [slice_ for key, slice_ in self._open.items() if key.encoding == index]
            limit = slices[0].encoding.limits.get("average")
            last = max((average for slice_ in slices for average in slice_.averages), default=-1)
            if limit is not None and last == limit.maximum - 1 >= limit.minimum:
                for slice_ in slices:
                    slice_.lacks_last_average = True

    def report(self) -> tuple[str, ...]:
        """Say how many readouts of each kind came, and which were not used. No patient data."""
        used = (ReadoutKind.IMAGE, ReadoutKind.CALIBRATION, ReadoutKind.NOISE)
        lines = [
            ", ".join(f"{self.counts[kind]} {kind.value}" for kind in used if self.counts[kind]) + " readouts"
        ]
        skipped = [f"{n} {kind.value}" for kind, n in self.counts.items() if kind not in used]
        if skipped:
            lines.append("not image data, skipped: " + ", ".join(skipped))
        unused = self._unused + self._trajectories.unused
        closed = {key.slice for key in self._closed}
        for number, n_readouts in self._calibrations.unused().items():
            unused[
                "calibration-only readouts after their slice was complete"
                if number in closed
                else "calibration-only readouts without imaging readouts"
            ] += n_readouts
        lines += [f"not used: {n} {what}" for what, n in unused.items() if n]
        return tuple(lines)

    # Readouts in

    def _name(self, labels: ReadoutLabels) -> str:
        return f"Readout {self._n_readouts} of the stream (scan_counter {labels.scan_counter})"

    def _add_noise(self, acquisition: Acquisition, labels: ReadoutLabels) -> None:
        if not self._receiver.add_noise(acquisition, self._name(labels)):
            self._unused["noise readouts after the first slice (all slices are whitened alike)"] += 1

    def _supported(self, labels: ReadoutLabels) -> Encoding:
        encoding = self.description.encoding_of(labels.encoding_space_ref)
        refusal = self._refusals[encoding.index]
        if refusal is not None:
            raise ScanError(refusal)
        return encoding

    def _add_trajectory(
        self, acquisition: Acquisition, labels: ReadoutLabels, encoding: Encoding
    ) -> tuple[AssembledSlice, ...]:
        return self._trajectories.add(
            acquisition,
            labels,
            self._key(labels),
            self._name(labels),
            encoding,
            bytes_left=self._bytes_left(),
            can_be_last=not self._awaits_noise(),
        )

    def _add_image(
        self, acquisition: Acquisition, labels: ReadoutLabels, encoding: Encoding
    ) -> list[SliceKey]:
        key, name = self._key(labels), self._name(labels)
        acquisition = self._receiver.check(acquisition, labels, key, name)
        done = []
        slice_ = self._open.get(key)
        if slice_ is None:
            done = self._earlier_repetitions(key)
            slice_ = self._open_slice(key, encoding)
        if slice_.buffer is None:
            slice_.max_bytes = self._bytes_left() + slice_.bytes_held
        slice_.add_image(acquisition, labels, name)
        if len(slice_.directions) == 2 and encoding.index in self._phase_corrected:
            raise ScanError(
                f"{name} is read in another direction than others of its slice, and there are "
                "phase correction readouts: this is EPI, whatever the header says, which is not supported "
                "yet, as it needs regridding and ghost correction first."
            )
        if not slice_.was_flagged and self._came_in_full(key, slice_):
            done.append(key)
        return done

    def _came_in_full(self, key: SliceKey, slice_: OpenSlice) -> bool:
        """Whether all announced lines of a slice came, and nothing that belongs to it can follow."""
        if not slice_.all_lines_came(averages_kept=self.settings.keep_averages):
            return False
        if self._awaits_noise():
            return False
        encoding = slice_.encoding
        step_1, step_2 = encoding.acceleration
        if step_1 * (step_2 if slice_.is_3d else 1) == 1 or encoding.calibration_mode == "interleaved":
            return True
        if encoding.calibration_mode == "embedded":
            return slice_.has_reference_lines(self.description.reference_lines)
        return any(number == key.slice for _, number in self._calibrated)

    def _awaits_noise(self) -> bool:
        """Whether noise readouts are to be used, none came, and the header names no other measurement's."""
        if self.settings.noise is not NoiseSource.READOUTS or self.counts[ReadoutKind.NOISE]:
            return False
        return not any(kind.strip().lower() == "noise" for kind in self.description.dependencies)

    def _add_calibration(self, acquisition: Acquisition, labels: ReadoutLabels) -> None:
        index = labels.encoding_space_ref
        encoding = self.description.encoding_of(index)
        key = self._key(labels)
        self._calibrated.add((index, key.slice))
        if self._refusals[index] is not None:
            self._unused["calibration-only readouts of an encoding that is not supported"] += 1
            return
        if not encoding.is_cartesian:
            self._unused["calibration-only readouts of a non-Cartesian encoding (none are needed)"] += 1
            return
        name = self._name(labels)
        acquisition = self._receiver.check(acquisition, labels, key, name)
        self._calibrations.add(acquisition, encoding)
        is_late = key in self._closed and key not in self._open
        if self.settings.use_calibration_lines and not is_late:
            slice_ = self._open.get(key) or self._open_slice(key, encoding)
            slice_.add_calibration(acquisition, labels, name)
        if self._bytes_left() < 0:
            raise ScanError(
                f"{name}: calibration-only readouts that wait for imaging readouts of "
                f"their slice fill the {self.settings.max_open_bytes / 2**30:.1f} GiB for slices that "
                "are being received."
            )

    def _key(self, labels: ReadoutLabels) -> SliceKey:
        return SliceKey(
            encoding=labels.encoding_space_ref,
            repetition=labels.repetition,
            set=labels.set,
            phase=labels.phase,
            contrast=labels.contrast,
            average=labels.average if self.settings.keep_averages else 0,
            slice=labels.slice,
        )

    def _open_slice(self, key: SliceKey, encoding: Encoding) -> OpenSlice:
        slice_ = OpenSlice(encoding=encoding, max_bytes=0, is_late=key in self._closed)
        self._open[key] = slice_
        return slice_

    def _bytes_left(self) -> int:
        held = sum(slice_.bytes_held for slice_ in self._open.values())
        held += self._trajectories.bytes_held
        return self.settings.max_open_bytes - held - self._calibrations.n_bytes

    # Slices out

    def _is_complete(self, key: SliceKey, part: float) -> bool:
        slice_ = self._open[key]
        if not slice_.has_all_announced(averages_kept=self.settings.keep_averages, part=part):
            return False
        waits = self.settings.use_calibration_lines and slice_.awaits_calibration()
        return not waits or (key.encoding, key.slice) in self._calibrated

    def _closed_by(self, flags: int, own: SliceKey) -> list[SliceKey]:
        done = []
        for key in sorted(self._open):
            if not key.is_meant_by(flags, own):
                continue
            slice_ = self._open[key]
            is_trusted = key == own and not slice_.was_flagged_early
            if self._is_complete(key, TRUSTED_PART if is_trusted else 1.0):
                done.append(key)
            if key == own:
                slice_.was_flagged = True
                slice_.was_flagged_early |= not slice_.has_most_lines()
        return done

    def _earlier_repetitions(self, new: SliceKey) -> list[SliceKey]:
        return [
            key
            for key in sorted(self._open)
            if key.repetition < new.repetition
            and key.same_but_repetition(new)
            and self._is_complete(key, TRUSTED_PART)
        ]

    def _emit(self, key: SliceKey, *, is_complete: bool) -> AssembledSlice | AssembledVolume:
        slice_ = self._open.pop(key)
        self._closed.add(key)
        buffer = slice_.buffer
        if buffer is None:
            raise RuntimeError("a slice without imaging readouts cannot be complete")
        slice_.settle()
        self._count(slice_, buffer)
        offset = echo_offset(buffer)
        coil_map = self._receiver.coil_map(key, slice_.dwell_us)
        arrays = buffer.arrays(coil_map.matrix, is_3d=slice_.is_3d)
        noise_std, noise_notes = self._noise_std(buffer, arrays, coil_map)
        samples, coil_map = self._receiver.compressed((key.encoding, key.slice), arrays.samples, coil_map)
        arrays = replace(arrays, samples=samples)
        recon = slice_.encoding.recon
        calibration, calibration_notes = self._calibrations.lines_for(
            slice_,
            matrix=coil_map.matrix,
            thickness_mm=recon.fov_mm[2] / (1 if slice_.is_3d else recon.matrix[2]),
            has_own=slice_.has_calibration,
        )
        context = describe_slice(
            key,
            slice_,
            buffer,
            arrays,
            self.description,
            is_complete=is_complete,
            is_prewhitened=coil_map.is_white,
            warnings=(*slice_.warnings(), *echo_warnings(slice_, buffer, offset)),
            notes=(*coil_map.notes, *noise_notes, *calibration_notes),
        )
        self._warn(context)
        if slice_.is_3d:
            return AssembledVolume(context, arrays.samples, arrays.mask, noise_std, calibration)
        kspace = KSpace(
            samples=torch.from_numpy(arrays.samples)[None],
            mask=torch.from_numpy(arrays.mask)[None, None],
            noise_std=noise_std,
        )
        return AssembledSlice(context, kspace, calibration)

    def _count(self, slice_: OpenSlice, buffer: SliceBuffer) -> None:
        self._unused["readouts of lines outside the matrix"] += slice_.n_outside
        self._unused["calibration-only readouts of lines that imaging readouts cover"] += (
            slice_.n_calibration_covered + buffer.n_calibration_replaced
        )
        kind = CalibrationKey.of(buffer.nearest_header)
        self._calibrations.entered_data(kind, slice_.n_calibration_taken)

    def _warn(self, context: ScanContext) -> None:
        """Log each warning of a scan once, with the first image that it concerns."""
        for warning in context.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                logger.warning("%s: %s.", context.label(), warning)

    def _noise_std(
        self, buffer: SliceBuffer, arrays: SliceArrays, coil_map: CoilMap
    ) -> tuple[float, tuple[str, ...]]:
        def estimate() -> float:
            edges = buffer.edge_noise_std() * arrays.noise_factor
            return edges if arrays.counts_differ else noise_std_from_data(edges, arrays.samples, arrays.mask)

        return noise_level(
            self.settings.noise,
            coil_map,
            self._receiver.why_no_noise,
            known=arrays.noise_factor,
            estimate=estimate,
            samples=arrays.samples,
        )
