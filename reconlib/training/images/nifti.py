"""NIfTI files (.nii, .nii.gz), read by nibabel."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reconlib.training.images.errors import DataError, reading
from reconlib.training.images.orientation import orientation_in_words
from reconlib.training.images.settings import ImageSettings
from reconlib.training.images.subjects import subject_of_file
from reconlib.training.images.volume import ImageFile, Notes, Volume

_STORED = {"first": (0, 2, 1), "second": (1, 2, 0), "third": (2, 1, 0)}
"""array axes of (slice, y, x)"""
_PLANES = {"axial": (2, 1, 0), "coronal": (1, 2, 0), "sagittal": (0, 2, 1)}
"""axes of the patient (0 right to left, 1 front to back, 2 down to up) of (slice, y, x)"""
_TO_MM = {"meter": 1000.0, "mm": 1.0, "micron": 1e-3, "unknown": 1.0}


@dataclass(frozen=True, slots=True)
class _Layout:
    axes: tuple[int, int, int]
    """array axes of (slice, y, x)"""
    flips: tuple[bool, bool, bool]

    def image(self, volume: NDArray[Any], index: int) -> NDArray[Any]:
        ordered = volume.transpose(self.axes)
        ordered = ordered[tuple(slice(None, None, -1 if flip else 1) for flip in self.flips)]
        image: NDArray[Any] = ordered[index]
        return image


def read_nifti(
    files: Sequence[ImageFile], settings: ImageSettings, notes: Notes, step: Callable[[int], None]
) -> Iterator[Volume]:
    """Yield the volumes of each file, each (slice, y, x) by ``settings.slice_axis``.

    By number (first, second, third) the other two array axes are x and y in their order, as stored. By
    plane, the axes nearest to the patient's are taken and turned as radiologists look at them: axial with
    y to posterior and x to left, coronal with y to inferior and x to left, sagittal with y to inferior and
    x to posterior. scl_slope and scl_inter are applied. One of four dimensions gives a volume for each
    entry of the last.
    """
    import nibabel
    from nibabel.filebasedimages import ImageFileError
    from nibabel.spatialimages import HeaderDataError, ImageDataError

    faults = (ImageFileError, HeaderDataError, ImageDataError)
    for file in files:
        with reading(file.name, "NIfTI", *faults):
            image: Any = nibabel.load(file.path)
            proxy, header, affine = image.dataobj, image.header, image.affine
            oriented = bool(header["qform_code"] > 0 or header["sform_code"] > 0)
            shape, zooms = proxy.shape, np.abs(np.asarray(header.get_zooms()[:3], dtype=float))
            units = _units(header)
            dtype = header.get_data_dtype()
        shape = _checked_shape(file.name, shape, dtype)
        zooms = np.concatenate([zooms, np.ones(3)])[:3] * units
        layout = _layout(file.name, affine if oriented else None, settings.slice_axis)
        spacing = (float(zooms[layout.axes[1]]), float(zooms[layout.axes[2]]))
        n_volumes = shape[3] if settings.volumes == "all" else 1
        if n_volumes < shape[3]:
            notes.count("volumes after the first", file.name, shape[3] - n_volumes)
        data = _Data(file.name, proxy, shape, faults)
        for v in range(n_volumes):

            def load(
                index: int, volume: int = v, data: _Data = data, layout: _Layout = layout
            ) -> NDArray[Any]:
                return data.scaled(layout.image(data.stored()[..., volume], index))

            yield Volume(
                files=(file.name,),
                subject=subject_of_file(file.name, settings),
                matrix=(shape[layout.axes[1]], shape[layout.axes[2]]),
                n_images=shape[layout.axes[0]],
                load=load,
                spacing_mm=spacing,
                orientation=_words(affine, layout) if oriented else None,
            )
        step(1)


class _Data:
    """The numbers of one file, read when the first image is asked for and kept as they are stored."""

    def __init__(
        self, name: str, proxy: Any, shape: tuple[int, ...], faults: tuple[type[Exception], ...]
    ) -> None:
        self._name, self._proxy, self._shape, self._faults = name, proxy, shape, faults
        self._stored: NDArray[Any] | None = None

    def stored(self) -> NDArray[Any]:
        if self._stored is None:
            with reading(self._name, "NIfTI", *self._faults):
                stored: NDArray[Any] = np.asanyarray(self._proxy.get_unscaled()).reshape(
                    self._shape, order="F"
                )
            low, high = stored.min(), stored.max()
            if low < high and bool(((stored == low) | (stored == high)).all()):
                raise DataError(
                    f"{self._name} has only the two values {low} and {high}: it is a mask, not an image. "
                    "Leave it out (exclude)."
                )
            self._stored = stored
        return self._stored

    def scaled(self, image: NDArray[Any]) -> NDArray[Any]:
        slope, intercept = float(self._proxy.slope), float(self._proxy.inter)
        if (slope, intercept) == (1.0, 0.0):
            return image
        scaled: NDArray[Any] = image.astype(np.float64) * slope + intercept
        return scaled


def _checked_shape(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int, int, int]:
    """Return four dimensions; trailing ones do not count."""
    if dtype.names is not None or dtype.kind not in "uif":
        raise DataError(
            f"{name} holds {'colours' if dtype.names else dtype}; training needs magnitude images of real "
            "numbers. Convert it, or leave it out (exclude)."
        )
    sides = list(shape)
    while len(sides) > 4 and sides[-1] == 1:
        sides.pop()
    if not 2 <= len(sides) <= 4 or min(sides) < 1:
        raise DataError(
            f"{name} has shape {shape}; training needs two, three or four dimensions (x, y, z, volume)."
        )
    n_x, n_y, n_z, n_volumes = [*sides, 1, 1][:4]
    return n_x, n_y, n_z, n_volumes


def _layout(name: str, affine: NDArray[Any] | None, slice_axis: str) -> _Layout:
    if slice_axis in _STORED:
        return _Layout(_STORED[slice_axis], (False, False, False))
    if affine is None:
        raise DataError(
            f"{name} does not say how it lies in the patient (qform and sform code are 0), so slice_axis: "
            f"{slice_axis} cannot be found. Use first, second or third."
        )
    from nibabel.orientations import io_orientation

    with reading(name, "NIfTI"):
        to_patient = np.asarray(io_orientation(affine))  # type: ignore[no-untyped-call]  # nibabel's
    if not np.isfinite(to_patient).all():
        raise DataError(
            f"{name} has an orientation matrix that is no orientation, so slice_axis: {slice_axis} cannot be "
            "found. Use first, second or third."
        )
    axes, flips = [], []
    for count, axis in enumerate(_PLANES[slice_axis]):
        (found,) = np.flatnonzero(to_patient[:, 0] == axis)
        axes.append(int(found))
        # NIfTI's axes lead to right, anterior, superior; y and x are wanted the other way
        flips.append(bool(count > 0 and to_patient[found, 1] > 0))
    return _Layout((axes[0], axes[1], axes[2]), (flips[0], flips[1], flips[2]))


def _words(affine: NDArray[Any], layout: _Layout) -> str | None:
    along_y, along_x = (
        affine[:3, axis] * (-1 if flip else 1) * (-1, -1, 1)  # from NIfTI's to DICOM's directions
        for axis, flip in zip(layout.axes[1:], layout.flips[1:], strict=True)
    )
    return orientation_in_words(along_x, along_y)


def _units(header: Any) -> float:
    try:
        return _TO_MM.get(header.get_xyzt_units()[0], 1.0)
    except KeyError:
        return 1.0
