"""Replayed energies, with a stand-in for CUDA graphs that is as strict with memory as they are."""

import copy
import logging
import pickle
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch
from small_energies import Quartic, random_local_network
from torch import nn

from gadget.benchmark.counting import counted
from reconlib.energies.cuda_graphs import CudaGraphs
from reconlib.energies.local import LocalEnergy
from reconlib.energies.network import NetworkEnergy
from reconlib.energies.orientation import OrientedEnergy
from reconlib.energies.protocol import Energy
from reconlib.energies.replayed import CALLS_BEFORE, KEPT, Capture, ReplayedEnergy, plain, release_replays
from reconlib.energies.total_variation import TotalVariation
from reconlib.priors.library import Prior, load_prior
from reconlib.priors.signal_energy import signal_energy

PRIORS = Path(__file__).parents[3] / "config" / "priors"


class FixedMemory:
    """Replays read the input where it was and write results to where they were, as those of a CUDA graph."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.shapes: list[tuple[int, ...]] = []
        self.outputs: list[weakref.ref] = []
        self.n_replays = 0

    def suits(self, image):
        return image.shape[-1] != 7

    def capture(self, function, image):
        self.shapes.append(tuple(image.shape))
        if self.fails:
            raise torch.OutOfMemoryError("CUDA out of memory")
        fixed = tuple(output.clone() for output in function(image))
        self.outputs.append(weakref.ref(fixed[0]))

        def replay():
            self.n_replays += 1
            for output, new in zip(fixed, function(image), strict=True):
                output.copy_(new)
            time.sleep(1e-3)  # others might come in between
            return fixed

        return replay


@pytest.fixture
def local(generator) -> LocalEnergy:
    return LocalEnergy(random_local_network(generator), 0.05, 1.5)


@pytest.fixture(params=["local", "network", "turned"])
def energy(request, local) -> Energy:
    return {
        "local": local,
        "network": NetworkEnergy(Quartic(), 1.5),
        "turned": OrientedEnergy(local, 1, True),
    }[request.param]


def captured(energy: Energy, image: torch.Tensor) -> tuple[ReplayedEnergy, FixedMemory]:
    """Return the energy after both calls with such images have been captured."""
    memory = FixedMemory()
    replayed = ReplayedEnergy(energy, memory)
    for _ in range(CALLS_BEFORE + 1):
        replayed.value(image)
        replayed.value_and_gradient(image)
    assert len(memory.shapes) == 2
    memory.n_replays = 0
    return replayed, memory


def test_chained_calls_give_what_the_energy_gives(energy, generator):
    image = torch.randn(2, 1, 9, 12, generator=generator)
    replayed, memory = captured(energy, image)
    found, expected = [], []
    for one, results in ((replayed, found), (energy, expected)):
        x = image
        for _ in range(4):
            value, gradient = one.value_and_gradient(x)
            x = x - 0.01 * gradient
            results += [value, gradient, one.value(x)]

    assert memory.n_replays == 8
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_shape_is_captured_when_it_comes_again_and_again_and_only_once(local):
    memory = FixedMemory()
    replayed = ReplayedEnergy(local, memory)
    counts = []
    for _ in range(CALLS_BEFORE + 3):
        replayed.value(torch.ones(1, 1, 5, 8))
        counts.append(len(memory.shapes))
    assert counts == [0] * CALLS_BEFORE + [1] * 3
    assert memory.n_replays == 3


def test_alternating_shapes_dtypes_and_methods_do_not_mix(generator):
    energy = NetworkEnergy(Quartic(), 1.0)
    memory = FixedMemory()
    replayed = ReplayedEnergy(energy, memory)
    for _ in range(CALLS_BEFORE + 2):
        for shape, dtype in (((1, 1, 4, 5), torch.float32), ((2, 1, 5, 4), torch.float32)) * 2 + (
            ((1, 1, 4, 5), torch.float64),
        ):
            image = torch.randn(shape, dtype=dtype, generator=generator)
            value, gradient = replayed.value_and_gradient(image)
            assert value.dtype == gradient.dtype == dtype
            assert torch.equal(gradient, energy.value_and_gradient(image)[1])
            assert torch.equal(replayed.value(image), value)
    assert len(memory.shapes) == 6


def test_neither_strides_nor_a_wish_for_gradients_matter(local, generator):
    image = torch.randn(2, 1, 8, 10, generator=generator)
    replayed, _ = captured(local, image)
    expected = local.value_and_gradient(image)
    strided = torch.stack([image, image], dim=-1)[..., 0]
    for seen in (strided, image.mT.contiguous().mT, image.clone().requires_grad_()):
        found = replayed.value_and_gradient(seen)
        assert not any(one.requires_grad for one in found)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert not any(shape.image.requires_grad for shape in replayed._replays._shapes.values())


def test_the_shape_not_used_for_longest_makes_room_and_its_memory_is_free(local):
    memory = FixedMemory()
    replayed = ReplayedEnergy(local, memory)

    def call(width: int) -> None:
        for _ in range(CALLS_BEFORE + 1):
            replayed.value(torch.ones(1, 1, 4, width))

    widths = range(8, 8 + KEPT)
    for width in (*widths, 8, 30):  # the first one is used again
        call(width)

    assert len(memory.shapes) == KEPT + 1
    assert [reference() is None for reference in memory.outputs] == [False, True] + [False] * (KEPT - 1)
    call(9)
    assert memory.shapes[-1] == (1, 1, 4, 9)


def test_released_memory_is_free_and_the_energy_goes_on(local, generator):
    image = torch.randn(1, 1, 6, 8, generator=generator)
    replayed, memory = captured(local, image)
    release_replays(replayed)
    assert [reference() for reference in memory.outputs] == [None, None]
    assert torch.equal(replayed.value(image), local.value(image))
    assert memory.n_replays == 0
    release_replays(TotalVariation())


def test_what_cannot_be_captured_is_evaluated_and_told_once(local, generator, caplog):
    memory = FixedMemory(fails=True)
    replayed = ReplayedEnergy(local, memory)
    with caplog.at_level(logging.WARNING):
        for _ in range(CALLS_BEFORE + 3):
            image = torch.randn(1, 1, 6, 8, generator=generator)
            for found, expected in zip(
                replayed.value_and_gradient(image), local.value_and_gradient(image), strict=True
            ):
                assert torch.equal(found, expected)
    assert memory.shapes == [(1, 1, 6, 8)]
    assert [record.getMessage() for record in caplog.records] == [
        "The energy of images of shape (1, 1, 6, 8) cannot be captured as a CUDA graph (CUDA out of memory); "
        "it is evaluated without, which is slower."
    ]


def test_an_error_of_the_energy_is_the_callers():
    replayed = ReplayedEnergy(NetworkEnergy(nn.Conv2d(2, 1, 3), 1.0), FixedMemory())
    for _ in range(CALLS_BEFORE + 2):
        with pytest.raises(RuntimeError, match="channels"):
            replayed.value(torch.ones(1, 1, 5, 5))


def test_threads_get_their_own_results(local, generator):
    images = [torch.randn(2, 1, 8, 10, generator=generator) for _ in range(3)]
    expected = [local.value_and_gradient(image) for image in images]
    replayed, memory = captured(local, images[0])
    wrong = []

    def work(which: int) -> None:
        for _ in range(10):
            found = replayed.value_and_gradient(images[which])
            if not all(torch.equal(a, b) for a, b in zip(found, expected[which], strict=True)):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert memory.n_replays == 30


def test_images_that_do_not_suit_are_left_to_the_energy(local):
    memory = FixedMemory()
    replayed = ReplayedEnergy(local, memory)
    image = torch.ones(1, 1, 6, 7)
    for _ in range(CALLS_BEFORE + 2):
        assert torch.equal(replayed.value(image), local.value(image))
    assert memory.shapes == []


def test_it_is_an_energy_with_all_that_the_other_has(local):
    replayed = ReplayedEnergy(local)
    assert isinstance(replayed, Energy)
    assert isinstance(replayed.capture, Capture)
    assert replayed.temperature == 1.5
    assert replayed.network is local.network
    assert replayed.energy_map(torch.ones(1, 1, 5, 8)).shape == (1, 1, 5, 8)
    assert plain(replayed) is local
    assert plain(local) is local
    with pytest.raises(AttributeError, match="missing"):
        _ = replayed.missing


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_have_replays_of_their_own(local, copied, generator):
    image = torch.randn(1, 1, 6, 8, generator=generator)
    replayed = ReplayedEnergy(local)
    twin = copied(replayed)
    assert isinstance(twin, ReplayedEnergy)
    assert isinstance(plain(twin), LocalEnergy)
    assert twin._replays is not replayed._replays
    assert torch.equal(twin.value(image), local.value(image))


def test_its_calls_can_be_counted(local):
    image = torch.ones(1, 1, 6, 8)
    replayed, memory = captured(local, image)
    card = load_prior(PRIORS / "brain-local", torch.device("cpu")).card
    prior, count = counted(Prior(card, replayed, local.network))
    prior.energy.value(image)
    prior.energy.value_and_gradient(image)
    assert (count.values, count.gradients) == (1, 1)
    assert memory.n_replays == 2
    assert isinstance(plain(prior.energy), LocalEnergy)


def test_a_replayed_local_energy_says_where_an_image_is_unusual(local):
    image = torch.ones(1, 1, 32, 48)
    of = {"brightness_to": 0.4, "noise_std": 0.01, "region_side": 16}
    found = signal_energy(ReplayedEnergy(local), image, **of)
    assert found.regions is not None
    assert torch.equal(found.regions, signal_energy(local, image, **of).regions)


def test_on_a_cpu_nothing_is_replayed():
    prior = load_prior(PRIORS / "brain-local", torch.device("cpu"))
    assert isinstance(prior.energy, LocalEnergy)
    assert not CudaGraphs().suits(torch.ones(1, 1, 6, 8))
