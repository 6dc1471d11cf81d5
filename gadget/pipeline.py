"""A scan's messages in, image messages out: plain generators that open no socket, and no file but kept noise.

Server, Gadgetron entry and replay are three thin adapters round :func:`reconstruct_stream`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gadget.assembly_settings import assembly_settings
from gadget.errors import PeerProtocolError
from gadget.finished_slice import FinishedSlice, VolumePartition
from gadget.frame_starts import FrameStarts
from gadget.image_labels import NO_SERIES, StreamSummary, describe, describe_sampled
from gadget.peer_settings import has_json_parameters, settings_from_json, settings_from_xml
from gadget.posterior_queue import PosteriorQueue
from gadget.reconstructor import ImageKind, Reconstructor, SliceResult
from gadget.scan.assemble import AssembledSlice, SliceAssembler
from gadget.scan.coil_start import coil_start
from gadget.scan.header import ScanDescription, parse_scan_header
from gadget.scan.recon_data import readouts_of
from gadget.scan.volume import AssembledVolume
from gadget.scan.volume_partitions import CompleteAxis, complete_axis, slices_of
from gadget.series_writer import SeriesWriter, pixel_type_for
from gadget.settings import Settings
from gadget.volume_reconstruction import NOT_SAMPLED, reconstruct_volume
from gadget.wire.limits import MIB
from gadget.wire.messages import (
    Acquisition,
    AcquisitionBucket,
    Close,
    ConfigFile,
    ConfigText,
    Image,
    ImageArray,
    Message,
    ReconData,
    ScanHeader,
    Text,
    Waveform,
)
from gadget.wire.session import Dialect, dialect_of
from reconlib.kspace import NonuniformKSpace

logger = logging.getLogger(__name__)


def reconstruct_stream(
    messages: Iterable[Message],
    settings: Settings,
    *,
    reconstructor: Reconstructor | None = None,
    summary: StreamSummary | None = None,
    on_slice: Callable[[FinishedSlice], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    silent: Callable[[], bool] = lambda: False,
) -> Iterator[Message]:
    """Reconstruct a scan while it comes in.

    Yields an image for each slice (and contrast, repetition, ...) as soon as it is complete and its batch is
    full, in the order in which slices complete. Waveforms and images of other origin pass through. Close is
    not yielded: a connection ends when its adapter says so. A configuration or JSON parameters among the
    messages change the settings of this stream, within what a peer may set (:mod:`gadget.peer_settings`).

    Where the settings ask for uncertainty, the posterior mean and standard deviation of each slice follow, in
    the same order: sampled step by step while the source is silent, and the rest at the end, so that images
    of slices that have come are not kept waiting.

    Parameters
    ----------
    reconstructor
        Keep one and pass it, where several scans are reconstructed: it loads each prior once.
    cancelled
        Asked during a reconstruction and between steps of sampling; when it turns true, nobody waits for the
        images any more.
    silent
        Whether the next of the messages is not there yet, so that taking it would wait. A source that never
        waits, as a file, is never silent.
    on_slice
        Called for each image before it is yielded.

    Raises
    ------
    GadgetError
        The scan cannot go on: it or the configuration is faulty, or something that is not supported. Images
        that were yielded before are good.
    """
    summary = StreamSummary() if summary is None else summary
    reconstructor = Reconstructor(settings.device) if reconstructor is None else reconstructor
    stream = _Stream(settings, reconstructor, summary, on_slice, cancelled)
    try:
        for message in messages:
            if isinstance(message, Close):
                break
            yield from stream.take(message)
            yield from stream.sample(while_=silent)
        yield from stream.finish()
    finally:
        stream.give_up()


@dataclass(frozen=True, slots=True)
class _Scan:
    """What is made at the first readout, for the settings that then hold."""

    assembler: SliceAssembler
    writer: SeriesWriter
    posteriors: PosteriorQueue
    frames: FrameStarts


class _Stream:
    """The state of one stream between messages."""

    def __init__(
        self,
        settings: Settings,
        reconstructor: Reconstructor,
        summary: StreamSummary,
        on_slice: Callable[[FinishedSlice], None] | None,
        cancelled: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._reconstructor = reconstructor
        self._summary = summary
        self._on_slice = on_slice
        self._cancelled = cancelled
        self._dialect = Dialect.MRD
        self._has_parameters = False
        self._description: ScanDescription | None = None
        self._scan: _Scan | None = None
        self._waiting: list[AssembledSlice] = []

    def take(self, message: Message) -> Iterator[Message]:
        match message:
            case Acquisition():
                yield from self._readout(message)
            case Waveform() | Image() | ImageArray():
                yield message
            case AcquisitionBucket():
                yield from message.waveforms
                for readout in _readouts_of(message):
                    yield from self._readout(readout)
            case ReconData():
                for readout in readouts_of(message):
                    yield from self._readout(readout)
            case ScanHeader():
                self._description = parse_scan_header(message.text)
            case ConfigFile() | ConfigText() | Text():
                self._configure(message)
            case _:
                logger.warning("A %s came in the middle of a scan: not used.", type(message).__name__)

    def sample(self, while_: Callable[[], bool]) -> Iterator[Message]:
        """Sample posteriors as long as there is one, somebody waits for it, and the condition holds."""
        if self._scan is None:
            return
        posteriors = self._scan.posteriors
        while posteriors and not self._cancelled() and while_():
            for sampled in posteriors.step():
                yield from self._scan.writer.posterior(sampled)
                if sampled.images() is None:
                    yield from self._text(sampled.finished, describe_sampled(sampled))

    def finish(self) -> Iterator[Message]:
        if self._scan is None:
            logger.info("The stream ended without a readout.")
            return
        for assembled in self._scan.assembler.finish():
            yield from self._add(self._scan, assembled)
        yield from self._flush(self._scan)
        for line in self._scan.assembler.report():
            logger.info("%s", line)
        yield from self.sample(while_=lambda: True)

    def give_up(self) -> None:
        """Forget what is still to be sampled: the stream is over."""
        if self._scan is not None and (n_slices := len(self._scan.posteriors)):
            logger.warning(
                "The stream ended before the uncertainty of its last %d image(s) was done.", n_slices
            )
            self._scan.posteriors.clear()

    def _configure(self, message: ConfigFile | ConfigText | Text) -> None:
        if self._scan is not None:
            logger.warning("A %s came after the first readout: not used.", type(message).__name__)
        elif isinstance(message, ConfigFile):
            logger.info("The peer names a configuration; the settings of this program hold.")
        elif isinstance(message, ConfigText):
            self._dialect = dialect_of(message)
            self._settings = settings_from_xml(self._settings, message.text)
        else:
            self._has_parameters |= has_json_parameters(message.text)
            self._settings = settings_from_json(self._settings, message.text)

    def _readout(self, readout: Acquisition) -> Iterator[Message]:
        if self._scan is None:
            self._scan = self._start()
        for assembled in self._scan.assembler.add(readout):
            yield from self._add(self._scan, assembled)

    def _start(self) -> _Scan:
        """Settle what holds for the whole scan, at its first readout."""
        if self._description is None:
            raise PeerProtocolError(
                "A readout came before the scan's header; k-space cannot be laid out without it."
            )
        settings = self._settings
        prior = self._reconstructor.load(settings)
        pixel_type = pixel_type_for(settings, self._dialect, has_parameters=self._has_parameters)
        return _Scan(
            SliceAssembler(self._description, assembly_settings(settings)),
            SeriesWriter(pixel_type, self._summary, settings.output.images, prior.card),
            PosteriorQueue(self._reconstructor, settings),
            FrameStarts(),
        )

    def _add(self, scan: _Scan, assembled: AssembledSlice | AssembledVolume) -> Iterator[Message]:
        """Take what is complete; a volume first waits for the slices before it."""
        if isinstance(assembled, AssembledSlice):
            yield from self._add_slice(scan, assembled)
            return
        yield from self._flush(scan)
        if complete_axis(assembled) is CompleteAxis.KZ:
            for one in slices_of(assembled):
                yield from self._add_slice(scan, one)
        else:
            yield from self._add_volume(scan, assembled)

    def _add_volume(self, scan: _Scan, volume: AssembledVolume) -> Iterator[Message]:
        for partition, result in reconstruct_volume(
            volume, self._reconstructor, self._settings, self._cancelled
        ):
            finished, messages = self._send(scan, partition, result)
            yield from messages
        if self._settings.posterior.enabled:
            scan.writer.not_sampled(volume.context, NOT_SAMPLED)
            yield from self._text(finished, f"{NO_SERIES}: {NOT_SAMPLED}")

    def _add_slice(self, scan: _Scan, assembled: AssembledSlice) -> Iterator[Message]:
        """Let a slice wait until its batch is full; a frame starts from the one before it."""
        if assembled.series is not None:
            yield from self._flush(scan)
            maps, frame = scan.frames.start(assembled)
            yield from self._reconstruct(scan, [frame], maps)
            return
        if self._waiting and not _fit_together(self._waiting[0], assembled):
            yield from self._flush(scan)
        self._waiting.append(assembled)
        if len(self._waiting) >= self._settings.batch_slices:
            yield from self._flush(scan)

    def _flush(self, scan: _Scan) -> Iterator[Message]:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        maps, batch = coil_start(batch) if self._settings.coils == "joint" else (None, batch)
        yield from self._reconstruct(scan, batch, maps)

    def _reconstruct(
        self, scan: _Scan, batch: list[AssembledSlice], maps: NDArray[np.complex64] | None
    ) -> Iterator[Message]:
        results = self._reconstructor(
            [one.kspace for one in batch], self._settings, self._cancelled, initial_coils=maps
        )
        finished = []
        for assembled, result in zip(batch, results, strict=True):
            if assembled.series is not None:
                scan.frames.keep(assembled, result)
            one, messages = self._send(scan, assembled, result)
            finished.append(one)
            yield from messages
        if self._settings.posterior.enabled:
            yield from self._sample_later(scan, finished)

    def _send(
        self, scan: _Scan, source: AssembledSlice | VolumePartition, result: SliceResult
    ) -> tuple[FinishedSlice, list[Message]]:
        """Make the images of a slice or partition, and the words that go with it."""
        finished = scan.writer.reconstruction(source, result)
        if self._on_slice is not None:
            self._on_slice(finished)
        messages: list[Message] = [finished.image, *finished.others]
        if result.kind is ImageKind.FALLBACK:
            messages += self._text(finished, describe(result))
        return finished, messages

    def _sample_later(self, scan: _Scan, finished: list[FinishedSlice]) -> Iterator[Message]:
        """Let slices wait for their sampling; where too much waits, sample first until there is room."""
        for one in finished:
            if one.result.kind is ImageKind.FALLBACK:
                scan.writer.not_sampled(one.slice.context, "the image is a fallback")
        posteriors = scan.posteriors
        posteriors.add([one for one in finished if one.result.kind is not ImageKind.FALLBACK])
        if posteriors.is_full:
            logger.info(
                "%d images wait for their uncertainty (%.0f MiB): it goes first until there is room.",
                len(posteriors),
                posteriors.n_bytes / MIB,
            )
            yield from self.sample(while_=lambda: posteriors.is_full)

    def _text(self, finished: FinishedSlice, words: str) -> Iterator[Text]:
        """Tell the peer about an image; Gadgetron takes no text: there, comment and meta have to say it."""
        if self._dialect is not Dialect.GADGETRON:
            number, label = int(finished.image.header["image_index"]), finished.slice.context.label()
            yield Text(f"gadgetron-ebm: image {number} ({label}): {words}")


def _readouts_of(bucket: AcquisitionBucket) -> Iterator[Acquisition]:
    """Yield each readout of a bucket once: reference lines that are also data stand in both lists.

    Reference lines come first, since the last data line completes a slice.
    """
    data = {readout.header.tobytes() for readout in bucket.data}
    yield from (readout for readout in bucket.reference if readout.header.tobytes() not in data)
    yield from bucket.data


def _fit_together(first: AssembledSlice, second: AssembledSlice) -> bool:
    a, b = first.kspace, second.kspace
    is_alike = type(a) is type(b) and a.samples.shape == b.samples.shape and a.noise_std == b.noise_std
    if isinstance(a, NonuniformKSpace) and isinstance(b, NonuniformKSpace):
        is_alike &= a.shape == b.shape
    return is_alike and first.context.grid_fov_mm == second.context.grid_fov_mm
