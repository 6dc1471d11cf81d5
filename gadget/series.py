"""From a reconstructed slice to the ISMRMRD image that is sent: recon matrix, header, meta, pixels.

Image headers are C structs with 16-bit fields, in which a wrong name is lost and a large number wraps. They
are therefore made in one place, :func:`image_header`, which checks both.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import ismrmrd
import numpy as np
import scipy.fft
from numpy.typing import NDArray

from gadget.errors import OwnProtocolError
from gadget.scan.context import ScanContext
from gadget.wire.headers import IMAGE_HEADER
from gadget.wire.messages import Header, Image

MetaValue = str | int | float | bool | Sequence[str] | Sequence[int] | Sequence[float]

MAGNITUDE = 1
"""``image_type`` of a magnitude image."""

LARGEST_INTEGER_PIXEL = 4095
"""The pixel that an image's maximum becomes in integer images: 12 bits, as scanners' own images have."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class PixelType(Enum):
    """How pixels are sent. Gadgetron's external nodes must never send int16: it ends the chain."""

    FLOAT32 = "float32"
    UINT16 = "uint16"
    INT16 = "int16"

    @property
    def code(self) -> int:
        """The ``data_type`` of the image header."""
        return {"uint16": 1, "int16": 2, "float32": 5}[self.value]


def reconstruction_image(
    image: NDArray[np.complex64] | NDArray[np.float32],
    context: ScanContext,
    *,
    series_index: int,
    image_index: int,
    meta: Mapping[str, MetaValue] | None = None,
    pixel_type: PixelType = PixelType.FLOAT32,
    slope: float | None = None,
) -> Image:
    """Make the magnitude image of one slice.

    Parameters
    ----------
    image
        complex64, or float32 magnitude, (y, x) on the assembled grid ``context.grid_matrix``. Where the recon
        matrix has other pixels than the grid, a complex image is interpolated as such, which a magnitude
        cannot be.
    context
        Of the slice.
    series_index, image_index
        ``image_index`` counts 1..N within a series.
    meta
        Attributes beside the standard ones, or instead of them.
    pixel_type
        Integer pixels are scaled to 0..4095; ``pixel * RescaleSlope + RescaleIntercept`` gives the values
        back to half a slope.
    slope
        Use this RescaleSlope, so that the images of a series can be compared without reading it; larger
        values are clipped, and the meta says how many.
    """
    if image.shape != context.grid_matrix[::-1]:
        raise OwnProtocolError(
            f"The image has shape {image.shape}, but its slice was assembled on {context.grid_matrix[::-1]} "
            "(y, x)."
        )
    magnitude = np.abs(to_recon_grid(image, context)).astype(np.float32)
    if not np.isfinite(magnitude).all():
        raise OwnProtocolError(
            f"The image of {context.label()} holds {int((~np.isfinite(magnitude)).sum())} NaN or infinite "
            "pixels; such an image is never sent. Send a fallback instead."
        )
    attributes: dict[str, MetaValue] = {**_standard_meta(context, magnitude)}
    pixels: NDArray[Any] = magnitude
    if pixel_type is not PixelType.FLOAT32:
        pixels, scaling = _integer_pixels(magnitude, np.dtype(pixel_type.value), slope)
        attributes |= scaling
    attributes |= meta or {}
    text = serialize_meta(attributes)
    header = image_header(
        context,
        data_type=pixel_type.code,
        image_type=MAGNITUDE,
        image_index=image_index,
        image_series_index=series_index,
        attribute_string_len=len(text),
    )
    return Image(header=header, meta=text, data=pixels[None, None])


def to_recon_grid(
    image: NDArray[np.complex64] | NDArray[np.float32], context: ScanContext
) -> NDArray[np.complex64] | NDArray[np.float32]:
    """Bring an image from the assembled grid to the recon matrix and its field of view.

    Along each axis: zero-fill (or cut) k-space so that the pixels have the size of the recon matrix's, then
    keep the middle of the field of view (phase oversampling; an oversampled readout that could not be cropped
    before). The pixel with index n // 2 stays in place, and intensities stay as they are. Where no pixel
    changes its size, nothing is interpolated. A field of view that is not a whole number of pixels is met to
    half a pixel.
    """
    for axis, which in ((0, 1), (1, 0)):
        n_recon, fov_mm = context.recon_matrix[which], context.recon_fov_mm[which]
        n_filled = max(1, round(n_recon * context.grid_fov_mm[which] / fov_mm))
        if n_filled != image.shape[axis]:
            spectrum = _centred(scipy.fft.fft, image.astype(np.complex64), axis)
            factor = np.float32(n_filled / image.shape[axis])
            image = _centred(scipy.fft.ifft, _centre_fit(spectrum, n_filled, axis), axis) * factor
        image = _centre_fit(image, n_recon, axis)
    return image


def image_header(context: ScanContext, **fields: int) -> Header:
    """Make an image header: what the context knows, and ``fields``. Names and ranges are checked.

    Raises
    ------
    OwnProtocolError
        A field does not exist, or a value does not fit into it.
    """
    values: dict[str, Any] = {
        "version": 1,
        "measurement_uid": context.measurement_uid,
        "matrix_size": context.recon_matrix,
        "field_of_view": context.recon_fov_mm,
        "channels": 1,
        "position": context.position,
        "read_dir": context.read_dir,
        "phase_dir": context.phase_dir,
        "slice_dir": context.slice_dir,
        "patient_table_position": context.patient_table_position,
        "average": context.average,
        "slice": context.slice,
        "contrast": context.contrast,
        "phase": context.phase,
        "repetition": context.repetition,
        "set": context.set,
        "acquisition_time_stamp": context.acquisition_time_stamp,
        "physiology_time_stamp": context.physiology_time_stamp,
        "user_int": context.user_int,
        "user_float": context.user_float,
        **fields,
    }
    header = np.zeros((), IMAGE_HEADER)
    for name, value in values.items():
        if name not in (IMAGE_HEADER.names or ()):
            raise OwnProtocolError(f"An ISMRMRD image header has no field '{name}'.")
        field = IMAGE_HEADER[name]
        if field.base.kind in "iu":
            limits = np.iinfo(field.base)
            for number in value if field.shape else (value,):
                if int(number) != number or not limits.min <= number <= limits.max:
                    raise OwnProtocolError(
                        f"Image header field '{name}' cannot hold {number}: it takes whole numbers from "
                        f"{limits.min} to {limits.max}."
                    )
        header[name] = value
    return header[()]


def serialize_meta(meta: Mapping[str, MetaValue]) -> str:
    """Write meta attributes as ISMRMRD XML, in ASCII (some readers take no more)."""
    root = ElementTree.Element("ismrmrdMeta")
    for name, value in meta.items():
        node = ElementTree.SubElement(root, "meta")
        ElementTree.SubElement(node, "name").text = _NOT_XML.sub("", name)
        items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for item in items:
            ElementTree.SubElement(node, "value").text = _NOT_XML.sub("", _meta_text(item))
    text: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=True)
    return text.decode("ascii")


def to_ismrmrd_image(message: Image) -> ismrmrd.Image:
    """Return the same image as an object of the ismrmrd package, as its ``Dataset.append_image`` takes it."""
    meta = message.meta.partition("\0")[0]
    return ismrmrd.Image(
        head=message.header.tobytes(), attribute_string=meta, data=np.ascontiguousarray(message.data)
    )


def _standard_meta(context: ScanContext, magnitude: NDArray[np.float32]) -> dict[str, MetaValue]:
    # The window in the units after rescaling, from 0 to where only the brightest thousandth lies above.
    top = float(np.quantile(magnitude, 0.999)) or float(magnitude.max(initial=0.0)) or 1.0
    meta: dict[str, MetaValue] = {
        "DataRole": "Image",
        "ImageType": "DERIVED\\PRIMARY\\M",
        "ImageProcessingHistory": ["GADGETRON-EBM"],
        "ImageComments": "gadgetron-ebm" if context.is_complete else "gadgetron-ebm: INCOMPLETE DATA",
        "SequenceDescriptionAdditional": "EBM",
        "SeriesDescriptionAdditional": "EBM",
        "Keep_image_geometry": 1,
        "WindowCenter": top / 2,
        "WindowWidth": top,
        "ScanNotes": list(context.notes),
    }
    for name, direction in (("ImageRowDir", context.read_dir), ("ImageColumnDir", context.phase_dir)):
        if any(direction):
            meta[name] = list(direction)
    return meta


def _integer_pixels(
    magnitude: NDArray[np.float32], dtype: np.dtype[Any], slope: float | None
) -> tuple[NDArray[Any], dict[str, MetaValue]]:
    top = float(magnitude.max(initial=0.0))
    if slope is None:
        slope = top / LARGEST_INTEGER_PIXEL if top > 0 else 1.0
    if not (np.isfinite(slope) and slope > 0):
        raise OwnProtocolError(f"The slope of integer pixels is {slope}; it must be positive.")
    largest = np.iinfo(dtype).max
    exact = np.rint(magnitude.astype(np.float64) / slope)
    n_clipped = int((exact > largest).sum())
    meta: dict[str, MetaValue] = {"RescaleSlope": slope, "RescaleIntercept": 0.0}
    if n_clipped:
        meta["ClippedPixels"] = n_clipped
    return np.minimum(exact, largest).astype(dtype), meta


def _meta_text(value: object) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    # repr of a float is the shortest text that reads back as the same number.
    return repr(value) if isinstance(value, float) else str(value)


def _centred(transform: Any, array: NDArray[np.complex64], axis: int) -> NDArray[np.complex64]:
    shifted = transform(scipy.fft.ifftshift(array, axes=axis), axis=axis)
    result: NDArray[np.complex64] = scipy.fft.fftshift(shifted, axes=axis)
    return result


def _centre_fit(array: NDArray[Any], size: int, axis: int) -> NDArray[Any]:
    """Cut or zero-pad an axis, keeping index n // 2 at the new n // 2."""
    n = array.shape[axis]
    start = n // 2 - size // 2
    if start >= 0 and start + size <= n:
        return np.take(array, range(start, start + size), axis=axis)
    shape = list(array.shape)
    shape[axis] = size
    result = np.zeros(shape, array.dtype)
    first, last = max(start, 0), min(start + size, n)
    source = [slice(None)] * array.ndim
    target = [slice(None)] * array.ndim
    source[axis] = slice(first, last)
    target[axis] = slice(first - start, last - start)
    result[tuple(target)] = array[tuple(source)]
    return result
