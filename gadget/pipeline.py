"""A scan's messages in, image messages out: plain generators that open no socket and no file.

Server, Gadgetron entry and replay are three thin adapters round :func:`reconstruct_stream`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gadget.errors import PeerProtocolError, ScanError, SettingsError
from gadget.image_labels import StreamSummary, describe, image_meta, log_line
from gadget.peer_settings import has_json_parameters, settings_from_json, settings_from_xml
from gadget.reconstructor import ImageKind, Reconstructor, SliceResult
from gadget.scan.assemble import AssembledSlice, AssemblySettings, NoiseSource, SliceAssembler
from gadget.scan.header import ScanDescription, parse_scan_header
from gadget.series import LARGEST_INTEGER_PIXEL, PixelType, reconstruction_image
from gadget.settings import Settings
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

logger = logging.getLogger(__name__)

SERIES_INDEX = 1
"""``image_series_index`` of the magnitude images; images of other origin keep theirs."""


@dataclass(frozen=True, slots=True)
class FinishedSlice:
    """An image that has just left, for callers that keep more than the image (coil maps, pictures)."""

    slice: AssembledSlice
    result: SliceResult
    image: Image


def reconstruct_stream(
    messages: Iterable[Message],
    settings: Settings,
    *,
    reconstructor: Reconstructor | None = None,
    summary: StreamSummary | None = None,
    on_slice: Callable[[FinishedSlice], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Message]:
    """Reconstruct a scan while it comes in.

    Yields an image for each slice (and contrast, repetition, ...) as soon as it is complete and its batch is
    full, in the order in which slices complete. Waveforms and images of other origin pass through. Close is
    not yielded: a connection ends when its adapter says so. A configuration or JSON parameters among the
    messages change the settings of this stream, within what a peer may set (:mod:`gadget.peer_settings`).

    Parameters
    ----------
    reconstructor
        Keep one and pass it, where several scans are reconstructed: it loads each prior once.
    cancelled
        Asked during a reconstruction; when it turns true, nobody waits for the images any more.
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
    for message in messages:
        if isinstance(message, Close):
            break
        yield from stream.take(message)
    yield from stream.finish()


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
        self._assembler: SliceAssembler | None = None
        self._pixel_type = PixelType.FLOAT32
        self._slope = _SeriesSlope()
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
                raise ScanError(
                    "IsmrmrdReconData came, which is not supported yet; send readouts or buckets. In a "
                    "Gadgetron chain, put the external node before the gadget that accumulates them."
                )
            case ScanHeader():
                self._description = parse_scan_header(message.text)
            case ConfigFile() | ConfigText() | Text():
                self._configure(message)
            case _:
                logger.warning("A %s came in the middle of a scan: not used.", type(message).__name__)

    def finish(self) -> Iterator[Message]:
        if self._assembler is None:
            logger.info("The stream ended without a readout.")
            return
        for assembled in self._assembler.finish():
            yield from self._add(assembled)
        yield from self._flush()
        for line in self._assembler.report():
            logger.info("%s", line)

    def _configure(self, message: ConfigFile | ConfigText | Text) -> None:
        if self._assembler is not None:
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
        if self._assembler is None:
            self._assembler = self._start()
        for assembled in self._assembler.add(readout):
            yield from self._add(assembled)

    def _start(self) -> SliceAssembler:
        """Settle what holds for the whole scan, at its first readout."""
        if self._description is None:
            raise PeerProtocolError(
                "A readout came before the scan's header; k-space cannot be laid out without it."
            )
        settings = self._settings
        self._reconstructor.load(settings)
        self._pixel_type = pixel_type_for(settings, self._dialect, has_parameters=self._has_parameters)
        return SliceAssembler(self._description, assembly_settings(settings))

    def _add(self, assembled: AssembledSlice) -> Iterator[Message]:
        if self._waiting and not _fit_together(self._waiting[0], assembled):
            yield from self._flush()
        self._waiting.append(assembled)
        if len(self._waiting) >= self._settings.batch_slices:
            yield from self._flush()

    def _flush(self) -> Iterator[Message]:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        results = self._reconstructor([one.kspace for one in batch], self._settings, self._cancelled)
        for assembled, result in zip(batch, results, strict=True):
            yield from self._images(assembled, result)

    def _images(self, assembled: AssembledSlice, result: SliceResult) -> Iterator[Message]:
        context = assembled.context
        self._summary.add(context, result)
        level = logging.INFO if result.kind is ImageKind.RECONSTRUCTED else logging.WARNING
        logger.log(level, "%s: %s", context.label(), log_line(result))
        image = reconstruction_image(
            result.image,
            context,
            series_index=SERIES_INDEX,
            image_index=self._summary.n_images,
            meta=image_meta(result, context),
            pixel_type=self._pixel_type,
            slope=None if self._pixel_type is PixelType.FLOAT32 else self._slope.of(result),
        )
        if self._on_slice is not None:
            self._on_slice(FinishedSlice(assembled, result, image))
        yield image
        # Gadgetron takes no text from its external node: there, the image's comment and meta have to say it.
        if result.kind is ImageKind.FALLBACK and self._dialect is not Dialect.GADGETRON:
            yield Text(
                f"gadgetron-ebm: image {self._summary.n_images} ({context.label()}): {describe(result)}"
            )


def assembly_settings(settings: Settings) -> AssemblySettings:
    """Return the part of the settings that says how readouts become k-space."""
    return AssemblySettings(
        noise=NoiseSource(settings.noise.source),
        use_calibration_lines=settings.scan.calibration_in_data,
        keep_averages=settings.scan.keep_averages,
    )


def pixel_type_for(settings: Settings, dialect: Dialect, *, has_parameters: bool) -> PixelType:
    """Return the pixel type to send to a peer.

    Parameters
    ----------
    has_parameters
        Whether the peer sent JSON parameters, as FIRE and OpenRecon do; they expect int16.
    """
    chosen = settings.output.pixel_type
    if chosen == "auto":
        chosen = "int16" if has_parameters else "float"
    if chosen == "int16" and dialect is Dialect.GADGETRON:
        raise SettingsError(
            "output.pixel_type: int16 images end a Gadgetron chain with an error; set it to auto, float or "
            "uint16."
        )
    return {"float": PixelType.FLOAT32, "uint16": PixelType.UINT16, "int16": PixelType.INT16}[chosen]


class _SeriesSlope:
    """The RescaleSlope of integer images: the same for a series as far as that goes, so that slices compare.

    The first image with any signal gets half of the range, which leaves room for brighter ones; one that is
    still too bright doubles the slope, and the series goes on with that.
    """

    def __init__(self) -> None:
        self._slope: float | None = None

    def of(self, result: SliceResult) -> float:
        brightest = float(np.abs(result.image).max(initial=0.0))
        if self._slope is None:
            if brightest == 0:
                return 1.0
            self._slope = 2 * brightest / LARGEST_INTEGER_PIXEL
        while brightest > self._slope * LARGEST_INTEGER_PIXEL:
            self._slope *= 2
        return self._slope


def _readouts_of(bucket: AcquisitionBucket) -> Iterator[Acquisition]:
    """Yield each readout of a bucket once: reference lines that are also data stand in both lists.

    Reference lines come first, since the last data line completes a slice.
    """
    data = {readout.header.tobytes() for readout in bucket.data}
    yield from (readout for readout in bucket.reference if readout.header.tobytes() not in data)
    yield from bucket.data


def _fit_together(first: AssembledSlice, second: AssembledSlice) -> bool:
    a, b = first.kspace, second.kspace
    return a.samples.shape == b.samples.shape and a.noise_std == b.noise_std
