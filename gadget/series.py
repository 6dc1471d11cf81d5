"""From a reconstructed slice to the ISMRMRD images that are sent: series, header, meta, pixels.

Image headers are C structs with 16-bit fields, in which a wrong name is lost and a large number wraps. They
are therefore made in one place, :func:`image_header`, which checks both.
"""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ismrmrd
import numpy as np
from numpy.typing import NDArray

from gadget.errors import OwnProtocolError
from gadget.pixels import PixelType, component_of, integer_pixels
from gadget.recon_grid import to_recon_grid
from gadget.scan.context import ScanContext
from gadget.settings import ImageComponent
from gadget.wire.headers import IMAGE_HEADER
from gadget.wire.messages import Header, Image

MetaValue = str | int | float | bool | Sequence[str] | Sequence[int] | Sequence[float]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


IMAGE_TYPES: dict[ImageComponent, int] = {"magnitude": 1, "phase": 2, "real": 3, "complex": 5}
"""The standard's ``image_type``; 4, the imaginary part, is not sent."""


@dataclass(frozen=True, slots=True)
class Series:
    """One of the series that a scan becomes.

    Value 3 of the ImageType is the component as scanners name it (M, P, R), for complex images DICOM's term
    for more than one (MIXED, PS3.3, C.8.13.3.1.1). Value 4, where there is one, is DICOM's term for the
    derived pixel contrast (C.8.16.1.4).
    """

    name: str
    """``EBM_Image`` in the meta of the images of a posterior; other images say there how they ended."""
    index: int
    """``image_series_index``; images of other origin keep theirs."""
    image_type: str
    description: str
    """What the scanner puts behind its own description of the series."""
    component: ImageComponent = "magnitude"


RECONSTRUCTION = Series("RECONSTRUCTED", 1, "DERIVED\\PRIMARY\\M", "EBM")
POSTERIOR_MEAN = Series("POSTERIOR_MEAN", 2, "DERIVED\\PRIMARY\\M\\MEAN", "EBM_MEAN")
POSTERIOR_STD = Series("POSTERIOR_STD", 3, "DERIVED\\PRIMARY\\M\\STD_DEVIATION", "EBM_STD")
RECONSTRUCTIONS: dict[ImageComponent, Series] = {
    "magnitude": RECONSTRUCTION,
    "phase": Series("RECONSTRUCTED", 4, "DERIVED\\PRIMARY\\P", "EBM_PHASE", "phase"),
    "complex": Series("RECONSTRUCTED", 5, "DERIVED\\PRIMARY\\MIXED", "EBM_COMPLEX", "complex"),
    "real": Series("RECONSTRUCTED", 6, "DERIVED\\PRIMARY\\R", "EBM_REAL", "real"),
}
"""The series of the reconstruction itself, in the order in which the images of a slice are sent."""


def reconstruction_image(
    image: NDArray[np.complex64] | NDArray[np.float32],
    context: ScanContext,
    series: Series = RECONSTRUCTION,
    *,
    image_index: int,
    meta: Mapping[str, MetaValue] | None = None,
    pixel_type: PixelType = PixelType.FLOAT32,
    slope: float | None = None,
) -> Image:
    """Make an image of one slice from a reconstruction on its assembled grid ``context.grid_matrix``.

    complex64 or float32 magnitude (y, x). Where the recon matrix has other pixels than the grid, a complex
    image is interpolated as such, and its component taken after that. The rest is as in
    :func:`series_image`.
    """
    if image.shape != context.grid_matrix[::-1]:
        raise OwnProtocolError(
            f"The image has shape {image.shape}, but its slice was assembled on {context.grid_matrix[::-1]} "
            "(y, x)."
        )
    return series_image(
        component_of(to_recon_grid(image, context), series.component),
        context,
        series,
        image_index=image_index,
        meta=meta,
        pixel_type=pixel_type,
        slope=slope,
    )


def series_image(
    values: NDArray[np.float32] | NDArray[np.complex64],
    context: ScanContext,
    series: Series,
    *,
    image_index: int,
    meta: Mapping[str, MetaValue] | None = None,
    pixel_type: PixelType = PixelType.FLOAT32,
    slope: float | None = None,
) -> Image:
    """Make an image of a series.

    Parameters
    ----------
    values
        Of the series' component, (y, x) on the recon matrix: float32 (a magnitude is not negative, a phase in
        radians), for a complex series complex64.
    context
        Of the slice.
    image_index
        The number of the reconstruction in its stream, 1..N; images of different series that belong together
        have the same.
    meta
        Attributes beside the standard ones, or instead of them.
    pixel_type
        Integer pixels as :mod:`gadget.pixels` defines them; a complex series has none.
    slope
        Use this RescaleSlope, so that the images of a series can be compared without reading it; larger
        values are clipped, and the meta says how many.
    """
    if values.shape != context.recon_matrix[1::-1]:
        raise OwnProtocolError(
            f"The image has shape {values.shape}, but the recon matrix is {context.recon_matrix[1::-1]} "
            "(y, x)."
        )
    if not np.isfinite(values).all():
        raise OwnProtocolError(
            f"The image of {context.label()} holds {int((~np.isfinite(values)).sum())} NaN or infinite "
            "pixels; such an image is never sent. Send a fallback instead."
        )
    attributes: dict[str, MetaValue] = {**_standard_meta(context, series, values)}
    pixels: NDArray[Any] = values
    if pixel_type is not PixelType.FLOAT32:
        pixels, scaling = integer_pixels(np.asarray(values), series.component, pixel_type, slope)
        attributes |= scaling
    attributes |= meta or {}
    text = serialize_meta(attributes)
    header = image_header(
        context,
        data_type=pixel_type.code(series.component),
        image_type=IMAGE_TYPES[series.component],
        image_index=image_index,
        image_series_index=series.index,
        attribute_string_len=len(text),
    )
    return Image(header=header, meta=text, data=pixels[None, None])


def image_header(context: ScanContext, **fields: int) -> Header:
    """Make an image header: what the context knows, and ``fields``. Names and ranges are checked.

    The patient position of the pixel (y, x) is, in mm, ``position + (x - nx // 2) * fov_x / nx * read_dir +
    (y - ny // 2) * fov_y / ny * phase_dir``: the pixel n // 2 of each axis, where the Fourier transform has
    its origin, lies at ``position``. Directions are those of the readouts, unchanged.

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


def _window(component: ImageComponent, values: NDArray[Any]) -> tuple[float, float]:
    """Return centre and width of the window, in the units after rescaling.

    A magnitude from 0 to where only the brightest thousandth lies above, a real part as far to both sides, a
    phase from -pi to pi.
    """
    if component == "phase":
        return 0.0, 2 * math.pi
    size = np.abs(values)
    top = float(np.quantile(size, 0.999)) or float(size.max(initial=0.0)) or 1.0
    return (0.0, 2 * top) if component == "real" else (top / 2, top)


def _standard_meta(context: ScanContext, series: Series, values: NDArray[Any]) -> dict[str, MetaValue]:
    center, width = _window(series.component, values)
    meta: dict[str, MetaValue] = {
        "DataRole": "Image",
        "ImageType": series.image_type,
        "EBM_Component": series.component,
        "ImageProcessingHistory": ["GADGETRON-EBM"],
        "ImageComments": "gadgetron-ebm" if context.is_complete else "gadgetron-ebm: INCOMPLETE DATA",
        "SequenceDescriptionAdditional": series.description,
        "SeriesDescriptionAdditional": series.description,
        "Keep_image_geometry": 1,
        "WindowCenter": center,
        "WindowWidth": width,
        "ScanNotes": list(context.notes),
    }
    for name, direction in (("ImageRowDir", context.read_dir), ("ImageColumnDir", context.phase_dir)):
        if any(direction):
            meta[name] = list(direction)
    return meta


def _meta_text(value: object) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    # repr of a float is the shortest text that reads back as the same number.
    return repr(value) if isinstance(value, float) else str(value)
