"""The picture of where an image is unusual."""

import io

import numpy as np
import pytest
import torch
from matplotlib import image as pictures

from gadget.typicality_figures import save_typicality
from reconlib.priors.typicality import Typicality


def found(region_map: torch.Tensor | None) -> Typicality:
    return Typicality(word="unusual", sentence="unusual: a sentence", region_map=region_map, region_side=16)


def right_panel(path) -> np.ndarray:
    """Colours 0 to 1 (y, x, 3) of the map of regions, without titles and colour bar."""
    picture = pictures.imread(io.BytesIO(path.read_bytes()), format="png")[..., :3]
    height, width = picture.shape[:2]
    return picture[int(0.2 * height) : int(0.75 * height), int(0.55 * width) : int(0.95 * width)]


def share_of(colours: np.ndarray, *, strongest: int, weakest: int) -> float:
    return float((colours[..., strongest] > colours[..., weakest] + 0.3).mean())


def test_regions_of_little_energy_are_blue_of_much_red_and_air_is_grey(tmp_path):
    """The image has 48 x 30 pixels, so the last regions of a row are cut."""
    rows = torch.tensor([[1.0, 1.0], [99.0, 99.0], [torch.nan, torch.nan]])
    save_typicality(tmp_path / "a.png", np.ones((48, 30), np.float32), found(rows))

    panel = right_panel(tmp_path / "a.png")
    blue, red = (share_of(panel, strongest=s, weakest=w) for s, w in ((2, 0), (0, 2)))
    grey = float((np.ptp(panel, axis=-1) < 0.02).mean())
    assert min(blue, red, grey) > 0.1
    top, bottom = np.array_split(panel, 2)
    assert share_of(top, strongest=2, weakest=0) > share_of(bottom, strongest=2, weakest=0)


def test_without_a_map_there_is_no_picture(tmp_path):
    with pytest.raises(ValueError, match="no map of regions to show; only local priors"):
        save_typicality(tmp_path / "a.png", np.ones((40, 30), np.float32), found(None))
    assert not list(tmp_path.iterdir())
