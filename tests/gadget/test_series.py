"""Images for the scanner: recon matrix, header, meta, pixels."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import ismrmrd
import numpy as np
import pytest
import torch
from synthetic_scan import OBJECT, Spot, image_of, inverse_transform, kspace_of

from gadget.errors import OwnProtocolError
from gadget.image_meta import read_meta
from gadget.pixels import PixelType
from gadget.recon_grid import map_to_recon_grid, to_recon_grid
from gadget.scan.context import ScanContext
from gadget.series import (
    POSTERIOR_MEAN,
    POSTERIOR_STD,
    RECONSTRUCTION,
    image_header,
    reconstruction_image,
    serialize_meta,
    series_image,
    to_ismrmrd_image,
)


def context(**changes: object) -> ScanContext:
    values: dict[str, object] = {
        "encoding_index": 0,
        "slice": 4,
        "contrast": 1,
        "phase": 2,
        "repetition": 3,
        "set": 5,
        "average": 6,
        "encoded_matrix": (80, 45, 1),
        "recon_matrix": (40, 45, 1),
        "recon_fov_mm": (120.0, 135.0, 5.0),
        "grid_matrix": (40, 45),
        "grid_fov_mm": (120.0, 135.0),
        "measurement_uid": 4_000_000_000,
        "acquisition_time_stamp": 4_100_000_000,
        "physiology_time_stamp": (7, 8, 9),
        "position": (1.5, -2.5, 30.25),
        "read_dir": (0.0, 1.0, 0.0),
        "phase_dir": (0.6, 0.0, 0.8),
        "slice_dir": (0.8, 0.0, -0.6),
        "patient_table_position": (0.0, 0.0, -17.5),
        "user_int": (-1, 2, 3, 4, 5, 6, 7, 2_000_000_000),
        "user_float": (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5),
        "n_coils": 3,
        "n_lines": 45,
        "n_calibration_lines": 0,
        "n_lines_announced": 45,
        "n_averages": 1,
        "is_complete": True,
        "is_prewhitened": True,
        "notes": ("45 of 45 lines measured", "prewhitened"),
        **changes,
    }
    return ScanContext(**values)  # type: ignore[arg-type]


def magnitude(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(2.0, size=(45, 40)).astype(np.float32)


def meta_of(text: str) -> dict[str, list[str]]:
    root = ElementTree.fromstring(text)
    assert root.tag == "ismrmrdMeta"
    return {
        node.findtext("name", ""): [value.text or "" for value in node.findall("value")]
        for node in root.findall("meta")
    }


# Recon matrix


SPOTS = tuple(
    Spot(x=spot.x, y=spot.y, width=spot.width, amplitudes=(1 + i * 0.5j,)) for i, spot in enumerate(OBJECT)
)


@pytest.mark.parametrize(
    ("grid", "grid_fov", "recon", "recon_fov"),
    [
        ((40, 45), (120.0, 135.0), (40, 45), (120.0, 135.0)),
        ((40, 90), (120.0, 270.0), (40, 45), (120.0, 135.0)),  # phase oversampling
        ((41, 76), (123.0, 228.0), (40, 45), (120.0, 135.0)),  # odd to even and even to odd
        ((80, 45), (240.0, 135.0), (40, 45), (120.0, 135.0)),  # a readout that kept its oversampling
        ((40, 45), (120.0, 135.0), (80, 90), (120.0, 135.0)),  # interpolation
        ((40, 45), (120.0, 135.0), (75, 61), (120.0, 135.0)),  # other numbers, odd
        ((40, 63), (120.0, 189.0), (64, 64), (120.0, 135.0)),  # interpolation and oversampling
        ((60, 65), (120.0, 135.0), (40, 45), (120.0, 135.0)),  # fewer pixels than measured
        ((40, 45), (120.0, 135.0), (48, 51), (144.0, 153.0)),  # a larger field of view
        ((43, 45), (130.0, 135.0), (40, 45), (120.0, 135.0)),  # no whole number of pixels
    ],
    ids=str,
)
def test_the_recon_matrix_shows_the_object_in_place(
    grid: tuple[int, int],
    grid_fov: tuple[float, float],
    recon: tuple[int, int],
    recon_fov: tuple[float, float],
) -> None:
    image = inverse_transform(kspace_of(SPOTS, grid, grid_fov))[0].astype(np.complex64)
    scan = context(
        grid_matrix=grid, grid_fov_mm=grid_fov, recon_matrix=(*recon, 1), recon_fov_mm=(*recon_fov, 5.0)
    )
    # Where the field of view is not a whole number of pixels, the pixel's size is the nearest possible one
    sizes = [round(recon[i] * grid_fov[i] / recon_fov[i]) for i in range(2)]
    exact_fov = tuple(recon[i] * grid_fov[i] / sizes[i] for i in range(2))
    expected = image_of(SPOTS, recon, exact_fov)[0]
    inside = slice(2, -2)
    np.testing.assert_allclose(
        to_recon_grid(image, scan)[inside, inside], expected[inside, inside], atol=2e-4
    )
    sent = reconstruction_image(image, scan, image_index=1)
    np.testing.assert_allclose(sent.data[0, 0][inside, inside], np.abs(expected)[inside, inside], atol=2e-4)
    assert sent.header["matrix_size"].tolist() == [*recon, 1]
    assert sent.header["field_of_view"].tolist() == [*recon_fov, 5.0]


def test_pixels_stay_as_they_are_where_nothing_is_interpolated() -> None:
    image = magnitude()
    sent = reconstruction_image(image, context(), image_index=1)
    assert sent.data.shape == (1, 1, 45, 40)
    assert sent.data.dtype == np.float32
    assert (sent.data[0, 0] == image).all()
    wide = np.zeros((90, 41), np.float32)
    wide[45, 20] = 7.0  # the pixel n // 2 of both axes
    scan = context(grid_matrix=(41, 90), grid_fov_mm=(123.0, 270.0))
    cropped = reconstruction_image(wide, scan, image_index=1).data[0, 0]
    assert cropped[22, 20] == 7.0
    assert cropped.sum() == 7.0


def test_draws_are_mapped_as_a_batch_and_linearly() -> None:
    """What a posterior's draws go through is what the image goes through, for any batch of them."""
    scan = context(grid_matrix=(40, 63), grid_fov_mm=(120.0, 189.0), recon_matrix=(64, 64, 1))
    generator = torch.Generator().manual_seed(3)
    draws = torch.complex(*torch.randn(2, 2, 3, 63, 40, generator=generator))

    mapped = map_to_recon_grid(draws, scan)

    assert mapped.shape == (2, 3, 64, 64)
    np.testing.assert_allclose(mapped[1, 2].numpy(), to_recon_grid(draws[1, 2].numpy(), scan), atol=1e-6)
    combined = map_to_recon_grid(draws[0] * (2 - 1j) + draws[1], scan)
    torch.testing.assert_close(combined, mapped[0] * (2 - 1j) + mapped[1], rtol=1e-5, atol=1e-5)


# Header


def test_the_image_header_holds_what_the_context_knows() -> None:
    header = reconstruction_image(magnitude(), context(), image_index=34).header
    for name in ("slice", "contrast", "phase", "repetition", "set", "average", "measurement_uid"):
        assert header[name] == getattr(context(), name)
    assert header["acquisition_time_stamp"] == 4_100_000_000
    assert header["physiology_time_stamp"].tolist() == [7, 8, 9]
    for name in ("position", "read_dir", "phase_dir", "slice_dir", "patient_table_position"):
        assert header[name].tolist() == pytest.approx(getattr(context(), name))
    assert header["user_int"].tolist() == [-1, 2, 3, 4, 5, 6, 7, 2_000_000_000]
    assert header["user_float"].tolist() == [i + 0.5 for i in range(8)]
    assert header["matrix_size"].tolist() == [40, 45, 1]
    assert header["field_of_view"].tolist() == [120.0, 135.0, 5.0]
    assert (header["version"], header["channels"], header["image_type"], header["data_type"]) == (1, 1, 1, 5)
    assert (header["image_index"], header["image_series_index"]) == (34, 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_indx": 3}, "An ISMRMRD image header has no field 'image_indx'"),
        ({"image_index": 70000}, "'image_index' cannot hold 70000: it takes whole numbers from 0 to 65535"),
        ({"image_series_index": -1}, "'image_series_index' cannot hold -1"),
        ({"measurement_uid": 2**32}, "'measurement_uid' cannot hold 4294967296"),
        ({"slice": 1.5}, "'slice' cannot hold 1.5: it takes whole numbers"),
    ],
)
def test_header_fields_are_checked_and_never_wrap(fields: dict[str, int], message: str) -> None:
    with pytest.raises(OwnProtocolError, match=message):
        image_header(context(), **fields)


def test_values_of_the_context_are_checked_too() -> None:
    with pytest.raises(OwnProtocolError, match="'user_int' cannot hold 3000000000"):
        image_header(context(user_int=(3_000_000_000, *range(7))))
    with pytest.raises(OwnProtocolError, match="'repetition' cannot hold 65536"):
        image_header(context(repetition=65536))


def test_an_image_of_another_shape_than_its_slice_is_refused() -> None:
    with pytest.raises(
        OwnProtocolError, match=r"shape \(40, 45\), but its slice was assembled on \(45, 40\)"
    ):
        reconstruction_image(magnitude().T, context(), image_index=1)


def test_an_image_of_another_matrix_than_the_header_says_is_refused() -> None:
    with pytest.raises(OwnProtocolError, match=r"shape \(40, 45\), but the recon matrix is \(45, 40\)"):
        series_image(magnitude().T, context(), POSTERIOR_STD, image_index=1)


def test_the_series_are_told_apart_by_index_type_and_description() -> None:
    told = set()
    for series in (RECONSTRUCTION, POSTERIOR_MEAN, POSTERIOR_STD):
        sent = series_image(magnitude(), context(), series, image_index=7)
        meta = read_meta(sent)
        assert int(sent.header["image_index"]) == 7
        assert meta["SequenceDescriptionAdditional"] == meta["SeriesDescriptionAdditional"]
        told.add(
            (int(sent.header["image_series_index"]), meta["ImageType"], meta["SeriesDescriptionAdditional"])
        )
    assert told == {
        (1, "DERIVED\\PRIMARY\\M", "EBM"),
        (2, "DERIVED\\PRIMARY\\M\\MEAN", "EBM_MEAN"),
        (3, "DERIVED\\PRIMARY\\M\\STD_DEVIATION", "EBM_STD"),
    }


@pytest.mark.parametrize("text", ["", "no XML", "<a>", "\0"])
def test_a_meta_that_cannot_be_read_is_none(text: str) -> None:
    sent = reconstruction_image(magnitude(), context(), image_index=1)

    assert read_meta(replace(sent, meta=text)) == {}


def test_an_image_that_is_not_finite_is_refused() -> None:
    image = magnitude()
    image[3, 4] = np.nan
    with pytest.raises(OwnProtocolError, match=r"slice 4, contrast 1, .* holds 1 NaN or infinite pixels"):
        reconstruction_image(image, context(), image_index=1)


# Pixels


@pytest.mark.parametrize(("pixel_type", "code"), [(PixelType.UINT16, 1), (PixelType.INT16, 2)])
def test_integer_pixels_give_the_values_back_to_half_a_slope(pixel_type: PixelType, code: int) -> None:
    image = magnitude() * 1e-6
    sent = reconstruction_image(image, context(), image_index=1, pixel_type=pixel_type)
    meta = meta_of(sent.meta)
    slope, intercept = float(meta["RescaleSlope"][0]), float(meta["RescaleIntercept"][0])
    assert sent.data.dtype == np.dtype(pixel_type.value)
    assert sent.header["data_type"] == code
    assert sent.data.max() == 4095
    back = sent.data[0, 0].astype(np.float64) * slope + intercept
    assert np.abs(back - image).max() <= slope / 2 * (1 + 1e-6)
    assert "ClippedPixels" not in meta


def test_a_given_slope_is_used_and_what_it_clips_is_counted() -> None:
    image = np.zeros((45, 40), np.float32)
    image[0, :3] = (100.0, 40000.0, 66000.0)
    clipped = reconstruction_image(image, context(), image_index=1, pixel_type=PixelType.INT16, slope=1.0)
    assert clipped.data[0, 0, 0, :3].tolist() == [100, 32767, 32767]
    assert meta_of(clipped.meta)["ClippedPixels"] == ["2"]
    assert meta_of(clipped.meta)["RescaleSlope"] == ["1.0"]
    for slope in (0.0, -1.0, float("nan")):
        with pytest.raises(OwnProtocolError, match=r"slope of integer pixels is .*; it must be"):
            reconstruction_image(image, context(), image_index=1, pixel_type=PixelType.UINT16, slope=slope)


def test_an_image_of_zeros_is_sent_as_zeros() -> None:
    zeros = np.zeros((45, 40), np.float32)
    for pixel_type in PixelType:
        sent = reconstruction_image(zeros, context(), image_index=1, pixel_type=pixel_type)
        assert not sent.data.any()
        assert meta_of(sent.meta)["WindowWidth"] == ["1.0"]


# Meta


def test_the_attributes_that_scanners_read_are_there() -> None:
    sent = reconstruction_image(
        magnitude(),
        context(),
        image_index=1,
        meta={"ImageComments": "total variation", "Iterations": 80, "PriorWeight": 1.25e-7},
    )
    meta = meta_of(sent.meta)
    assert meta["DataRole"] == ["Image"]
    assert meta["ImageType"] == ["DERIVED\\PRIMARY\\M"]
    assert meta["ImageProcessingHistory"] == ["GADGETRON-EBM"]
    assert meta["Keep_image_geometry"] == ["1"]
    assert meta["SequenceDescriptionAdditional"] == meta["SeriesDescriptionAdditional"] == ["EBM"]
    assert [float(v) for v in meta["ImageRowDir"]] == [0.0, 1.0, 0.0]
    assert [float(v) for v in meta["ImageColumnDir"]] == [0.6, 0.0, 0.8]
    assert float(meta["WindowWidth"][0]) == pytest.approx(np.quantile(magnitude(), 0.999))
    assert float(meta["WindowCenter"][0]) == pytest.approx(float(meta["WindowWidth"][0]) / 2)
    assert meta["ScanNotes"] == ["45 of 45 lines measured", "prewhitened"]
    assert meta["ImageComments"] == ["total variation"]
    assert meta["Iterations"] == ["80"]
    assert float(meta["PriorWeight"][0]) == 1.25e-7
    assert "RescaleSlope" not in meta
    assert sent.header["attribute_string_len"] == len(sent.meta.encode())


def test_an_image_from_incomplete_data_says_so_and_unknown_directions_are_left_out() -> None:
    scan = context(is_complete=False, read_dir=(0.0, 0.0, 0.0))
    meta = meta_of(reconstruction_image(magnitude(), scan, image_index=1).meta)
    assert meta["ImageComments"] == ["gadgetron-ebm: INCOMPLETE DATA"]
    assert "ImageRowDir" not in meta


def test_meta_is_escaped_ascii_that_the_ismrmrd_package_reads_back() -> None:
    values = {
        "Text": 'a < b & "c" > d',
        "Umlaut": "Schädel \N{GREEK SMALL LETTER SIGMA}",
        "Control": "a\x00b\x1bc",
        "Number": np.float32(0.1),
        "List": [1.5, 2.0],
        "Yes": True,
    }
    text = serialize_meta(values)  # type: ignore[arg-type]
    assert text.isascii()
    meta = ismrmrd.Meta.deserialize(text)
    assert meta["Text"] == 'a < b & "c" > d'
    assert meta["Umlaut"] == "Schädel \N{GREEK SMALL LETTER SIGMA}"
    assert meta["Control"] == "abc"
    assert np.float32(meta["Number"]) == np.float32(0.1)
    assert [float(v) for v in meta["List"]] == [1.5, 2.0]
    assert meta["Yes"] == "True"


def test_the_ismrmrd_package_writes_and_reads_the_image(tmp_path: Path) -> None:
    sent = reconstruction_image(magnitude(), context(), image_index=9)
    with ismrmrd.Dataset(str(tmp_path / "images.h5"), "dataset") as file:
        file.append_image("image_2", to_ismrmrd_image(sent))
        file.append_image("image_2", to_ismrmrd_image(replace(sent, meta=sent.meta + "\0")))
    with ismrmrd.Dataset(str(tmp_path / "images.h5"), "dataset", create_if_needed=False) as file:
        assert file.number_of_images("image_2") == 2
        back = file.read_image("image_2", 1)
    assert (back.data[0, 0] == magnitude()).all()
    assert (back.image_index, back.image_series_index, back.slice) == (9, 1, 4)
    assert tuple(back.getHead().position) == (1.5, -2.5, 30.25)
    assert back.getHead().measurement_uid == 4_000_000_000
    assert back.meta["DataRole"] == "Image"
