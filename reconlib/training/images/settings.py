"""Settings of reading images: which files, which slices, which scale, who validates."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Format = Literal["fastmri", "ismrmrd", "nifti", "dicom", "arrays"]
Side = Annotated[int, Field(ge=8)]


class ImageSettings(BaseModel):
    """How a file or folder of magnitude images becomes training and validation images."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # which files
    format: Literal["auto"] | Format = Field(
        default="auto", description="auto: told by content; a folder with two formats needs the name of one"
    )
    files: str | None = Field(
        default=None,
        description="only files whose name or path below the folder matches, e.g. '*_T1w.nii.gz'; null: all",
    )
    exclude: tuple[str, ...] = Field(
        default=(), description="files to leave out, by the same kind of pattern"
    )

    # which images of a file
    central_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="share of the slices of each volume that is kept, the middle ones"
    )
    central_count: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="at most so many of the middle slices of each volume; null: no such limit"
    )
    matrix: tuple[Side, Side] | None = Field(
        default=None, description="use images of this size (y, x) only; null: all must have one size"
    )
    empty_below: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1,
        description="skip images whose brightest part (the percentile) is below this share of the volume's",
    )
    slice_axis: Literal["first", "second", "third", "axial", "coronal", "sagittal"] = Field(
        default="third",
        description="NIfTI: the array axis that counts the slices, or the plane of the slices in the patient",
    )
    volumes: Literal["all", "first"] = Field(
        default="all", description="NIfTI with four dimensions: all volumes, or the first only"
    )
    series: str | None = Field(
        default=None,
        description="ISMRMRD: the image group to read, e.g. image_1; null: the only one",
    )

    # intensities
    scaling: Literal["percentile", "maximum", "as-is"] = Field(
        default="percentile",
        description="what becomes 1: a percentile, the maximum (the paper), or nothing (as-is)",
    )
    percentile: Annotated[float, Field(gt=50, le=100)] = Field(
        default=99.95, description="the percentile of the pixels"
    )
    scale_per: Literal["image", "volume"] = Field(
        default="image", description="each image by its own percentile or maximum, or by that of its volume"
    )
    negatives: Literal["refuse", "zero"] = Field(
        default="refuse",
        description="values below zero: an error, or set to zero (where they are ringing)",
    )
    nan: Literal["refuse", "zero"] = Field(
        default="refuse", description="pixels that are NaN: an error, or set to zero (a masked background)"
    )

    # subjects
    subject: Literal["auto", "file", "folder"] = Field(
        default="auto",
        description="who a file is of. auto: what the file says, else 'sub-01', 'patient12' and the like in "
        "its path, else each file is a subject; file; folder: the first folder below the one that is read",
    )
    subject_pattern: str | None = Field(
        default=None,
        description="regular expression searched in the path below the folder; its first group (or all "
        "of it) names the subject, e.g. '(IXI[0-9]+)'. Overrules subject.",
    )
    validation_subjects: tuple[str, ...] = Field(
        default=(), description="subjects, files or folders that validate; all others train"
    )
    own_validation: bool = Field(
        default=True, description="arrays: follow the file's own array 'validation', where there is one"
    )
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.1, description="share of the subjects that validate, drawn at random (at least one)"
    )
    seed: Annotated[int, Field(ge=0)] = Field(
        default=0, description="of that draw, and of the dither that undoes the rounding of 8-bit archives"
    )

    @field_validator("subject_pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _check(self) -> "ImageSettings":
        if self.scaling == "as-is" and self.scale_per == "volume":
            raise ValueError("scale_per: volume has no meaning with scaling: as-is; choose one of the two")
        return self
