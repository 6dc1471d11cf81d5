"""DICOM files, single-frame and multi-frame, read by pydicom.

Nothing that names a patient is kept: the subject is a hash of PatientID, whose key lives as long as the
process. Only the attributes listed here are read.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reconlib.training.images.errors import DataError, reading
from reconlib.training.images.orientation import orientation_in_words
from reconlib.training.images.settings import ImageSettings
from reconlib.training.images.subjects import subject_of_file
from reconlib.training.images.volume import ImageFile, Notes, Volume

_ATTRIBUTES = (
    "PatientID",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "SOPClassUID",
    "Modality",
    "ImageType",
    "InstanceNumber",
    "Rows",
    "Columns",
    "NumberOfFrames",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PixelSpacing",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "RescaleSlope",
    "RescaleIntercept",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
)
_LEFT_OUT = (
    (re.compile(r"LOCALIZER|SCOUT"), "localizer images"),
    (re.compile(r"MOSAIC"), "mosaics (many slices in one image)"),
    (re.compile(r"P|P_.*|PHASE.*|R|R_.*|REAL|I|I_.*|IMAGINARY"), "phase, real or imaginary images"),
)
"""by a word of ImageType after its first two"""


_Key = tuple[str, str, tuple[int, int]]
"""subject, series, size"""


@dataclass(frozen=True, slots=True)
class _Frame:
    path: Path
    name: str
    label: str
    """name for messages"""
    index: int
    series: str
    subject: str
    matrix: tuple[int, int]
    instance: int
    place: float | None
    """along the normal of the slice, mm"""
    spacing_mm: tuple[float, float] | None
    orientation: str | None
    slope: float
    intercept: float
    words: tuple[str, ...]
    """what kind of image it is: of ImageType or FrameType from the third on, and the complex component"""

    @property
    def key(self) -> _Key:
        return (self.subject, self.series, self.matrix)


def read_dicom(
    files: Sequence[ImageFile], settings: ImageSettings, notes: Notes, step: Callable[[int], None]
) -> Iterator[Volume]:
    """Yield a volume for each series and image size, its slices sorted by position.

    Each file counts twice for ``step``: once for its header, once for its pixels. Objects without pixels,
    localizers, mosaics and phase images are left out. Colour, segmentations and transfer syntaxes that
    cannot be decoded here are errors.
    """
    if settings.subject == "file" and settings.subject_pattern is None:
        raise DataError(
            "subject: file would divide the slices of a DICOM series between training and validation. "
            "Use auto (PatientID), folder or subject_pattern."
        )
    series: dict[_Key, list[_Frame]] = {}
    for file in files:
        frames = _frames(file, settings, notes)
        for frame in frames:
            series.setdefault(frame.key, []).append(frame)
        step(1 if frames else 2)
    last_use = {frame.path: key for key, frames in series.items() for frame in frames}
    n_done = Counter(last_use.values())
    for key, frames in series.items():
        frames.sort(key=lambda f: (f.place if f.place is not None else 0.0, f.instance, f.index))
        first = frames[0]

        stored: dict[Path, NDArray[Any]] = {}

        def load(
            index: int, frames: list[_Frame] = frames, stored: dict[Path, NDArray[Any]] = stored
        ) -> NDArray[Any]:
            return _pixels(frames[index], stored)

        yield Volume(
            files=tuple(sorted({frame.name for frame in frames})),
            labels=tuple(frame.label for frame in frames),
            subject=first.subject,
            matrix=first.matrix,
            n_images=len(frames),
            load=load,
            spacing_mm=first.spacing_mm,
            orientation=first.orientation,
            places=_places(frames),
        )
        step(n_done[key])


def _places(frames: list[_Frame]) -> tuple[int, ...] | None:
    """Number the positions: images within 10 um of each other lie in one slice."""
    if any(frame.place is None for frame in frames):
        return None
    rounded = [round(frame.place, 2) for frame in frames if frame.place is not None]
    return tuple(n for n, (_, group) in enumerate(groupby(rounded)) for _ in group)


def _frames(file: ImageFile, settings: ImageSettings, notes: Notes) -> list[_Frame]:
    """Read the header of a file and describe its frames; none where it is nothing to learn from."""
    import pydicom
    from pydicom.errors import BytesLengthException, InvalidDicomError

    with reading(file.name, "DICOM", InvalidDicomError, BytesLengthException):
        header = pydicom.dcmread(file.path, stop_before_pixels=True, specific_tags=list(_ATTRIBUTES))
        if "Rows" not in header or "Columns" not in header:
            notes.count("DICOM objects without pixels", file.name)
            return []
        unwanted = _unwanted(_words(header.get("ImageType")))
        if unwanted is not None:
            notes.count(unwanted, file.name)
            return []
        _refuse_what_cannot_be_used(file.name, header)
        subject = subject_of_file(file.name, settings, identifier=_identifier(header))
        n_frames = int(header.get("NumberOfFrames") or 1)
        if "PerFrameFunctionalGroupsSequence" in header:
            frames = [_frame(file, header, i, n_frames, subject) for i in range(n_frames)]
        else:
            alike = _frame(file, header, 0, n_frames, subject)
            frames = [replace(alike, index=i, label=_label(file.name, i, n_frames)) for i in range(n_frames)]
    wanted = []
    for frame in frames:
        unwanted = _unwanted(frame.words)
        if unwanted is None:
            wanted.append(frame)
        else:
            notes.count(unwanted, frame.label)
    return wanted


def _label(name: str, index: int, n_frames: int) -> str:
    return name if n_frames == 1 else f"{name}, frame {index + 1}"


def _words(image_type: Any) -> tuple[str, ...]:
    """Return what ImageType says on the kind of image: from its third word on."""
    if image_type is None or isinstance(image_type, str):
        return ()
    return tuple(str(word).upper() for word in list(image_type)[2:] if word is not None)


def _unwanted(words: tuple[str, ...]) -> str | None:
    return next((what for pattern, what in _LEFT_OUT if any(map(pattern.fullmatch, words))), None)


def _identifier(header: Any) -> str | None:
    """PatientID, or, where it was emptied, the study: it is of one patient."""
    for name in ("PatientID", "StudyInstanceUID"):
        value = str(header.get(name) or "").strip()
        if value:
            return f"{name} {value}"
    return None


def _refuse_what_cannot_be_used(name: str, header: Any) -> None:
    from pydicom.pixels.decoders.base import get_decoder

    colours = str(header.get("PhotometricInterpretation", "MONOCHROME2"))
    if int(header.get("SamplesPerPixel") or 1) != 1 or not colours.startswith("MONOCHROME"):
        raise DataError(
            f"{name} is a colour image ({colours}); training needs magnitudes. Leave it out (exclude)."
        )
    if colours == "MONOCHROME1":
        raise DataError(
            f"{name} is stored inverted (MONOCHROME1: low values are bright); training needs magnitudes. "
            "Convert it to MONOCHROME2, or leave it out (exclude)."
        )
    if str(header.get("Modality", "")) == "SEG":
        raise DataError(f"{name} is a segmentation, not an image. Leave it out (exclude).")
    syntax = header.file_meta.TransferSyntaxUID
    if not syntax.is_compressed or syntax.is_deflated:
        return
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError as error:
        raise DataError(
            f"{name} is compressed as {syntax.name} ({syntax}), which pydicom cannot decode. "
            "Decompress it (dcmdjpeg, gdcmconv --raw), or leave it out (exclude)."
        ) from error
    if not decoder.is_available:
        raise DataError(
            f"{name} is compressed as {syntax.name} ({syntax}); pydicom needs another package to decode it: "
            f"{'; or '.join(decoder.missing_dependencies)}. Install one of them with pip, or decompress the "
            "files (dcmdjpeg, gdcmconv --raw)."
        )


def _frame(file: ImageFile, header: Any, index: int, n_frames: int, subject: str) -> _Frame:
    def of(sequence: str, name: str, default: Any = None) -> Any:
        """Look a value up in the frame's own groups, the shared groups, the image itself."""
        per_frame = header.get("PerFrameFunctionalGroupsSequence") or []
        groups = [*per_frame[index : index + 1], *(header.get("SharedFunctionalGroupsSequence") or [])]
        for group in groups:
            items = group.get(sequence) or []
            if items and items[0].get(name) is not None:
                return items[0].get(name)
        value = header.get(name)
        return default if value is None else value

    directions = _numbers(of("PlaneOrientationSequence", "ImageOrientationPatient"), 6)
    position = _numbers(of("PlanePositionSequence", "ImagePositionPatient"), 3)
    spacing = _numbers(of("PixelMeasuresSequence", "PixelSpacing"), 2)
    place = None
    if directions is not None and position is not None:
        place = float(np.dot(np.cross(directions[:3], directions[3:]), position))
    return _Frame(
        path=file.path,
        name=file.name,
        label=_label(file.name, index, n_frames),
        index=index,
        series=str(header.get("SeriesInstanceUID") or file.name.rpartition("/")[0]),
        subject=subject,
        matrix=(int(header.Rows), int(header.Columns)),
        instance=int(header.get("InstanceNumber") or 0),
        place=place,
        spacing_mm=None if spacing is None or min(spacing) <= 0 else (spacing[0], spacing[1]),
        orientation=None if directions is None else orientation_in_words(directions[:3], directions[3:]),
        slope=float(of("PixelValueTransformationSequence", "RescaleSlope", 1.0)),
        intercept=float(of("PixelValueTransformationSequence", "RescaleIntercept", 0.0)),
        words=_words(of("MRImageFrameTypeSequence", "FrameType"))
        + _words([None, None, of("MRImageFrameTypeSequence", "ComplexImageComponent")]),
    )


def _numbers(value: Any, n: int) -> tuple[float, ...] | None:
    if value is None or isinstance(value, str | float) or len(value) != n:
        return None
    numbers = tuple(float(v) for v in value)
    return numbers if np.isfinite(numbers).all() else None


def _pixels(frame: _Frame, stored: dict[Path, NDArray[Any]]) -> NDArray[Any]:
    """Decode one frame and apply its slope and intercept; ``stored`` keeps files of several frames."""
    import pydicom
    from pydicom.errors import BytesLengthException, InvalidDicomError

    if frame.path in stored:
        frames = stored[frame.path]
    else:
        with reading(frame.name, "DICOM", InvalidDicomError, BytesLengthException):
            frames = pydicom.dcmread(frame.path).pixel_array
        if frames.ndim == 3:
            stored[frame.path] = frames
    if frames.ndim == 3 and frame.index >= len(frames):
        raise DataError(f"{frame.label} is announced, but the file has only {len(frames)}.")
    image: NDArray[Any] = frames[frame.index] if frames.ndim == 3 else frames
    if (frame.slope, frame.intercept) == (1.0, 0.0):
        return image
    scaled: NDArray[Any] = image.astype(np.float64) * frame.slope + frame.intercept
    return scaled
