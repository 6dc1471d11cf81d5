"""PNG pictures of images, to look at: one of each, and one of each slice's uncertainty."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gadget.errors import FileError
from gadget.figures import save_image, save_phase, window_of
from gadget.finished_slice import FinishedSlice
from gadget.image_meta import read_meta
from gadget.posterior_figures import save_posterior
from gadget.series import IMAGE_TYPES, POSTERIOR_MEAN, POSTERIOR_STD, RECONSTRUCTION
from gadget.typicality_figures import save_typicality
from gadget.wire.messages import Image

POSTERIOR = (POSTERIOR_MEAN.name, POSTERIOR_STD.name)


class PictureFolder:
    """A folder of pictures, made with the first one.

    Images that came from elsewhere get pictures, too; those of a posterior are shown together, beside the
    reconstruction that they belong to.
    """

    def __init__(self, folder: Path, *, overwrite: bool) -> None:
        self._folder = folder
        self._overwrite = overwrite
        self._incomplete: dict[int, dict[str, Image]] = {}
        """By image index, and in it by name of the series: what waits for the rest of its slice."""

    def add(self, image: Image) -> None:
        """Save a picture of an image: ``image_1_0001_slice_3.png``, for series, number, slice.

        A phase is shown in the colours of a circle, a real part with 0 in mid-grey, a complex image by its
        magnitude. With the last one of a slice, also ``posterior_0001_slice_3.png``, where its magnitude
        was sent.
        """
        kind = read_meta(image).get("EBM_Image", "")
        series, index, slice_ = (
            int(image.header[name]) for name in ("image_series_index", "image_index", "slice")
        )
        if kind not in POSTERIOR:
            self._save(image, self._path(f"image_{series}_{index:04d}_slice_{slice_}.png"))
        if not kind or int(image.header["image_type"]) != IMAGE_TYPES["magnitude"]:
            return
        of_slice = self._incomplete.setdefault(index, {})
        of_slice[kind if kind in POSTERIOR else RECONSTRUCTION.name] = image
        if len(of_slice) == 1 + len(POSTERIOR):
            reconstruction, mean, std = (of_slice[name] for name in (RECONSTRUCTION.name, *POSTERIOR))
            save_posterior(
                self._path(f"posterior_{index:04d}_slice_{slice_}.png"),
                _values(reconstruction),
                _values(mean),
                _values(std),
                comment=str(read_meta(std).get("ImageComments", "")),
                pixel_mm=_pixel_mm(image),
                overwrite=self._overwrite,
            )
            # They come in order: whoever is still incomplete before this one has no posterior.
            self._incomplete = {other: kept for other, kept in self._incomplete.items() if other > index}

    def add_typicality(self, finished: FinishedSlice) -> None:
        """Save where an image is unusual, ``typicality_0001_slice_3.png``, if its prior can tell."""
        found = finished.result.typicality
        if found is None or found.region_map is None:
            return
        index, context = int(finished.image.header["image_index"]), finished.slice.context
        (n_x, n_y), (fov_x, fov_y) = context.grid_matrix, context.grid_fov_mm
        save_typicality(
            self._path(f"typicality_{index:04d}_slice_{context.slice}.png"),
            np.abs(finished.result.image),
            found,
            pixel_mm=(fov_y / n_y, fov_x / n_x),
            overwrite=self._overwrite,
        )

    def _save(self, image: Image, path: Path) -> None:
        component = read_meta(image).get("EBM_Component", "")  # images of other origin have none
        if component == "phase":
            save_phase(path, _values(image), pixel_mm=_pixel_mm(image), overwrite=self._overwrite)
            return
        if component == "real":
            values = _values(image)
            top = window_of(np.abs(values))[1]
            window = (-top, top)
        else:
            values = np.abs(image.data[0, 0]).astype(np.float32)
            window = window_of(values)
        save_image(path, values, window, pixel_mm=_pixel_mm(image), overwrite=self._overwrite)

    def _path(self, name: str) -> Path:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"Cannot make the folder {self._folder} for pictures: {error}.") from error
        return self._folder / name


def _values(image: Image) -> NDArray[np.float32]:
    """Return the real pixels (y, x) in the units that the rescaling leads to."""
    meta = read_meta(image)
    slope, intercept = float(meta.get("RescaleSlope", "1")), float(meta.get("RescaleIntercept", "0"))
    return np.asarray(image.data[0, 0] * slope + intercept, np.float32)


def _pixel_mm(image: Image) -> tuple[float, float]:
    """Return the sides of a pixel along y and x; squares where the header does not say it."""
    n_x, n_y, _ = (int(size) for size in image.header["matrix_size"])
    fov_x, fov_y, _ = (float(size) for size in image.header["field_of_view"])
    return (fov_y / n_y, fov_x / n_x) if min(fov_x, fov_y) > 0 else (1.0, 1.0)
