"""How a prior looks at an image."""

import itertools

import numpy as np
import pytest
import torch

from reconlib.energies.view import LARGEST_SHIFT, View, Views, draw_view


def test_without_arguments_the_image_is_seen_as_it_is(generator):
    image = torch.randn(2, 1, 5, 7, generator=generator)
    torch.testing.assert_close(View().of(image), image, rtol=0, atol=0)
    torch.testing.assert_close(View().back(image), image, rtol=0, atol=0)


@pytest.mark.parametrize("symmetry", range(8))
def test_back_is_the_adjoint(generator, symmetry):
    """<V x, y> = <x, V^T y> for the linear part V, on a matrix with two different odd sides."""
    view = View(shift=(3, 11), symmetry=symmetry)
    x = torch.randn(2, 1, 5, 7, generator=generator)
    y = torch.randn(view.of(x).shape, generator=generator)
    torch.testing.assert_close((view.of(x) * y).sum(), (x * view.back(y)).sum())


def test_the_symmetries_are_the_eight_of_the_square():
    image = np.arange(9.0).reshape(3, 3)
    expected = {np.rot90(one, k).tobytes() for one in (image, image.T) for k in range(4)}
    seen = {
        View(symmetry=k).of(torch.from_numpy(image)[None, None]).contiguous().numpy().tobytes()
        for k in range(8)
    }
    assert seen == expected


def test_noise_comes_before_the_shift():
    noise = torch.zeros(1, 1, 4, 4)
    noise[0, 0, 0, 0] = 1
    seen = View(noise, shift=(1, 2)).of(torch.zeros(3, 1, 4, 4))
    assert seen[:, 0, 1, 2].tolist() == [1, 1, 1]
    assert float(seen.sum()) == 3


def test_draws_cover_all_symmetries_and_shifts(generator):
    cpu = torch.device("cpu")
    drawn = [draw_view((4, 4), generator, cpu, noise_std=0.0, symmetric=True) for _ in range(400)]
    assert {view.symmetry for view in drawn} == set(range(8))
    assert set(itertools.chain.from_iterable(view.shift for view in drawn)) == set(range(LARGEST_SHIFT))
    assert all(view.noise is None for view in drawn)


def test_noise_has_the_given_std_and_nothing_turns_unasked(generator):
    view = draw_view((64, 64), generator, torch.device("cpu"), noise_std=0.5, symmetric=False)
    assert view.noise is not None
    assert float(view.noise.std()) == pytest.approx(0.5, rel=5 / np.sqrt(2 * 64**2))
    assert (view.shift, view.symmetry) == ((0, 0), 0)


def test_noise_comes_in_pairs_of_opposites_in_views_of_their_own(generator):
    views = Views(torch.zeros(1, 1, 64, 64), generator, noise_std=0.5, symmetric=True)
    drawn = [views.draw() for _ in range(40)]
    noise = torch.stack([view.noise for view in drawn if view.noise is not None])[:, 0, 0]
    assert torch.equal(noise[0::2], -noise[1::2])
    assert float(noise[0::2].std()) == pytest.approx(0.5, rel=5 / np.sqrt(2 * 20 * 64**2))
    # pairs know nothing of each other: correlations of 4096 pixels are within five deviations of 0
    correlations = torch.corrcoef(noise[0::2].flatten(1)) - torch.eye(20)
    assert float(correlations.abs().max()) < 5 / 64
    looks = [(view.shift, view.symmetry) for view in drawn]
    assert sum(one == other for one, other in zip(looks[0::2], looks[1::2], strict=True)) < 3


def test_views_without_noise_have_none(generator):
    views = Views(torch.zeros(1, 1, 4, 4), generator, noise_std=0.0, symmetric=True)
    assert all(views.draw().noise is None for _ in range(3))
