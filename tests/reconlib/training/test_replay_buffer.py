"""The replay buffer: what goes back, what is refreshed, what is shuffled, at the rates it promises."""

import pytest
import torch
from scipy import stats

from reconlib.training.replay_buffer import ReplayBuffer

PIXELS = torch.arange(30.0).view(1, 1, 5, 6)


class _Data:
    """Images whose pixels are all different, told apart by the first digit; counts what was asked for."""

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, n: int) -> torch.Tensor:
        self.drawn += n
        return PIXELS.repeat(n, 1, 1, 1)


def buffer(size: int, generator, data=None, held=None, **changes) -> ReplayBuffer:
    settings = {"keep_chance": 0.99, "shuffle_every": 2, **changes}
    return ReplayBuffer(size, data or _Data(), generator=generator, held=held, **settings)


def is_shuffled(images: torch.Tensor) -> torch.Tensor:
    return (images != PIXELS).flatten(1).any(dim=1)


def test_the_buffer_begins_with_data_of_which_every_second_is_shuffled(generator):
    begun = buffer(101, generator)
    assert len(begun) == 101
    images = begun.peek(101)
    assert is_shuffled(images).tolist() == [i % 2 == 1 for i in range(101)]
    assert torch.equal(images.flatten(1).sort(dim=1).values, PIXELS.flatten(1).expand(101, -1))


def test_a_batch_comes_from_different_places_all_with_the_same_chance(generator):
    begun = buffer(40, generator)
    counts = torch.zeros(40)
    for _ in range(1000):
        places, images = begun.draw(8)
        assert len(set(places.tolist())) == 8
        assert images.dtype == torch.float32
        counts[places] += 1
    # a place is drawn with the chance 0.2: its count is binomial(1000, 0.2), five sigma both ways
    low, high = stats.binom.interval(1 - 1e-6, 1000, 0.2)
    assert low <= float(counts.min())
    assert float(counts.max()) <= high


@pytest.mark.parametrize("keep", [0.99, 0.7])
def test_samples_go_back_with_their_chance(keep, generator):
    data = _Data()
    begun = buffer(50, generator, data, keep_chance=keep)
    data.drawn = 0
    n_replaced = begun.n_replaced
    kept = 0
    for _ in range(2000):
        places, images = begun.draw(10)
        begun.put_back(places, torch.full_like(images, 99.0))
        back = begun.peek(50)[places]
        kept += int((back == 99).flatten(1).all(dim=1).sum())
    low, high = stats.binom.interval(1 - 1e-6, 20_000, keep)
    assert low <= kept <= high
    assert data.drawn == begun.n_replaced - n_replaced == 20_000 - kept


def test_every_second_replacement_is_shuffled_and_shuffles_differ(generator):
    begun = buffer(50, generator, keep_chance=0.0)
    shuffled = []
    for n in (1, 7, 1, 1, 4) * 6:
        places, images = begun.draw(n)
        begun.put_back(places, torch.full_like(images, 99.0))
        back = begun.peek(50)[places]
        assert torch.equal(back.flatten(1).sort(dim=1).values, PIXELS.flatten(1).expand(n, -1))
        shuffled.append(is_shuffled(back))
    marks = torch.cat(shuffled).tolist()
    assert marks == [i % 2 == 1 for i in range(84)], "some at a time, and the count goes on"


@pytest.mark.parametrize(("every", "expected"), [(1, 60), (3, 20), (None, 0)])
def test_shuffling_can_be_made_rarer(every, expected, generator):
    assert int(is_shuffled(buffer(60, generator, shuffle_every=every).peek(60)).sum()) == expected


def test_a_shuffled_pixel_goes_anywhere_with_the_same_chance(generator):
    images = buffer(3000, generator, shuffle_every=1).peek(3000).flatten(1)
    where = (images == 7).float().sum(dim=0).numpy()
    assert where.sum() == 3000
    assert stats.chisquare(where).pvalue > 1e-4


def test_held_pixels_are_not_shuffled(generator):
    held = torch.zeros(5, 6, dtype=torch.bool)
    held[0] = held[:, 5] = True
    images = buffer(80, generator, held=held, shuffle_every=1).peek(80)
    assert torch.equal(images[..., held], PIXELS[..., held].expand(80, 1, -1))
    assert int(is_shuffled(images).sum()) == 80
    assert torch.equal(images.flatten(1).sort(dim=1).values, PIXELS.flatten(1).expand(80, -1))


def test_a_restored_buffer_goes_on_alike(generator):
    first, second = buffer(20, generator, keep_chance=0.5), buffer(20, generator, keep_chance=0.5)
    places, images = first.draw(5)
    first.put_back(places, images + 1)
    second.restore(first.state())
    state = generator.get_state()
    for one in (first, second):
        generator.set_state(state)
        places, images = one.draw(9)
        one.put_back(places, 2 * images)
    assert torch.equal(first.peek(20), second.peek(20))
    assert first.n_replaced == second.n_replaced
