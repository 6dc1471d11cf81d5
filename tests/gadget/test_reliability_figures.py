"""Pictures of uncertainty: that they are there, and show what they are given."""

import numpy as np
import pytest
from matplotlib import image as pictures

from gadget.errors import FileError
from gadget.reliability_figures import save_reliability, save_uncertainty
from reconlib.evaluation.coverage import PixelErrors


@pytest.fixture
def errors():
    rng = np.random.default_rng(5)
    std = rng.uniform(0.01, 0.05, 4000)
    return PixelErrors(error=std * rng.standard_normal(4000), std=std, reference_std=np.zeros(4000))


def read(path):
    return pictures.imread(path)[..., :3]


def test_the_reliability_plot_changes_with_the_widths_and_shows_the_factor(tmp_path, errors):
    save_reliability(tmp_path / "honest.png", errors, title="prior")
    narrow = PixelErrors(error=errors.error, std=errors.std / 2, reference_std=errors.reference_std)
    save_reliability(tmp_path / "narrow.png", narrow, title="prior")
    save_reliability(tmp_path / "factor.png", errors, title="prior", std_factor=2.0)
    honest, too_narrow, both = (read(tmp_path / f"{name}.png") for name in ("honest", "narrow", "factor"))
    assert honest.shape == too_narrow.shape == both.shape
    assert not np.array_equal(honest, too_narrow)
    # the second curve is more blue ink
    blue = [np.count_nonzero(one[..., 2] > one[..., 0] + 0.3) for one in (honest, both)]
    assert blue[1] > 1.2 * blue[0]
    with pytest.raises(FileError, match="exists"):
        save_reliability(tmp_path / "honest.png", errors, title="prior", overwrite=False)


def test_error_and_standard_deviation_share_a_window(tmp_path):
    reference = np.zeros((40, 40))
    reference[10:30, 10:30] = 1.0
    image, std = reference + 0.1, np.full((40, 40), 0.1)
    save_uncertainty(tmp_path / "a.png", image, std, reference, title="mean")
    shown = read(tmp_path / "a.png")
    # error and standard deviation are the same, so half of the panels have one colour, neither grey nor white
    colours, counts = np.unique(shown.reshape(-1, 3), axis=0, return_counts=True)
    coloured = colours.max(axis=1) - colours.min(axis=1) > 0.1
    assert counts[coloured].max() > 0.3 * shown.shape[0] * shown.shape[1] / 2
    with pytest.raises(ValueError, match=r"need one \(y, x\)"):
        save_uncertainty(tmp_path / "b.png", image, std[1:], reference, title="mean")
