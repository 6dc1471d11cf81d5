"""Messages and endings for those who look on at a conversation."""

from collections.abc import Callable

import numpy as np

from gadget.answering import Ending
from gadget.scan_watch import ScanWatch
from gadget.series import serialize_meta
from gadget.wire.headers import ACQUISITION_HEADER, IMAGE_HEADER
from gadget.wire.messages import Acquisition, Close, ConfigFile, Image, ScanHeader, Text

XML = """<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
<subjectInformation><patientName>DOE^JANE</patientName><patientID>SECRET-1</patientID></subjectInformation>
<measurementInformation><protocolName>JANE DOE HEAD</protocolName></measurementInformation>
<acquisitionSystemInformation><systemFieldStrength_T>2.89362</systemFieldStrength_T>
<institutionName>ST ELSEWHERE</institutionName></acquisitionSystemInformation>
<encoding><trajectory>cartesian</trajectory>
<encodedSpace><matrixSize><x>16</x><y>9</y><z>1</z></matrixSize>
<fieldOfView_mm><x>320</x><y>180</y><z>5</z></fieldOfView_mm></encodedSpace>
<reconSpace><matrixSize><x>8</x><y>9</y><z>1</z></matrixSize>
<fieldOfView_mm><x>160</x><y>180</y><z>5</z></fieldOfView_mm></reconSpace>
<encodingLimits><slice><minimum>0</minimum><maximum>2</maximum><center>1</center></slice>
<contrast><minimum>0</minimum><maximum>1</maximum><center>0</center></contrast></encodingLimits>
<parallelImaging><accelerationFactor><kspace_encoding_step_1>3</kspace_encoding_step_1>
<kspace_encoding_step_2>1</kspace_encoding_step_2></accelerationFactor></parallelImaging>
</encoding></ismrmrdHeader>"""
"""A header of 3 slices and 2 contrasts, with names that nobody may see."""
STANDARD = ("RescaleSlope", "RescaleIntercept", "ImageComments")
SECRETS = ("DOE", "JANE", "SECRET", "ELSEWHERE")

HEADER = ScanHeader(XML)
CONFIG = ConfigFile("default")
ENDED = Ending(n_received=9, n_sent=3, had_scan=True, failure=None, abandoned=False, seconds=1.0)


def readout(n_coils: int = 4, n_samples: int = 16) -> Acquisition:
    """A readout of zeros."""
    return Acquisition(
        np.zeros((), ACQUISITION_HEADER)[()],
        np.zeros((n_samples, 0), np.float32),
        np.zeros((n_coils, n_samples), np.complex64),
    )


def image(
    number: int = 1,
    *,
    series: int = 1,
    slice_: int = 0,
    pixels: np.ndarray | None = None,
    fov: tuple[float, float, float] = (0.0, 0.0, 0.0),
    **attributes: object,
) -> Image:
    """An image with these meta attributes, ``EBM_`` put before the names of ours; pixels (y, x)."""
    values = np.arange(72, dtype=np.float32).reshape(9, 8) if pixels is None else pixels
    header = np.zeros((), IMAGE_HEADER)
    header["image_index"], header["image_series_index"], header["slice"] = number, series, slice_
    header["matrix_size"] = (values.shape[1], values.shape[0], 1)
    header["field_of_view"] = fov
    meta = {name if name in STANDARD else f"EBM_{name}": value for name, value in attributes.items()}
    return Image(header[()], serialize_meta(meta), values[None, None])


def reconstruction(number: int = 1, completed_by: int = 1, **others: object) -> Image:
    """An image as the pipeline sends it."""
    return image(
        number,
        slice_=number - 1,
        **{
            "Image": "RECONSTRUCTED",
            "Outcome": "converged",
            "Prior": "brain-local",
            "PriorVersion": "1.3",
            "PriorWeight": 0.0123456,
            "PriorWeightRule": "noise",
            "Seconds": 1.26,
            "Iterations": 40,
            "CompletedBy": completed_by,
            **others,
        },
    )


def look_on(
    *watches: ScanWatch, n_readouts: int = 3, n_images: int = 3, ending: Ending | None = ENDED
) -> None:
    """Play a scan: a readout each second from 100 s on, after all of them an image every 0.25 s."""
    tell: list[Callable[[ScanWatch], None]] = []
    for message, at in ((CONFIG, 99.0), (HEADER, 99.5)):
        tell.append(lambda watch, message=message, at=at: watch.received(message, at))
    for k in range(n_readouts):
        tell.append(lambda watch, at=100.0 + k: watch.received(readout(), at))
    tell.append(lambda watch, at=100.0 + n_readouts: watch.received(Close(), at))
    for k in range(n_images):
        answer = reconstruction(k + 1, completed_by=min(k + 1, n_readouts))
        at = 100.0 + n_readouts - 1 + 0.25 * (k + 1)
        tell.append(lambda watch, answer=answer, at=at: watch.sent(answer, at))
    if ending is not None:
        tell.append(lambda watch: watch.ended(ending))
    for one in tell:
        for watch in watches:
            one(watch)


def text(words: str) -> Text:
    return Text(words)
