"""Disturbances beyond the noise: what the loss sees and what it is told to answer."""

import pytest
import torch

from reconlib.training.disturbances import disturbed


@pytest.fixture
def drawn(generator):
    """Return images, noise and noise levels of 400 patches of 24 x 20."""
    clean = torch.rand(400, 1, 24, 20, generator=generator)
    noise = torch.randn(400, 1, 24, 20, generator=generator)
    level = torch.full((400,), 0.02)
    return clean, noise, level


def test_a_share_of_zero_changes_nothing(drawn, generator):
    clean, noise, level = drawn
    seen, target = disturbed(clean, noise, level, 0.0, generator)
    torch.testing.assert_close(seen, clean)
    assert torch.equal(target, noise)


def test_the_share_is_that_of_the_images(drawn, generator):
    clean, noise, level = drawn
    _, target = disturbed(clean, noise, level, 0.65, generator)
    changed = int(((target - noise).abs().amax(dim=(1, 2, 3)) > 0).sum())
    assert abs(changed - 260) < 5 * (400 * 0.65 * 0.35) ** 0.5  # five standard deviations of a binomial


def test_every_answer_points_back_from_the_disturbance(drawn, generator):
    """The displacement y - x and the target agree in direction, and both have the size of a score's."""
    clean, noise, level = drawn
    seen, target = disturbed(clean, noise, level, 1.0, generator)
    displacement = seen + 0.02 * target - clean
    assert bool(((displacement * target).sum(dim=(1, 2, 3)) > 0).all())
    size = displacement.square().mean(dim=(1, 2, 3)).sqrt()
    assert float(size.min()) > 0.015
    assert 0.1 < float(size.max()) < 0.5
    # a score of noise of that size is at most about 1 / sigma: the target at most about 1 in units of it
    assert float(target.square().mean(dim=(1, 2, 3)).max()) < 4


def test_white_noise_on_top_has_the_score_of_both_together(generator):
    """Where s is white, the answer is y - x over the sum of the variances, times sigma."""
    clean = torch.zeros(300, 1, 32, 32)  # a flat image has no other image to be disturbed with
    noise = torch.randn(300, 1, 32, 32, generator=generator)
    level = torch.full((300,), 0.005)
    seen, target = disturbed(clean, noise, level, 1.0, generator)
    moved = seen + 0.005 * target - clean
    ratio = moved / target
    spread = (ratio - ratio.mean(dim=(1, 2, 3), keepdim=True)).abs().amax(dim=(1, 2, 3))
    white = spread < 1e-3 * ratio.mean(dim=(1, 2, 3))
    n_white = int(white.sum())
    # the kinds: 23 % white, and 31 % that are nothing here, with a ratio of sigma itself
    assert abs(n_white - 300 * 0.54) < 5 * (300 * 0.54 * 0.46) ** 0.5
    variance = moved[white].square().mean(dim=(1, 2, 3))
    expected = variance / 0.005
    torch.testing.assert_close(ratio[white].mean(dim=(1, 2, 3)), expected, rtol=0.25, atol=0)
