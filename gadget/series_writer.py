"""The images of one stream: made, counted, and told apart in log and summary."""

import logging

import numpy as np
from numpy.typing import NDArray

from gadget.errors import SettingsError
from gadget.finished_slice import FinishedSlice, SampledSlice
from gadget.image_labels import NO_SERIES, StreamSummary, image_meta, is_outside, log_line
from gadget.posterior_labels import posterior_meta, sampled_log_line
from gadget.reconstructor import ImageKind, SliceResult
from gadget.scan.assemble import AssembledSlice
from gadget.series import (
    LARGEST_INTEGER_PIXEL,
    POSTERIOR_MEAN,
    POSTERIOR_STD,
    PixelType,
    reconstruction_image,
    series_image,
)
from gadget.settings import Settings
from gadget.wire.messages import Image
from gadget.wire.session import Dialect

logger = logging.getLogger(__name__)


class SeriesWriter:
    """Makes a stream's images of all series; those of one slice have the same ``image_index``."""

    def __init__(self, pixel_type: PixelType, summary: StreamSummary) -> None:
        self._pixel_type = pixel_type
        self._summary = summary
        self._slope: float | None = None
        self._std_slope: float | None = None

    def reconstruction(self, assembled: AssembledSlice, result: SliceResult) -> FinishedSlice:
        """Make the image of a slice."""
        context = assembled.context
        self._summary.add(context, result)
        ordinary = result.kind is ImageKind.RECONSTRUCTED and not is_outside(result)
        level = logging.INFO if ordinary else logging.WARNING
        logger.log(level, "%s: %s", context.label(), log_line(result))
        self._slope = self._slope_for(np.abs(result.image), self._slope)
        image = reconstruction_image(
            result.image,
            context,
            image_index=self._summary.n_images,
            meta=image_meta(result, context),
            pixel_type=self._pixel_type,
            slope=self._slope,
        )
        return FinishedSlice(assembled, result, image, self._slope)

    def not_sampled(self, finished: FinishedSlice) -> None:
        """Take note of a slice whose image is a fallback, of which there is no posterior."""
        reason = "the image is a fallback"
        context = finished.slice.context
        self._summary.add_not_sampled(context, reason)
        logger.warning("%s: %s: %s", context.label(), NO_SERIES, reason)

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
        self._std_slope = self._slope_for(std, self._std_slope)
        slopes = (self._slope_for(mean, finished.slope), self._std_slope)
        return [
            series_image(
                pixels,
                context,
                series,
                image_index=int(finished.image.header["image_index"]),
                meta=posterior_meta(sampled, series),
                pixel_type=self._pixel_type,
                slope=slope,
            )
            for pixels, series, slope in zip(images, (POSTERIOR_MEAN, POSTERIOR_STD), slopes, strict=True)
        ]

    def _slope_for(self, magnitude: NDArray[np.float32], slope: float | None) -> float | None:
        """Return the RescaleSlope of integer pixels: that of the series as long as it will do.

        So the images of a series can be compared without reading it. The first image with any signal gets
        half of the range, which leaves room for brighter ones; one that is still too bright doubles the
        slope, and the series goes on with that. None for pixels that are no integers, and before any signal.
        """
        if self._pixel_type is PixelType.FLOAT32:
            return None
        brightest = float(magnitude.max(initial=0.0))
        if slope is None:
            return 2 * brightest / LARGEST_INTEGER_PIXEL if brightest > 0 else None
        while brightest > slope * LARGEST_INTEGER_PIXEL:
            slope *= 2
        return slope


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
