"""The images of one stream: made, counted, and told apart in log and summary."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gadget.errors import ScanError, SettingsError
from gadget.finished_slice import FinishedSlice, SampledSlice, VolumePartition
from gadget.image_labels import NO_PHASE, NO_SERIES, StreamSummary, image_meta, is_outside, log_line
from gadget.image_meta import COMPLETED_BY
from gadget.phase_reference import PhaseReferences
from gadget.pixels import LARGEST_INTEGER_PIXEL, LARGEST_SIGNED_PIXEL, PixelType
from gadget.posterior_labels import posterior_meta, sampled_log_line
from gadget.prior_suitability import mismatches
from gadget.reconstructor import ImageKind, SliceResult
from gadget.scan.assemble import AssembledSlice
from gadget.scan.context import ScanContext
from gadget.scan.directions import direction_warnings
from gadget.series import (
    POSTERIOR_MEAN,
    POSTERIOR_STD,
    RECONSTRUCTIONS,
    MetaValue,
    reconstruction_image,
    series_image,
)
from gadget.settings import ImageComponent, Settings
from gadget.wire.messages import Image
from gadget.wire.session import Dialect
from reconlib.priors.card import PriorCard

logger = logging.getLogger(__name__)

LARGEST_IMAGE_INDEX = 65535
"""``image_index`` is a 16-bit field."""


class SeriesWriter:
    """Makes a stream's images of all series; those of one slice have the same ``image_index``.

    Parameters
    ----------
    components
        What is sent of each reconstruction. Where the magnitude is not among them, a fallback sends one all
        the same.
    card
        Of the prior; slices that are not what it was made for are told apart.
    references
        What phases are relative to.
    about
        Attributes that each image of the stream has.
    """

    def __init__(
        self,
        pixel_type: PixelType,
        summary: StreamSummary,
        components: Sequence[ImageComponent] = ("magnitude",),
        card: PriorCard | None = None,
        references: PhaseReferences | None = None,
        *,
        about: Mapping[str, MetaValue] | None = None,
    ) -> None:
        self._pixel_type = pixel_type
        self._summary = summary
        self._components = tuple(one for one in RECONSTRUCTIONS if one in components)
        self._card = card
        self._references = PhaseReferences() if references is None else references
        self._about = {} if about is None else dict(about)
        self._slopes: dict[str, float | None] = {}
        """By name of what shares a slope."""
        self._warned: set[str] = set()
        self._n_skipped = 0

    def skip(self, context: ScanContext) -> None:
        """Count an image that is not made: it left in an earlier try."""
        self._n_skipped += 1
        logger.info("%s: not made again, its image has left", context.label())

    def reconstruction(
        self, assembled: AssembledSlice | VolumePartition, result: SliceResult, completed_by: int
    ) -> FinishedSlice:
        """Make the images of a slice; of a fallback there is a magnitude only.

        Parameters
        ----------
        completed_by
            Number of the data message, from 1, that completed the slice.

        Raises
        ------
        ScanError
            The stream has more images than ``image_index`` can count.
        """
        context = assembled.context
        self._summary.add(context, result)
        ordinary = result.kind is ImageKind.RECONSTRUCTED and not is_outside(result)
        level = logging.INFO if ordinary else logging.WARNING
        logger.log(level, "%s: %s", context.label(), log_line(result))
        number = self._n_skipped + self._summary.n_images
        if number > LARGEST_IMAGE_INDEX:
            raise ScanError(
                f"{context.label()} is image {number} of its stream, but image_index is a 16-bit field that "
                f"ends at {LARGEST_IMAGE_INDEX}; a number that wraps would name another image. Send the scan "
                "in parts."
            )
        mismatches_ = () if self._card is None else mismatches(self._card, context)
        self._warn_once([one.sentence for one in mismatches_], context)
        self._warn_once(direction_warnings(context.read_dir, context.phase_dir, context.slice_dir), context)
        meta = {**image_meta(result, context, mismatches_), **self._about, COMPLETED_BY: completed_by}
        slope = self._slope_for(np.abs(result.image), "magnitude", LARGEST_INTEGER_PIXEL)

        def image_of(
            image: NDArray[np.complex64] | NDArray[np.float32],
            component: ImageComponent,
            slope: float | None,
            more: Mapping[str, MetaValue],
        ) -> Image:
            return reconstruction_image(
                image,
                context,
                RECONSTRUCTIONS[component],
                image_index=number,
                meta={**meta, **more},
                pixel_type=PixelType.FLOAT32 if component == "complex" else self._pixel_type,
                slope=slope,
            )

        images = []
        components = [one for one in self._components if one != "magnitude"]
        reason = _why_without_phase(result)
        if components and reason:
            self._missing(context, NO_PHASE, reason)
            components = []
        if not components or "magnitude" in self._components:
            images.append(image_of(result.image, "magnitude", slope, {}))
        if components:
            image, about = self._referred(result, context, number)
            for component in components:
                its_slope = (
                    self._slope_for(np.abs(image.real), "real", LARGEST_SIGNED_PIXEL)
                    if component == "real"
                    else None
                )
                images.append(image_of(image, component, its_slope, about))
        return FinishedSlice(
            assembled, result, images[0], completed_by, slope, tuple(images[1:]), mismatches_
        )

    def not_sampled(self, context: ScanContext, reason: str) -> None:
        """Take note of a slice of which there is no posterior."""
        self._missing(context, NO_SERIES, reason)

    def posterior(self, sampled: SampledSlice) -> list[Image]:
        """Make the images of a slice's posterior; none where there is nothing to show.

        Where pixels are integers, the mean has the slope of its reconstruction (or twice that, or four times,
        where it is brighter); standard deviations, which are smaller, have a slope of their own.
        """
        finished = sampled.finished
        context = finished.slice.context
        self._summary.add_sampled(sampled)
        level = logging.INFO if sampled.is_reliable else logging.WARNING
        logger.log(level, "%s: %s", context.label(), sampled_log_line(sampled))
        images = sampled.images()
        if images is None:
            return []
        mean, std = images
        slopes = (
            self._raised(mean, finished.slope, LARGEST_INTEGER_PIXEL),
            self._slope_for(std, "std", LARGEST_INTEGER_PIXEL),
        )
        return [
            series_image(
                pixels,
                context,
                series,
                image_index=int(finished.image.header["image_index"]),
                meta={
                    **posterior_meta(sampled, series),
                    **self._about,
                    COMPLETED_BY: finished.completed_by,
                },
                pixel_type=self._pixel_type,
                slope=slope,
            )
            for pixels, series, slope in zip(images, (POSTERIOR_MEAN, POSTERIOR_STD), slopes, strict=True)
        ]

    def _referred(
        self, result: SliceResult, context: ScanContext, number: int
    ) -> tuple[NDArray[np.complex64], dict[str, MetaValue]]:
        """Return the image with the phase that it is sent with, and the attributes that say so."""
        if result.coils is None:
            raise ValueError("an image without coil maps has no phase to refer to")
        image, reference = self._references.referred(
            result.image.astype(np.complex64), result.coils, context, number
        )
        if not reference.is_shared:
            self._warn_once([reference.words.partition(": ")[2]], context)
        return image, {
            "EBM_PhaseReference": reference.words,
            "EBM_PhaseReferenceImage": reference.image_index,
        }

    def _missing(self, context: ScanContext, what: str, reason: str) -> None:
        self._summary.add_missing(context, what, reason)
        logger.warning("%s: %s: %s", context.label(), what, reason)

    def _warn_once(self, sentences: Sequence[str], context: ScanContext) -> None:
        """Log a sentence with the first slice that it is true of; the meta of each image has it, too."""
        for sentence in sentences:
            if sentence not in self._warned:
                self._warned.add(sentence)
                logger.warning("%s: %s (said once)", context.label(), sentence)

    def _slope_for(self, sizes: NDArray[np.float32], name: str, largest_pixel: int) -> float | None:
        """Return the RescaleSlope of integer pixels: that of the series as long as it will do.

        So the images of a series can be compared without reading it. The first image with any signal gets
        half of the range, which leaves room for brighter ones; one that is still too bright doubles the
        slope, and the series goes on with that. None for pixels that are no integers, and before any signal.
        """
        self._slopes[name] = self._raised(sizes, self._slopes.get(name), largest_pixel)
        return self._slopes[name]

    def _raised(self, sizes: NDArray[np.float32], slope: float | None, largest_pixel: int) -> float | None:
        """Double a slope until the largest value fits into the pixels."""
        if self._pixel_type is PixelType.FLOAT32:
            return None
        brightest = float(sizes.max(initial=0.0))
        if slope is None:
            return 2 * brightest / largest_pixel if brightest > 0 else None
        while brightest > slope * largest_pixel:
            slope *= 2
        return slope


def _why_without_phase(result: SliceResult) -> str:
    """Say why an image has no phase; empty where it has one."""
    if result.kind is ImageKind.FALLBACK:
        return "the image is a fallback"
    return "its coil maps are not kept" if result.coils is None else ""


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
