"""A picture of uncertainty says what it is worth."""

import numpy as np

from gadget import posterior_figures


def test_the_picture_shows_the_comment(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(posterior_figures, "save_figure", lambda _path, figure, _o: shown.append(figure))
    image = np.ones((20, 30), np.float32)

    posterior_figures.save_posterior(
        tmp_path / "a.png", image, image, image, comment="NOT RELIABLE: too short"
    )

    (figure,) = shown
    assert figure.get_suptitle() == "NOT RELIABLE: too short"
