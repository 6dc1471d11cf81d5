"""The picture of a slice's uncertainty."""

import io

import numpy as np
import pytest
from matplotlib import image as pictures

from gadget.errors import FileError
from gadget.posterior_figures import save_posterior


def read(path) -> np.ndarray:
    """Colours 0 to 1 (y, x, 3) of a PNG."""
    return pictures.imread(io.BytesIO(path.read_bytes()), format="png")[..., :3]


@pytest.fixture
def image():
    """A disc of brightness 1 to 2, dark outside."""
    y, x = np.mgrid[-1:1:40j, -1:1:30j]
    return np.where(np.hypot(x, y) < 0.8, 1.5 + y / 2, 0.001).astype(np.float32)


@pytest.mark.parametrize("factor", [1e-9, 1e6, 0.0])
def test_the_picture_shows_reconstruction_mean_and_deviation_in_any_units(tmp_path, image, factor):
    save_posterior(
        tmp_path / "a.png", factor * image, factor * image, factor * image / 20, pixel_mm=(1.0, 1.4)
    )

    picture = read(tmp_path / "a.png")
    assert picture.shape[1] > 2.5 * picture.shape[0]
    assert picture.std() > 0.1
    right = picture[:, int(0.77 * picture.shape[1]) :]
    grey = np.isclose(right, 128 / 255, atol=0.01).all(axis=-1)
    coloured = np.ptp(right, axis=-1) > 0.2
    # Air has no relative deviation, and the disc has one, whatever the units.
    assert grey.mean() > (0.2 if factor else 0.5)
    assert bool(coloured[: int(0.75 * len(right))].mean() > 0.2) is bool(factor)


def test_the_units_of_the_image_change_the_numbers_and_nothing_else(tmp_path, image):
    save_posterior(tmp_path / "a.png", 1e6 * image, 1e6 * image, 1e6 * image / 20)
    save_posterior(tmp_path / "b.png", 1e7 * image, 1e7 * image, 1e7 * image / 20)

    one, other = read(tmp_path / "a.png"), read(tmp_path / "b.png")
    differs = np.abs(one - other).max(axis=-1) > 0.05
    assert 0 < differs.sum() < 500
    assert not differs[: int(0.75 * len(one))].any()


def test_a_wider_deviation_at_one_place_is_seen_in_both_maps(tmp_path, image):
    """The two right-hand panels have colours; the place stands in the lower left quarter of the disc."""
    std = image / 20
    spoilt = std.copy()
    spoilt[26:30, 8:11] *= 4
    save_posterior(tmp_path / "a.png", image, image, std)
    save_posterior(tmp_path / "b.png", image, image, spoilt)

    one, other = read(tmp_path / "a.png"), read(tmp_path / "b.png")
    differs = np.abs(one - other).max(axis=-1) > 0.1
    columns = np.nonzero(differs[: int(0.75 * one.shape[0])].any(axis=0))[0] / one.shape[1]
    assert ((columns > 0.5) & (columns < 0.75)).any()
    assert (columns > 0.75).any()
    assert not (columns < 0.5).any()


def test_images_of_different_shape_are_refused(tmp_path, image):
    with pytest.raises(
        ValueError, match=r"the standard deviation has the shape \(30, 40\), the image \(40, 30\)"
    ):
        save_posterior(tmp_path / "a.png", image, image, image.T)


def test_an_existing_picture_is_kept_when_asked(tmp_path, image):
    (tmp_path / "a.png").write_bytes(b"precious")

    with pytest.raises(FileError, match=r"a\.png exists"):
        save_posterior(tmp_path / "a.png", image, image, image, overwrite=False)
