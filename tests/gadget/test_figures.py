"""Pictures, read back pixel by pixel."""

import io

import numpy as np
import pytest
from matplotlib import image as pictures

from gadget.errors import FileError
from gadget.figures import save_coils, save_comparison, save_image, window_of


def grey_of(path) -> np.ndarray:
    """Grey levels 0 to 255 (y, x) of a PNG, all colours equal."""
    read = pictures.imread(io.BytesIO(path.read_bytes()), format="png")
    colours = read[..., :3] if read.ndim == 3 else read[..., None]
    assert np.array_equal(colours.min(axis=-1), colours.max(axis=-1))
    return np.round(255 * colours[..., 0]).astype(int)


def levels(values: np.ndarray) -> np.ndarray:
    """Grey levels of values from 0 to 1."""
    return np.round(255 * values.astype(np.float64)).astype(int)


@pytest.fixture
def ramp():
    """Every value from 0 to 1 once, 25 x 40."""
    return np.linspace(0.0, 1.0, 1000, dtype=np.float32).reshape(25, 40)


def test_a_picture_has_the_pixels_of_the_image_in_order(tmp_path, ramp):
    save_image(tmp_path / "a.png", ramp, window=(0.0, 1.0))
    assert np.array_equal(grey_of(tmp_path / "a.png"), levels(ramp))


def test_the_window_is_clipped_at_both_ends(tmp_path, ramp):
    save_image(tmp_path / "a.png", ramp, window=(0.25, 0.75))
    grey = grey_of(tmp_path / "a.png")
    assert set(grey[ramp <= 0.25]) == {0}
    assert set(grey[ramp >= 0.75]) == {255}
    assert grey[12, 20] == round(255 * (float(ramp[12, 20]) - 0.25) / 0.5)


def test_by_default_the_brightest_thousandth_is_white(tmp_path, ramp):
    assert window_of(ramp) == (0.0, pytest.approx(0.999))
    bright = ramp.copy()
    bright[0, 0] = 50.0
    save_image(tmp_path / "a.png", bright * 1e-9)
    assert grey_of(tmp_path / "a.png")[20, 20] > 180


@pytest.mark.parametrize("values", [np.zeros((4, 5)), np.full((4, 5), np.nan), np.full((4, 5), -1.0)])
def test_an_image_without_anything_to_see_is_black(tmp_path, values):
    save_image(tmp_path / "a.png", values)
    assert grey_of(tmp_path / "a.png").max() == 0


def test_one_bright_pixel_is_seen_although_it_is_less_than_a_thousandth(tmp_path):
    values = np.zeros((60, 60))
    values[3, 4] = 7.0
    save_image(tmp_path / "a.png", values)
    assert grey_of(tmp_path / "a.png")[3, 4] == 255


def test_values_that_are_not_finite_do_not_spoil_the_rest(tmp_path, ramp):
    broken = ramp.copy()
    broken[0, 0], broken[0, 1], broken[0, 2] = np.nan, np.inf, -np.inf
    save_image(tmp_path / "a.png", broken, window=(0.0, 1.0))
    grey = grey_of(tmp_path / "a.png")
    assert grey[0, :3].tolist() == [0, 255, 0]
    assert np.array_equal(grey[1:], levels(ramp[1:]))


@pytest.mark.parametrize(
    ("pixel_mm", "size"), [((2.0, 1.0), (50, 40)), ((1.0, 1.5), (25, 60)), ((0.9, 0.9), (25, 40))], ids=str
)
def test_pixels_that_are_not_square_are_stretched(tmp_path, ramp, pixel_mm, size):
    save_image(tmp_path / "a.png", ramp, window=(0.0, 1.0), pixel_mm=pixel_mm)
    grey = grey_of(tmp_path / "a.png")
    assert grey.shape == size
    assert (grey[0, 0], grey[-1, -1]) == (0, 255)
    assert set(np.unique(grey)) <= set(levels(ramp).ravel())


@pytest.mark.parametrize("shape", [(30, 21), (5, 6), (9, 60)], ids=str)
def test_comparisons_are_made_for_any_shape(tmp_path, shape):
    reference = np.random.default_rng(1).uniform(size=shape).astype(np.float32)
    images = {"zero-filled": 0.3 * reference + 0.1, "learned": 2.0 * reference}
    save_comparison(tmp_path / "a.png", images, reference, pixel_mm=(1.0, 1.3))
    with_errors = pictures.imread(io.BytesIO((tmp_path / "a.png").read_bytes()), format="png")
    save_comparison(tmp_path / "b.png", images)
    without = pictures.imread(io.BytesIO((tmp_path / "b.png").read_bytes()), format="png")
    assert with_errors.shape[0] > without.shape[0]
    assert with_errors.shape[1] > without.shape[1]
    assert with_errors[..., :3].std() > 0.1


def test_a_perfect_image_has_a_black_error_map(tmp_path):
    """The right-hand panels of the second row belong to the only image; scaled by 3 it is still perfect."""
    reference = np.random.default_rng(1).uniform(size=(40, 40))
    save_comparison(tmp_path / "a.png", {"same": 3.0 * reference}, reference)
    save_comparison(tmp_path / "b.png", {"other": reference[::-1]}, reference)
    same, other = (
        pictures.imread(io.BytesIO((tmp_path / name).read_bytes()), format="png")
        for name in ("a.png", "b.png")
    )
    lower_right = (
        slice(int(0.7 * same.shape[0]), int(0.9 * same.shape[0])),
        slice(int(0.6 * same.shape[1]), -40),
    )
    assert same[lower_right][..., :3].max() < 0.05
    assert other[lower_right][..., :3].mean() > 0.3


@pytest.mark.parametrize("n_coils", [1, 7, 8, 9, 17])
def test_any_number_of_coils_is_shown(tmp_path, n_coils):
    coils = np.random.default_rng(0).normal(size=(n_coils, 6, 9)) * np.exp(1j * 0.3)
    save_coils(tmp_path / "coils.png", coils)
    assert pictures.imread(io.BytesIO((tmp_path / "coils.png").read_bytes()), format="png").ndim == 3


def test_existing_pictures_are_kept_when_asked(tmp_path, ramp):
    path = tmp_path / "a.png"
    path.write_bytes(b"precious")
    for save in (
        lambda: save_image(path, ramp, overwrite=False),
        lambda: save_comparison(path, {"a": ramp}, overwrite=False),
        lambda: save_coils(path, np.ones((2, 3, 4)) + 0j, overwrite=False),
    ):
        with pytest.raises(FileError, match=r"a\.png exists"):
            save()
    assert path.read_bytes() == b"precious"
    save_image(path, ramp)
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_what_cannot_be_shown_is_refused(tmp_path, ramp):
    path = tmp_path / "a.png"
    with pytest.raises(
        ValueError, match=r"real with the axes \(y, x\); this is float64 of shape \(1, 2, 3\)"
    ):
        save_image(path, np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="complex128"):
        save_image(path, np.zeros((2, 3)) + 0j)
    with pytest.raises(ValueError, match=r"window \(1.0, 1.0\) is empty"):
        save_image(path, ramp, window=(1.0, 1.0))
    with pytest.raises(ValueError, match="positive length"):
        save_image(path, ramp, pixel_mm=(0.0, 1.0))
    with pytest.raises(ValueError, match="at least one"):
        save_comparison(path, {})
    with pytest.raises(ValueError, match=r"Image 'b' has the shape \(2, 3\); the others have \(25, 40\)"):
        save_comparison(path, {"a": ramp, "b": np.zeros((2, 3))})
    with pytest.raises(ValueError, match=r"need the axes \(coil, y, x\)"):
        save_coils(path, np.zeros((3, 4)) + 0j)
    assert not path.exists()
