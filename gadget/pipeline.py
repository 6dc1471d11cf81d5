"""A scan's messages in, image messages out: no socket is opened here, and no file but kept noise.

Server, Gadgetron entry and replay are three thin adapters round :func:`reconstruct_stream`.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gadget.assembly_settings import assembly_settings
from gadget.errors import PeerProtocolError
from gadget.finished_slice import FinishedSlice
from gadget.frame_starts import FrameStarts
from gadget.image_labels import StreamSummary
from gadget.posterior_queue import PosteriorQueue
from gadget.reconstructor import Reconstructor
from gadget.scan.assemble import AssembledSlice, SliceAssembler
from gadget.scan.buckets import readouts_of_bucket
from gadget.scan.header import ScanDescription, parse_scan_header
from gadget.scan.recon_data import readouts_of
from gadget.scan.volume import AssembledVolume
from gadget.scan.volume_partitions import CompleteAxis, complete_axis, slices_of
from gadget.series_writer import SeriesWriter, pixel_type_for
from gadget.settings import Settings
from gadget.stream_settings import StreamSettings
from gadget.streaming_ahead import Ahead
from gadget.streaming_images import CompleteSlice, CompleteVolume, ImageStage, ScanStart, Work, n_bytes
from gadget.streaming_scan import ScanDevice
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
from gadget.wire.session import is_data

logger = logging.getLogger(__name__)

AHEAD_BYTES = 64 * MIB
"""How much assembled k-space may wait for its reconstruction, and how much of images to be sent."""

_Piece = TypeVar("_Piece", bound=Work)


def reconstruct_stream(
    messages: Iterable[Message],
    settings: Settings,
    *,
    reconstructor: Reconstructor | None = None,
    summary: StreamSummary | None = None,
    on_slice: Callable[[FinishedSlice], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    silent: Callable[[], bool] | None = None,
    overlap: bool = False,
    fallback_only: str = "",
    n_skipped: int = 0,
) -> Iterator[Message]:
    """Reconstruct a scan while it comes in.

    Yields an image for each slice (and contrast, repetition, ...) as soon as it is complete, in the order in
    which slices complete. Those that wait are reconstructed together, up to ``batch_slices``. Waveforms and
    images of other origin pass through. Close is not yielded: a connection ends when its adapter says so. A
    configuration or JSON parameters among the messages change the settings of this stream, within what a peer
    may set (:mod:`gadget.peer_settings`).

    Where the settings ask for uncertainty, the posterior mean and standard deviation of each slice follow, in
    the same order: sampled step by step while nothing waits for its image, and the rest at the end.

    The attribute ``EBM_CompletedBy`` of each image counts the scan's data messages up to the one that
    completed its slice.

    Parameters
    ----------
    reconstructor
        Keep one and pass it, where several scans are reconstructed: it loads each prior once.
    on_slice
        Called for each image before it is yielded.
    cancelled
        Asked during a reconstruction, between steps of sampling, and while waiting for the device; when it
        turns true, nobody waits for the images any more.
    silent
        Whether the next of the messages is not there yet, so that taking it would wait. None: it never is, as
        in a file.
    overlap
        Whether messages are taken, and slices assembled, in a thread of their own, and images made in
        another, so that these, and what the consumer does with what is yielded, go on at the same time. Each
        waits where the next is too far behind (``AHEAD_BYTES``). Where this iterator is closed early, the
        thread that takes messages ends once their source does.
    fallback_only
        Why there is to be nothing but fallback images, made without prior and device: words for the images'
        comments. Empty: ordinary images.
    n_skipped
        Slices (and partitions of volumes) at the start of the scan whose images have left in an earlier try:
        not made again; ``image_index`` goes on from there.

    Raises
    ------
    GadgetError
        The scan cannot go on: it or the configuration is faulty, or something that is not supported. Images
        that were yielded before are good.
    """
    summary = StreamSummary() if summary is None else summary
    reconstructor = Reconstructor(settings.device) if reconstructor is None else reconstructor
    is_gone = threading.Event()

    def in_vain() -> bool:
        return is_gone.is_set() or cancelled()

    work = _Assembly(settings, reconstructor, summary, in_vain, fallback_only).work(messages)
    images = ImageStage(on_slice, in_vain, n_skipped)
    assembled = _ahead((one for one in work if one is not None), "assembly") if overlap else None
    if assembled is None:
        is_silent = _never if silent is None else silent
        yield from images.run(work, would_wait=is_silent, has_time=is_silent)
        return
    made = images.run(
        assembled,
        would_wait=assembled.would_wait,
        has_time=lambda: assembled.would_wait() and (silent is None or silent()),
    )
    answers = _ahead(made, "images")
    try:
        yield from made if answers is None else answers
    finally:
        is_gone.set()
        assembled.stop()
        if answers is not None:
            answers.stop()
            answers.join()


def _ahead(source: Iterable[_Piece], name: str) -> Ahead[_Piece] | None:
    """Start to take from a source ahead; None where the system gives no thread for that."""
    try:
        return Ahead(source, cost=n_bytes, limit=AHEAD_BYTES, name=name)
    except RuntimeError as error:
        logger.warning("The steps of this scan (%s) do not overlap: %s.", name, error)
        return None


def _never() -> bool:
    return False


class _Assembly:
    """The first half of a stream: messages in, complete slices out; its state between messages."""

    def __init__(
        self,
        settings: Settings,
        reconstructor: Reconstructor,
        summary: StreamSummary,
        cancelled: Callable[[], bool],
        fallback_only: str,
    ) -> None:
        self._asked = StreamSettings(settings)
        self._reconstructor = reconstructor
        self._summary = summary
        self._cancelled = cancelled
        self._fallback_only = fallback_only
        self._description: ScanDescription | None = None
        self._assembler: SliceAssembler | None = None
        self._n_data = 0

    def work(self, messages: Iterable[Message]) -> Iterator[Work | None]:
        """Yield what is to be done, and None after each message."""
        for message in messages:
            if isinstance(message, Close):
                break
            yield from self._take(message)
            yield None
        if self._assembler is None:
            logger.info("The stream ended without a readout.")
            return
        yield from self._complete(self._assembler.finish())
        for line in self._assembler.report():
            logger.info("%s", line)

    def _take(self, message: Message) -> Iterator[Work]:
        self._n_data += is_data(message)
        match message:
            case Acquisition():
                yield from self._readout(message)
            case Waveform() | Image() | ImageArray():
                yield message
            case AcquisitionBucket():
                yield from message.waveforms
                for readout in readouts_of_bucket(message):
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

    def _configure(self, message: ConfigFile | ConfigText | Text) -> None:
        if self._assembler is not None:
            logger.warning("A %s came after the first readout: not used.", type(message).__name__)
        else:
            self._asked.take(message)

    def _readout(self, readout: Acquisition) -> Iterator[Work]:
        if self._assembler is None:
            self._assembler, start = self._start(readout)
            yield start
        yield from self._complete(self._assembler.add(readout))

    def _start(self, readout: Acquisition) -> tuple[SliceAssembler, ScanStart]:
        """Settle what holds for the whole scan, at its first readout."""
        if self._description is None:
            raise PeerProtocolError(
                "A readout came before the scan's header; k-space cannot be laid out without it."
            )
        settled = self._asked.settle(self._description, readout)
        settings = settled.settings
        prior = None if self._fallback_only else self._reconstructor.load(settings)
        pixel_type = pixel_type_for(settings, settled.dialect, has_parameters=settled.has_parameters)
        device = ScanDevice(
            reconstructor=self._reconstructor,
            settings=settings,
            prior=prior,
            cancelled=self._cancelled,
            fallback_only=self._fallback_only,
        )
        writer = SeriesWriter(
            pixel_type,
            self._summary,
            settings.output.images,
            None if prior is None else prior.card,
            about=settled.about(),
        )
        return SliceAssembler(self._description, assembly_settings(settings)), ScanStart(
            device, writer, PosteriorQueue(device), FrameStarts(), settled.dialect
        )

    def _complete(self, found: Iterable[AssembledSlice | AssembledVolume]) -> Iterator[Work]:
        """Hand on what is complete: of a volume the slices, where it parts into such."""
        for one in found:
            if isinstance(one, AssembledSlice):
                yield CompleteSlice(one, self._n_data)
            elif complete_axis(one) is CompleteAxis.KZ:
                for partition in slices_of(one):
                    yield CompleteSlice(partition, self._n_data)
            else:
                yield CompleteVolume(one, self._n_data)
