"""Known images, and files of every format with them, written by the programs that own the formats."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import ismrmrd
import nibabel
import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid

from reconlib.training.images import ImageSet

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)

FASTMRI_HEADER = """<?xml version="1.0"?><ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD"><encoding>
<encodedSpace><matrixSize><x>40</x><y>20</y><z>1</z></matrixSize></encodedSpace>
<reconSpace><matrixSize><x>{x}</x><y>{y}</y><z>1</z></matrixSize>
<fieldOfView_mm><x>{fov_x}</x><y>{fov_y}</y><z>3</z></fieldOfView_mm></reconSpace></encoding></ismrmrdHeader>"""


def known_images(n: int, y: int = 12, x: int = 10, seed: int = 0) -> NDArray[np.float32]:
    """Make n images (y, x) of values in [0, 1], all different, each with its own maximum of at least 0.5."""
    rng = np.random.default_rng(seed)
    images = rng.uniform(0, 0.5, (n, y, x))
    images[:, y // 2, x // 2] = rng.uniform(0.5, 1, n)
    return images.astype(np.float32)


def all_of(images: ImageSet) -> NDArray[np.float32]:
    """Return all images, in an order that does not depend on the split: by their sum."""
    both = np.concatenate([images.training.numpy(), images.validation.numpy()]).astype(np.float32)
    return both[np.argsort(both.sum((1, 2)))]


def by_sum(images: NDArray[Any]) -> NDArray[np.float32]:
    return images[np.argsort(images.sum((1, 2), dtype=np.float64))].astype(np.float32)


def write_fastmri(
    path: Path, images: NDArray[Any], *, patient: str | None = None, **header: float | str
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["reconstruction_rss"] = images
        if patient is not None:
            file.attrs["patient_id"] = patient
        if header:
            file["ismrmrd_header"] = FASTMRI_HEADER.format(**header)
    return path


def write_ismrmrd(
    path: Path,
    images: Sequence[NDArray[Any]],
    *,
    group: str = "image_1",
    slices: Sequence[int] | None = None,
    patient: str | None = None,
    **header: Any,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with ismrmrd.Dataset(str(path)) as file:
        if patient is not None:
            file.write_xml_header(
                f"<ismrmrdHeader><subjectInformation><patientID>{patient}</patientID>"
                "</subjectInformation></ismrmrdHeader>".encode()
            )
        for i, pixels in enumerate(images):
            image = ismrmrd.Image.from_array(pixels, transpose=False)
            image.slice = i if slices is None else slices[i]
            for name, value in header.items():
                setattr(image, name, value)
            file.append_image(group, image)
    return path


def write_nifti(
    path: Path, array: NDArray[Any], *, affine: NDArray[Any] | None = None, **header: Any
) -> Path:
    """Write an array (x, y, z) or (x, y, z, volume) as nibabel does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(array, np.diag([0.9, 1.1, 3.0, 1.0]) if affine is None else affine)
    for name, value in header.items():
        image.header[name] = value
    nibabel.save(image, path)
    return path


def dicom(
    pixels: NDArray[Any], *, patient: str = "DOE1234", series: str = "1.2.3", **attributes: Any
) -> Dataset:
    """Make a single-frame (y, x) or multi-frame (frame, y, x) MR image of uint16 or int16 pixels."""
    image = Dataset()
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image.file_meta.MediaStorageSOPClassUID = MRImageStorage
    image.SOPClassUID = MRImageStorage
    image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    image.PatientID, image.PatientName = patient, "Doe^Jane"
    image.StudyInstanceUID, image.SeriesInstanceUID = f"{series}.1", series
    image.Modality = "MR"
    image.ImageType = ["ORIGINAL", "PRIMARY", "M", "ND"]
    image.Rows, image.Columns = pixels.shape[-2:]
    if pixels.ndim == 3:
        image.NumberOfFrames = len(pixels)
    image.SamplesPerPixel = 1
    image.PhotometricInterpretation = "MONOCHROME2"
    image.BitsAllocated = image.BitsStored = 16
    image.HighBit = 15
    image.PixelRepresentation = int(pixels.dtype.kind == "i")
    image.PixelData = pixels.tobytes()
    for name, value in attributes.items():
        setattr(image, name, value)
    return image


def write_dicom(path: Path, image: Dataset) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pydicom.dcmwrite(path, image, enforce_file_format=True)
    return path
