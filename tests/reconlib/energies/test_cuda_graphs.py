"""CUDA graphs of energies: what may be captured, on a CPU; and on a CUDA device that replays are right."""

import logging
import threading
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from small_energies import Quartic
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reconlib.energies import cuda_graphs
from reconlib.energies.cuda_graphs import MOST_PIXELS, CudaGraphs
from reconlib.energies.local import LocalEnergy, LocalEnergyNetwork, LocalEnergySizes
from reconlib.energies.network import NetworkEnergy
from reconlib.energies.orientation import OrientedEnergy
from reconlib.energies.paper import PaperNetwork
from reconlib.energies.replayed import CALLS_BEFORE, ReplayedEnergy, plain
from reconlib.priors.library import load_prior

SHIPPED = Path(__file__).parents[3] / "config" / "priors" / "brain-local"
CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class OnDevice(TorchDispatchMode):
    """Refuses what touches the CPU's memory."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for one in tree_leaves((args, kwargs, results)):
            if isinstance(one, torch.Tensor) and one.device == CPU and one.ndim > 0:
                raise AssertionError(f"{function} touches the CPU's memory")
        return results


def local_energy() -> LocalEnergy:
    return LocalEnergy(LocalEnergyNetwork(LocalEnergySizes(widths=(3, 4))), 0.05)


@pytest.mark.parametrize("matrix", [(320, 320), (37, 330), (350, 330)], ids=str)
@pytest.mark.parametrize("kind", ["local", "turned", "paper"])
def test_nothing_that_is_captured_leaves_the_device(kind, matrix):
    """The device is 'meta', which has no values: asking for one is an error."""
    energy = {
        "local": local_energy,
        "turned": lambda: OrientedEnergy(local_energy(), 1, True),
        "paper": lambda: NetworkEnergy(PaperNetwork(outside_weight=1.0), 1.0),
    }[kind]()
    (energy.energy if kind == "turned" else energy).network.to("meta")
    image = torch.empty((2, 1, *matrix), device="meta")
    energy.value_and_gradient(image)  # as a warm-up does: tables are made
    with OnDevice():
        value, gradient = energy.value_and_gradient(image)
        energy.value(image)
    assert value.shape == (2,)
    assert gradient.shape == image.shape
    assert gradient.is_meta


class FakeCuda:
    """Stands in for what is used of ``torch.cuda``; tells what was done, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        cuda_graphs._side_stream.cache_clear()
        self.streams = {name: Mock(spec=torch.cuda.Stream) for name in ("side", "caller")}
        for name, stream in self.streams.items():
            stream.wait_stream = lambda other, name=name: self.tell(f"{name} waits for {self.name_of(other)}")
        graph = Mock(spec=torch.cuda.CUDAGraph)
        graph.replay, graph.reset = (lambda: self.tell("replayed")), (lambda: self.tell("reset"))
        for name, fake in {
            "Stream": lambda _device: self.streams["side"],
            "current_stream": lambda _device: self.streams["caller"],
            "device": lambda _device: nullcontext(),
            "stream": lambda one: self.within(self.name_of(one)),
            "CUDAGraph": lambda: graph,
            "graph_pool_handle": lambda: (0, 7),
            "graph": lambda one, *, pool, stream, capture_error_mode: self.within(
                f"capture {one is graph} {pool} {self.name_of(stream)} {capture_error_mode}"
            ),
        }.items():
            patch.setattr(torch.cuda, name, fake)
        for name in ("endAllocateToPool", "releasePool"):
            patch.setattr(
                torch._C, f"_cuda_{name}", lambda _device, pool, name=name: self.tell(f"{name} {pool}")
            )

    def tell(self, what: str) -> None:
        self.done.append(what)

    def name_of(self, stream) -> str:
        return next(name for name, one in self.streams.items() if one is stream)

    @contextmanager
    def within(self, what: str):
        self.tell(what)
        try:
            yield
        finally:
            self.tell("end")


@pytest.fixture
def cuda(monkeypatch):
    yield FakeCuda(monkeypatch)
    cuda_graphs._side_stream.cache_clear()


CAPTURE = "capture True (0, 7) side thread_local"


def test_a_capture_follows_warm_ups_on_a_side_stream(cuda):
    def function(image):
        cuda.tell("called")
        return (2 * image,)

    replay = CudaGraphs().capture(function, torch.ones(3))
    assert cuda.done == [
        "side waits for caller",
        *("side", "called", "called", "called", CAPTURE, "called", "end", "end"),
        "caller waits for side",
    ]
    outputs = replay()
    assert replay() is outputs
    assert cuda.done[-2:] == ["replayed", "replayed"]
    assert torch.equal(outputs[0], torch.full((3,), 2.0))


def test_a_failed_capture_leaves_nothing_behind(cuda):
    def function(image):
        if CAPTURE in cuda.done:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return (image,)

    with pytest.raises(RuntimeError, match="out of memory"):
        CudaGraphs().capture(function, torch.ones(3))
    cleaned = ["reset", "endAllocateToPool (0, 7)", "releasePool (0, 7)"]
    assert cuda.done[-6:] == ["end", *cleaned, "end", "caller waits for side"]


class Tf32(TorchDispatchMode):
    """Rounds what convolutions multiply to 11 bits, as cuDNN may on a CUDA device.

    Products of matrices are the convolution from one channel and its adjoint, which only a CPU does so.
    """

    OF_CONVOLUTIONS = (
        torch.ops.aten.convolution.default,
        torch.ops.aten.mm.default,
        torch.ops.aten.bmm.default,
    )

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in self.OF_CONVOLUTIONS:
            args = (*map(self.rounded, args[:2]), *args[2:])
        return function(*args, **(kwargs or {}))

    @staticmethod
    def rounded(x):
        bits = x.contiguous().view(torch.int32)
        return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


VALUE, GRADIENT = 1e-4, 2e-2
"""Largest relative errors by TF32."""
EXACT = 1e-4
"""Without it, whatever the order of sums."""


def piecewise(generator: torch.Generator) -> torch.Tensor:
    """Two slices of flat regions, with the noise of the shipped prior's training on them."""
    coarse = torch.rand(2, 1, 8, 9, generator=generator)
    image = coarse.repeat_interleave(12, dim=-2).repeat_interleave(12, dim=-1)
    return image + 0.015 * torch.randn(image.shape, generator=generator)


def errors(found, expected) -> tuple[float, float]:
    """Relative errors of values (the largest) and gradients (in the norm)."""
    (value, gradient), (its_value, its_gradient) = (
        [one.detach().cpu().double() for one in pair] for pair in (found, expected)
    )
    of_gradient = (gradient - its_gradient).norm() / its_gradient.norm()
    return float(((value - its_value) / its_value).abs().max()), float(of_gradient)


def test_the_rounding_of_tf32_does_the_shipped_prior_no_harm(generator):
    energy, image = load_prior(SHIPPED, CPU).energy, piecewise(generator)
    with Tf32():
        rounded = energy.value_and_gradient(image)
    of_value, of_gradient = errors(rounded, energy.value_and_gradient(image))
    assert 1e-7 < of_value < VALUE
    assert 10 * EXACT < of_gradient < GRADIENT


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize(("tf32", "bounds"), [(True, (VALUE, GRADIENT)), (False, (EXACT, EXACT))])
def test_the_shipped_prior_is_the_same_on_a_cuda_device(tf32, bounds, generator):
    prior, image = load_prior(SHIPPED, torch.device("cuda")), piecewise(generator)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
        for energy in (plain(prior.energy), prior.energy):
            for _ in range(CALLS_BEFORE + 2):
                found = energy.value_and_gradient(image.cuda())
            of_value, of_gradient = errors(found, load_prior(SHIPPED, CPU).energy.value_and_gradient(image))
            assert of_value < bounds[0]
            assert of_gradient < bounds[1]


@pytest.fixture
def full_precision():
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.mark.gpu
@needs_cuda
@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("kind", ["local", "turned", "network"])
def test_replays_are_the_energys_own_calls(kind, generator, caplog):
    """Chained calls, of alternating shapes: a replay writes to the memory of the one before."""
    energy = {
        "local": plain(load_prior(SHIPPED, torch.device("cuda")).energy),
        "turned": OrientedEnergy(plain(load_prior(SHIPPED, torch.device("cuda")).energy), 1),
        "network": NetworkEnergy(Quartic().cuda(), 1.0),
    }[kind]
    replayed = ReplayedEnergy(energy)
    starts = [torch.rand(shape, generator=generator).cuda() for shape in ((1, 1, 64, 80), (3, 1, 37, 50))]
    found, expected = [], []
    for one, results in ((replayed, found), (energy, expected)):
        images = list(starts)
        for _ in range(CALLS_BEFORE + 4):
            for which, image in enumerate(images.copy()):
                value, gradient = one.value_and_gradient(image)
                images[which] = starts[which] + 0.1 * gradient / gradient.abs().max()
                results.append((value, gradient))
                results.append((one.value(image), gradient))
    assert sum(shape.replay is not None for shape in replayed._replays._shapes.values()) == 4
    assert caplog.records == []
    for a, b in zip(found, expected, strict=True):
        assert max(errors(a, b)) < 10 * EXACT  # stale images or results: 0.1 and more


@pytest.mark.gpu
@needs_cuda
def test_threads_share_replays(generator):
    energy = NetworkEnergy(Quartic().cuda(), 1.0)
    replayed = ReplayedEnergy(energy)
    images = [torch.rand((1, 1, 64, 80), generator=generator).cuda() for _ in range(2)]
    expected = [energy.value_and_gradient(image) for image in images]
    torch.cuda.synchronize()
    worst = [1.0, 1.0]

    def work(which: int) -> None:
        found = [replayed.value_and_gradient(images[which]) for _ in range(200)]
        worst[which] = max(max(errors(one, expected[which])) for one in found)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(worst) < EXACT


def freed_by_emptying() -> int:
    """Return how much of 64 MiB that were in use torch gives back."""
    torch.empty(2**26, dtype=torch.uint8, device="cuda")
    held = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    return held - torch.cuda.memory_reserved()


class Asking(Quartic):
    """Asks the device for a value, which no graph can."""

    def forward(self, image):
        return super().forward(image) * (2.0 if bool(image.sum() > 0) else 1.0)


@pytest.mark.gpu
@needs_cuda
def test_a_failed_capture_costs_nothing_but_time(generator, caplog):
    energy = NetworkEnergy(Asking().cuda(), 1.0)
    replayed = ReplayedEnergy(energy)
    with caplog.at_level(logging.WARNING):
        for _ in range(CALLS_BEFORE + 3):
            image = torch.rand((1, 1, 16, 20), generator=generator).cuda()
            assert max(errors(replayed.value_and_gradient(image), energy.value_and_gradient(image))) < EXACT
    assert [record.name for record in caplog.records] == ["reconlib.energies.replayed"]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert freed_by_emptying() >= 2**26
    after = ReplayedEnergy(NetworkEnergy(Quartic().cuda(), 1.0))
    for _ in range(CALLS_BEFORE + 2):
        after.value(image)
    assert all(shape.replay is not None for shape in after._replays._shapes.values())


@pytest.mark.gpu
@needs_cuda
def test_released_graphs_give_their_memory_back(generator):
    prior = load_prior(SHIPPED, torch.device("cuda"))
    image = torch.rand((4, 1, 256, 256), generator=generator).cuda()
    for _ in range(CALLS_BEFORE + 2):
        prior.energy.value_and_gradient(image)
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved()
    prior.energy.release()
    torch.cuda.empty_cache()
    assert held - torch.cuda.memory_reserved() > 100 * image.numel()


@pytest.mark.gpu
@needs_cuda
def test_only_small_images_of_the_default_stream_are_captured():
    graphs = CudaGraphs()
    small = torch.zeros(1, 1, 8, 8, device="cuda")
    assert graphs.suits(small)
    assert not graphs.suits(torch.zeros(MOST_PIXELS + 1, device="cuda"))
    with torch.cuda.stream(torch.cuda.Stream()):
        assert not graphs.suits(small)
