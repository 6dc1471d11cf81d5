"""The second half of a stream: complete slices in, images out, and uncertainty when there is time."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gadget.finished_slice import FinishedSlice, VolumePartition
from gadget.frame_starts import FrameStarts
from gadget.image_labels import NO_SERIES, describe, describe_sampled
from gadget.posterior_queue import PosteriorQueue
from gadget.reconstructor import ImageKind, SliceResult
from gadget.scan.assembled import AssembledSlice
from gadget.scan.coil_start import coil_start
from gadget.scan.volume import AssembledVolume
from gadget.series_writer import SeriesWriter
from gadget.streaming_scan import ScanDevice, kspace_bytes
from gadget.turns import TurnCancelledError
from gadget.volume_reconstruction import NOT_SAMPLED, reconstruct_volume
from gadget.wire.limits import MIB
from gadget.wire.messages import Image, ImageArray, Message, Text, Waveform
from gadget.wire.session import Dialect
from reconlib.kspace import NonuniformKSpace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScanStart:
    """What holds for a whole scan, settled at its first readout; comes before everything that is complete."""

    device: ScanDevice
    writer: SeriesWriter
    posteriors: PosteriorQueue
    frames: FrameStarts
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class CompleteSlice:
    """A slice that can be reconstructed."""

    slice: AssembledSlice
    completed_by: int
    """Number of the data message, from 1, that completed it."""


@dataclass(frozen=True, slots=True)
class CompleteVolume:
    """A volume, under-sampled in two directions, that can be reconstructed."""

    volume: AssembledVolume
    completed_by: int
    """As of a slice."""


Work = ScanStart | CompleteSlice | CompleteVolume | Message
"""What the assembly hands on, in order; messages that are not ours pass through."""


class ImageStage:
    """Makes images of what is complete, and sends them before it works on uncertainty.

    Parameters
    ----------
    on_slice
        Called for each image before it is handed on.
    cancelled
        Whether nobody waits for the images any more.
    n_skipped
        Slices and partitions at the start of the scan that get no image.
    """

    def __init__(
        self,
        on_slice: Callable[[FinishedSlice], None] | None,
        cancelled: Callable[[], bool],
        n_skipped: int = 0,
    ) -> None:
        self._on_slice = on_slice
        self._cancelled = cancelled
        self._n_skipped = n_skipped
        self._scan: ScanStart | None = None
        self._waiting: list[CompleteSlice] = []

    def run(
        self, work: Iterable[Work | None], *, would_wait: Callable[[], bool], has_time: Callable[[], bool]
    ) -> Iterator[Message]:
        """Yield what is to be sent.

        Slices that wait are reconstructed together, as many as the settings allow; none waits for others to
        come.

        Parameters
        ----------
        work
            None where nothing came of a message.
        would_wait
            Whether taking the next one would wait.
        has_time
            Whether there is time for a step of sampling.
        """
        try:
            for one in work:
                if one is not None:
                    yield from self._take(one)
                if self._waiting and would_wait():
                    yield from self._flush()
                yield from self._sample(while_=has_time)
            if not self._cancelled():
                yield from self._flush()
                yield from self._sample(while_=lambda: True)
        except TurnCancelledError:
            logger.info("The stream ended while its next image waited for the device.")
        finally:
            self._give_up()

    def _take(self, work: Work) -> Iterator[Message]:
        match work:
            case ScanStart():
                self._scan = work
            case CompleteSlice():
                yield from self._slice(work)
            case CompleteVolume():
                yield from self._flush()
                yield from self._volume(work)
            case _:
                yield work

    def _slice(self, complete: CompleteSlice) -> Iterator[Message]:
        """Let a slice wait until its batch is full; a frame starts from the one before it."""
        scan, assembled = self._started(), complete.slice
        if self._n_skipped:
            self._n_skipped -= 1
            scan.writer.skip(assembled.context)
            return
        if assembled.series is not None:
            yield from self._flush()
            maps, image, frame = scan.frames.start(assembled)
            yield from self._reconstruct([CompleteSlice(frame, complete.completed_by)], maps, image)
            return
        if self._waiting and not _fit_together(self._waiting[0].slice, assembled):
            yield from self._flush()
        self._waiting.append(complete)
        if len(self._waiting) >= scan.device.settings.batch_slices:
            yield from self._flush()

    def _flush(self) -> Iterator[Message]:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        if self._started().device.settings.coils == "fixed":
            yield from self._reconstruct(batch, None)
            return
        slices, maps = [one.slice for one in batch], None
        try:
            maps, slices = coil_start(slices)
        except Exception as error:  # whatever fails in there, the scanner gets its images
            logger.error("Coil maps of the calibration failed; not used.", exc_info=error)
        yield from self._reconstruct(
            [replace(one, slice=noted) for one, noted in zip(batch, slices, strict=True)], maps
        )

    def _reconstruct(
        self,
        batch: list[CompleteSlice],
        maps: NDArray[np.complex64] | None,
        image: NDArray[np.complex64] | None = None,
    ) -> Iterator[Message]:
        scan = self._started()
        kspaces = [one.slice.kspace for one in batch]
        results = scan.device(kspaces, initial_coils=maps, initial_image=image)
        finished = []
        for one, result in zip(batch, results, strict=True):
            if one.slice.series is not None:
                scan.frames.keep(one.slice, result)
            made, messages = self._send(one.slice, result, one.completed_by)
            finished.append(made)
            yield from messages
        if scan.device.settings.posterior.enabled:
            yield from self._sample_later(finished)

    def _volume(self, complete: CompleteVolume) -> Iterator[Message]:
        scan, volume = self._started(), complete.volume
        finished = None
        for partition, result in reconstruct_volume(volume, scan.device):
            if self._n_skipped:
                self._n_skipped -= 1
                scan.writer.skip(partition.context)
                continue
            finished, messages = self._send(partition, result, complete.completed_by)
            yield from messages
        if scan.device.settings.posterior.enabled and finished is not None:
            scan.writer.not_sampled(volume.context, NOT_SAMPLED)
            yield from self._text(finished, f"{NO_SERIES}: {NOT_SAMPLED}")

    def _send(
        self, source: AssembledSlice | VolumePartition, result: SliceResult, completed_by: int
    ) -> tuple[FinishedSlice, list[Message]]:
        """Make the images of a slice or partition, and the words that go with it."""
        finished = self._started().writer.reconstruction(source, result, completed_by)
        if self._on_slice is not None:
            self._on_slice(finished)
        messages: list[Message] = [finished.image, *finished.others]
        if result.kind is ImageKind.FALLBACK:
            messages += self._text(finished, describe(result))
        return finished, messages

    def _sample_later(self, finished: list[FinishedSlice]) -> Iterator[Message]:
        """Let slices wait for their sampling; where too much waits, sample first until there is room."""
        scan = self._started()
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
            yield from self._sample(while_=lambda: posteriors.is_full)

    def _sample(self, while_: Callable[[], bool]) -> Iterator[Message]:
        """Sample posteriors as long as there is one, somebody waits for it, and the condition holds."""
        if self._scan is None:
            return
        scan = self._scan
        while scan.posteriors and not self._cancelled() and while_():
            with scan.device.turn(urgent=False):
                done = scan.posteriors.step()
            for sampled in done:
                yield from scan.writer.posterior(sampled)
                if sampled.images() is None:
                    yield from self._text(sampled.finished, describe_sampled(sampled))

    def _text(self, finished: FinishedSlice, words: str) -> Iterator[Text]:
        """Tell the peer about an image; Gadgetron takes no text: there, comment and meta have to say it."""
        if self._started().dialect is not Dialect.GADGETRON:
            number, label = int(finished.image.header["image_index"]), finished.slice.context.label()
            yield Text(f"gadgetron-ebm: image {number} ({label}): {words}")

    def _give_up(self) -> None:
        """Forget what is still to be sampled: the stream is over."""
        if self._scan is not None and (n_slices := len(self._scan.posteriors)):
            logger.warning(
                "The stream ended before the uncertainty of its last %d image(s) was done.", n_slices
            )
            self._scan.posteriors.clear()

    def _started(self) -> ScanStart:
        if self._scan is None:
            raise RuntimeError("a slice is complete before its scan has started")
        return self._scan


def n_bytes(work: Work) -> int:
    """Return what a piece of work holds in memory, its small parts apart."""
    match work:
        case CompleteSlice():
            return kspace_bytes(work.slice.kspace)
        case CompleteVolume():
            return work.volume.samples.nbytes + work.volume.mask.nbytes
        case Image() | ImageArray() | Waveform():
            return work.data.nbytes
        case _:
            return 0


def _fit_together(first: AssembledSlice, second: AssembledSlice) -> bool:
    a, b = first.kspace, second.kspace
    is_alike = type(a) is type(b) and a.samples.shape == b.samples.shape and a.noise_std == b.noise_std
    if isinstance(a, NonuniformKSpace) and isinstance(b, NonuniformKSpace):
        is_alike &= a.shape == b.shape
    return is_alike and first.context.grid_fov_mm == second.context.grid_fov_mm
