"""Read a file from end to end, and gather what is in it."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget.counted import counted
from gadget.errors import FileError, ScanError
from gadget.inspection.coils import CoilTally
from gadget.inspection.content import (
    EncodingContent,
    FileGroup,
    Inspection,
    Vector,
    WaveformGroup,
)
from gadget.inspection.groups import file_groups
from gadget.inspection.header import patient_of, scan_header, system_of
from gadget.inspection.outcome import DryRun
from gadget.inspection.readouts import COMPRESSED, ReadoutTally, kinds_of
from gadget.inspection.recordings import GroupRecording, Recording, StreamRecording
from gadget.inspection.sampling import EncodingSampling, SamplingTally
from gadget.inspection.trajectories import TrajectoryTally
from gadget.scan.coil_identity import identify
from gadget.scan.header import ScanDescription, Space
from gadget.scan.readout_kinds import ReadoutKind
from gadget.scan_file import DEFAULT_GROUP, ReadoutBlock, count_readouts, open_scan, refuse_group_of_stream
from gadget.scan_groups import scan_group
from gadget.spool.stream_file import is_stream
from gadget.wire.messages import Acquisition

EXAMPLES = 3
"""Faults of one kind that are told one by one."""


class Inspector:
    """Inspects one group of a file.

    What is wrong with a file never ends the inspection: it is told among the faults, and the rest goes on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sampling: dict[int, EncodingSampling] = {}
        """By encoding, for the pictures."""
        self.trajectory_points: NDArray[np.float32] | None = None
        """Some of the points, (point, dimension), for the pictures."""
        self._faults: list[str] = []
        self._similar: Counter[str] = Counter()
        self._is_whole = True

    def inspect(
        self,
        group: str | None = None,
        *,
        with_patient: bool = False,
        on_readouts: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Inspection:
        """Inspect a group: by default 'dataset', or else the first one that holds a scan or a header.

        Parameters
        ----------
        with_patient
            Whether to return what the header says about subject, study and measurement.
        on_readouts
            Called for each block that was read, with the readouts so far, and all.

        Raises
        ------
        FileError
            The file cannot be opened, is no HDF5 file, or has no group of this name.
        """
        if is_stream(self.path):
            refuse_group_of_stream(self.path, group or DEFAULT_GROUP)
            n_readouts = count_readouts(self.path)
            the_only = FileGroup(name=DEFAULT_GROUP, kind="scan", holds="a stream", n_readouts=n_readouts)
            return self._inspected(
                StreamRecording(self.path),
                (the_only,),
                DEFAULT_GROUP,
                with_patient=with_patient,
                on_readouts=on_readouts,
            )
        with open_scan(self.path) as file:
            groups = file_groups(file)
            name = _chosen(groups) if group is None else group.strip("/")
            recording = None if name is None else GroupRecording(scan_group(file, self.path, name), self.path)
            return self._inspected(
                recording, groups, name, with_patient=with_patient, on_readouts=on_readouts
            )

    def _inspected(
        self,
        recording: Recording | None,
        groups: tuple[FileGroup, ...],
        name: str | None,
        *,
        with_patient: bool,
        on_readouts: Callable[[int, int], None],
    ) -> Inspection:
        text = description = None
        if recording is None:
            self._faults.append("The file has no group with readouts or with an XML header.")
        else:
            text, description = self._header(recording)
        encodings = () if description is None else description.encodings
        readouts, coils = ReadoutTally(), CoilTally()
        sampling, trajectory = SamplingTally(encodings), TrajectoryTally()
        dry_run = DryRun(description, self._faults[0] if self._faults else None)
        n_readouts = next((one.n_readouts for one in groups if one.name == name), 0)
        first = None
        try:
            for block in recording.readouts() if recording is not None else ():
                kinds = kinds_of(block.headers["flags"])
                readouts.add(block.headers, kinds)
                sampling.add(block.headers, kinds)
                for acquisition, kind in self._acquisitions(block, kinds, dry_run):
                    dry_run.add(acquisition)
                    trajectory.add(acquisition.trajectory)
                    if kind is ReadoutKind.NOISE:
                        coils.add_noise(acquisition.data, float(acquisition.header["sample_time_us"]))
                    elif kind is ReadoutKind.IMAGE:
                        first = acquisition if first is None else first
                        coils.add_image(acquisition.data)
                on_readouts(readouts.n_readouts, n_readouts)
        except (FileError, ScanError) as error:
            self._broken(error)
            dry_run.refuse(str(error))
        waveforms = () if recording is None else self._waveforms(recording)
        if recording is not None and (broken_off := recording.broken_off()):
            self._broken(FileError(broken_off))
        self._note_readouts(readouts, sampling, coils, description)
        self.sampling, self.trajectory_points = sampling.encodings, trajectory.points()
        names = _coil_names(first, description)
        return Inspection(
            file=str(self.path),
            n_bytes=self.path.stat().st_size,
            groups=groups,
            group=name,
            n_readouts=readouts.n_readouts,
            is_whole=self._is_whole,
            faults=tuple(self._faults),
            system=None if description is None else system_of(description),
            encodings=_encodings(description, readouts),
            readouts=readouts.groups(),
            flags=readouts.flags(),
            sampling=sampling.patterns(),
            coils=coils.coils(names),
            noise=coils.noise(),
            trajectory=trajectory.ranges(),
            waveforms=waveforms,
            geometry=readouts.geometry(),
            times=readouts.times(),
            outcome=dry_run.outcome(),
            patient=patient_of(text) if with_patient and text is not None else None,
        )

    def _header(self, recording: Recording) -> tuple[str | None, ScanDescription | None]:
        try:
            text = recording.header()
        except (FileError, ScanError) as error:
            self._broken(error)
            return None, None
        # As a message it would end at the first NUL.
        text = text.partition("\0")[0]
        description, fault = scan_header(text)
        if fault is not None:
            self._faults.append(fault)
        return text, description

    def _broken(self, error: Exception) -> None:
        self._is_whole &= not isinstance(error, FileError)
        self._faults.append(str(error))

    def _acquisitions(
        self, block: ReadoutBlock, kinds: NDArray[Any], dry_run: DryRun
    ) -> Iterator[tuple[Acquisition, Any]]:
        """Yield the readouts of a block whose samples fit their header, with their kinds."""
        for number in range(len(block)):
            try:
                yield block.acquisition(number), kinds[number]
            except ScanError as error:
                dry_run.refuse(str(error))
                self._similar["readouts do not fit their headers"] += 1
                if self._similar["readouts do not fit their headers"] <= EXAMPLES:
                    self._faults.append(str(error))

    def _waveforms(self, recording: Recording) -> tuple[WaveformGroup, ...]:
        found: dict[tuple[int, int, float], list[int]] = {}
        try:
            for waveform in recording.waveforms():
                header = waveform.header
                key = (
                    int(header["waveform_id"]),
                    int(header["channels"]),
                    float(header["sample_time_us"]),
                )
                counts = found.setdefault(key, [0, 0])
                counts[0] += 1
                counts[1] += int(header["number_of_samples"])
        except (FileError, ScanError) as error:
            self._broken(error)
        return tuple(
            WaveformGroup(
                waveform_id=key[0], n_channels=key[1], sample_time_us=key[2], n_waveforms=n, n_samples=total
            )
            for key, (n, total) in sorted(found.items())
        )

    def _note_readouts(
        self,
        readouts: ReadoutTally,
        sampling: SamplingTally,
        coils: CoilTally,
        description: ScanDescription | None,
    ) -> None:
        n_bad = self._similar["readouts do not fit their headers"]
        if n_bad > EXAMPLES:
            self._faults.append(f"... and {n_bad - EXAMPLES} more readouts that do not fit their headers.")
        n_encodings = len(description.encodings) if description is not None else 0
        strange = [index for index in readouts.encodings if index >= n_encodings]
        if description is not None and strange:
            self._faults.append(
                f"Readouts name the encoding(s) {', '.join(map(str, strange))}, but the header has "
                f"{n_encodings}, counted from 0."
            )
        for index, one in sorted(sampling.encodings.items()):
            if one.n_outside:
                self._faults.append(
                    f"{_readouts(one.n_outside)} of encoding {index} with a line or partition outside the "
                    "matrix."
                )
            if one.n_unplaced:
                self._faults.append(
                    f"{_readouts(one.n_unplaced)} of encoding {index} with samples that do not fit the "
                    "columns of the matrix."
                )
        if sampling.n_too_large:
            self._faults.append(
                f"{_readouts(sampling.n_too_large)} with counters too large for any matrix, not drawn."
            )
        if coils.n_not_finite:
            self._faults.append(f"{_readouts(coils.n_not_finite)} with NaN or infinite numbers.")
        n_compressed = sum(group.n_readouts for group in readouts.groups() if group.kind == COMPRESSED)
        if n_compressed:
            self._faults.append(
                f"{_readouts(n_compressed)} with compressed samples, which mean nothing here."
            )


def _readouts(n: int) -> str:
    return counted(n, "readout")


def _chosen(groups: tuple[FileGroup, ...]) -> str | None:
    """Return the group to inspect: a scan before a header alone, 'dataset' before others."""
    for kind in ("scan", "header"):
        names = [group.name for group in groups if group.kind == kind]
        if names:
            return DEFAULT_GROUP if DEFAULT_GROUP in names else names[0]
    return None


def _coil_names(first: Acquisition | None, description: ScanDescription | None) -> tuple[str, ...]:
    if first is None or description is None:
        return ()
    return identify(first.header, first.data.shape[0], description.coil_labels).names


def _encodings(description: ScanDescription | None, readouts: ReadoutTally) -> tuple[EncodingContent, ...]:
    headers = {} if description is None else {one.index: one for one in description.encodings}
    encodings = []
    for index in sorted({*headers, *readouts.encodings}):
        header = headers.get(index)
        encodings.append(
            EncodingContent(
                index=index,
                trajectory=None if header is None else header.trajectory,
                encoded_matrix=None if header is None else header.encoded.matrix,
                encoded_fov_mm=None if header is None else header.encoded.fov_mm,
                recon_matrix=None if header is None else header.recon.matrix,
                recon_fov_mm=None if header is None else header.recon.fov_mm,
                encoded_pixel_mm=None if header is None else _pixel_mm(header.encoded),
                recon_pixel_mm=None if header is None else _pixel_mm(header.recon),
                acceleration=None if header is None else header.acceleration,
                calibration_mode=None if header is None else header.calibration_mode,
                multiband_factor=None if header is None else header.multiband_factor,
                echo_train_length=None if header is None else header.echo_train_length,
                loops=readouts.loops(index, header),
                refusal=None if header is None else header.refusal(),
            )
        )
    return tuple(encodings)


def _pixel_mm(space: Space) -> Vector:
    x, y, z = (fov / size for fov, size in zip(space.fov_mm, space.matrix, strict=True))
    return x, y, z
