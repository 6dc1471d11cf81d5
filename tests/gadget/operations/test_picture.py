"""Pictures for the monitor, read back by matplotlib; the colours are its own."""

import io

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib import image as picture_files
from watched import image

from gadget.image_meta import read_meta
from gadget.operations.picture import LARGEST_SIDE, picture_of
from gadget.operations.png import PALETTES, encode_palette, encode_png


def made(message, name="image", window=None):
    return picture_of(message, read_meta(message), name, window)


def decoded(png: bytes) -> np.ndarray:
    """Red, green, blue, 0 to 255 (y, x, 3)."""
    return np.rint(255 * picture_files.imread(io.BytesIO(png))[..., :3]).astype(int)


def test_a_png_is_read_back_level_by_level():
    levels = np.random.default_rng(3).integers(0, 256, (5, 7), dtype=np.uint8)

    pixels = decoded(encode_png(levels, PALETTES["grey"]))

    assert (pixels == levels[..., None]).all()


def test_the_colours_are_those_of_magma():
    theirs = 255 * colormaps["magma"](np.arange(256))[:, :3]

    assert np.abs(PALETTES["magma"] - theirs).max() <= 3
    assert (decoded(encode_palette("magma"))[0] == PALETTES["magma"]).all()


def test_black_is_zero_and_white_the_brightest_but_a_thousandth():
    values = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    values[99, 99] = 1e9  # one hot pixel

    picture = made(image(pixels=values))

    assert picture.window == pytest.approx((0, np.percentile(values, 99.9)))
    assert picture.window[1] < 10_000
    assert picture.levels[0, 0] == 0
    assert picture.levels[99, 99] == 255
    half = int(picture.window[1] / 2)
    assert picture.levels.reshape(-1)[half] in (127, 128)


def test_integer_pixels_are_shown_in_the_units_of_the_image():
    pixels = np.full((4, 5), 100, np.uint16)

    assert made(image(pixels=pixels, RescaleSlope=0.5, RescaleIntercept=2)).window == (0, 52)


@pytest.mark.parametrize(
    ("component", "pixels", "window"),
    [
        ("phase", np.full((3, 4), 1, np.float32), (-np.pi, np.pi)),
        ("real", np.full((3, 4), -2, np.float32), (-2, 2)),
        ("complex", np.full((3, 4), 3 + 4j, np.complex64), (0, 5)),
    ],
)
def test_components_have_windows_of_their_own(component, pixels, window):
    assert made(image(pixels=pixels, Component=component)).window == pytest.approx(window)


def test_a_mean_can_be_compared_with_its_image():
    picture = made(image(pixels=np.full((3, 4), 5, np.float32), Image="POSTERIOR_MEAN"), window=(0, 10))

    assert (picture.levels == 128).all()
    assert picture.palette == "grey"


def test_a_standard_deviation_is_in_colours():
    assert made(image(Image="POSTERIOR_STD")).palette == "magma"


def test_the_picture_has_the_proportions_of_the_field_of_view():
    assert made(image(fov=(100, 250, 5))).aspect == 0.4
    assert made(image(pixels=np.ones((4, 6), np.float32))).aspect == 1.5  # no field of view: square pixels
    assert made(image(fov=(1e30, 1, 5))).aspect == 10


def test_of_a_large_image_every_second_pixel_is_shown():
    picture = made(image(pixels=np.ones((20, 2 * LARGEST_SIDE), np.float32)))

    assert picture.levels.shape == (10, LARGEST_SIDE)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_pixels_that_are_no_numbers_or_all_zero_make_a_black_picture(value):
    picture = made(image(pixels=np.full((3, 4), value, np.float32)))

    assert (picture.levels == 0).all()
    assert picture.window == (0, 1)


@pytest.mark.parametrize("slope", ["nan", "inf", "many", "1e400"])
def test_a_scaling_that_is_no_number_is_not_used(slope):
    assert made(image(pixels=np.full((3, 4), 2, np.uint16), RescaleSlope=slope)).window == (0, 2)


def test_no_pixels_no_picture():
    assert made(image(pixels=np.zeros((0, 4), np.float32))) is None
