"""fastMRI files: HDF5 with ``reconstruction_rss`` (slice, y, x) and the ISMRMRD header as text."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from reconlib.training.images.errors import DataError, reading
from reconlib.training.images.settings import ImageSettings
from reconlib.training.images.subjects import subject_of_file
from reconlib.training.images.volume import ImageFile, Notes, Volume


def read_fastmri(
    files: Sequence[ImageFile],
    settings: ImageSettings,
    notes: Notes,  # noqa: ARG001  # all readers have one signature
    step: Callable[[int], None],
) -> Iterator[Volume]:
    """Yield the volume of each file. The subject is the attribute ``patient_id``, or the file."""
    import h5py

    for file in files:
        with reading(file.name, "fastMRI .h5"):
            opened = h5py.File(file.path, "r")
        with opened:
            with reading(file.name, "fastMRI .h5"):
                images = opened["reconstruction_rss"]
                shape = getattr(images, "shape", None)
                patient = opened.attrs.get("patient_id")
                header = opened["ismrmrd_header"][()] if "ismrmrd_header" in opened else None
            if shape is None or len(shape) != 3:
                raise DataError(f"{file.name}: reconstruction_rss has shape {shape}, not (slice, y, x).")

            def load(index: int, images: Any = images) -> NDArray[Any]:
                image: NDArray[Any] = images[index]
                return image

            identifier = patient.decode(errors="replace") if isinstance(patient, bytes) else patient
            yield Volume(
                files=(file.name,),
                subject=subject_of_file(
                    file.name, settings, identifier=None if identifier is None else str(identifier)
                ),
                matrix=(int(shape[1]), int(shape[2])),
                n_images=int(shape[0]),
                load=load,
                spacing_mm=_spacing(header, (int(shape[1]), int(shape[2]))),
            )
        step(1)


def _spacing(header: object, matrix: tuple[int, int]) -> tuple[float, float] | None:
    """Divide the field of view of reconSpace by its matrix, where that is the matrix of the images."""
    if not isinstance(header, bytes | str):
        return None
    try:
        root = ElementTree.fromstring(header)
        recon = root.find("{*}encoding/{*}reconSpace")
        if recon is None:
            return None
        n_x, n_y = (int(recon.findtext(f"{{*}}matrixSize/{{*}}{axis}", "")) for axis in "xy")
        fov_x, fov_y = (float(recon.findtext(f"{{*}}fieldOfView_mm/{{*}}{axis}", "")) for axis in "xy")
    except (ElementTree.ParseError, ValueError):
        return None
    return (fov_y / n_y, fov_x / n_x) if (n_y, n_x) == matrix and n_y > 0 and n_x > 0 else None
