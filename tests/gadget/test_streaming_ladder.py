"""Out of memory: smaller batches, then the CPU, then a fallback, each step in the log."""

import logging
import weakref

import pytest
import torch
from simulated_scans import TOTAL_VARIATION, StandIn, reconstructor

from gadget.configs import prior_folders
from gadget.reconstructor import ImageKind, Reconstructor
from gadget.streaming_ladder import CPU, Rung, is_out_of_memory
from reconlib.kspace import KSpace

ACCELERATOR = torch.device("cpu", 0)
"""Stands for one: it works here, and is not the device ``cpu``."""


class Memory(StandIn):
    """A joint reconstruction that fits only so many slices, and keeps what was tried where."""

    def __init__(self, *, slices: int, error: Exception, on_cpu: bool = True) -> None:
        super().__init__()
        self.tried: list[tuple[int, str]] = []
        self._slices, self._error, self._on_cpu = slices, error, on_cpu

    def __call__(self, kspace, **others):
        where = "cpu" if others["prior"] is not self.on_accelerator else "accelerator"
        self.tried.append((len(kspace.samples), where))
        if where == "accelerator" and len(kspace.samples) > self._slices:
            raise self._error
        if where == "cpu" and not self._on_cpu:
            raise MemoryError
        return super().__call__(kspace, **others)


def made(joint: Memory, chosen=TOTAL_VARIATION) -> Reconstructor:
    solver = reconstructor(joint)
    solver.device = ACCELERATOR
    joint.on_accelerator = solver.load(chosen)
    return solver


def slices(n: int) -> list[KSpace]:
    mask = torch.ones(1, 1, 6, 5, dtype=torch.bool)
    return [
        KSpace(samples=torch.full((1, 2, 6, 5), 1j * number), mask=mask, noise_std=1.0)
        for number in range(1, n + 1)
    ]


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize(
    ("fits", "tried"),
    [
        (8, [8]),
        (4, [8, 4, 4]),
        (3, [8, 4, 2, 2, 4, 2, 2]),
        (1, [8, 4, 2, 1, 1, 2, 1, 1, 4, 2, 1, 1, 2, 1, 1]),
    ],
)
def test_batches_are_halved_until_they_fit(fits, tried, caplog):
    joint = Memory(slices=fits, error=OUT_OF_MEMORY)

    results = made(joint)(slices(8), TOTAL_VARIATION)

    assert joint.tried == [(n, "accelerator") for n in tried]
    assert [result.kind for result in results] == [ImageKind.RECONSTRUCTED] * 8
    # The order is that of the slices: the stand-in counts its images.
    assert [result.image[0, 0].real for result in results] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(caplog.records) == sum(n > fits for n in tried)


def test_a_slice_that_does_not_fit_alone_is_made_on_the_cpu(caplog):
    joint = Memory(slices=0, error=OUT_OF_MEMORY)

    results = made(joint)(slices(2), TOTAL_VARIATION)

    assert joint.tried == [(2, "accelerator"), *[(1, "accelerator"), (1, "cpu")] * 2]
    assert [result.kind for result in results] == [ImageKind.RECONSTRUCTED] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "A batch of 2 slices failed (out of memory): one by one now.",
        *["A slice failed on cpu:0 (out of memory): on the CPU now."] * 2,
    ]


def test_where_the_cpu_does_not_help_there_is_a_fallback(caplog):
    joint = Memory(slices=0, error=OUT_OF_MEMORY, on_cpu=False)

    (result,) = made(joint)(slices(1), TOTAL_VARIATION)

    assert joint.tried == [(1, "accelerator"), (1, "cpu")]
    assert (result.kind, result.outcome) == (ImageKind.FALLBACK, "out of memory")
    assert caplog.records[-1].levelno == logging.ERROR


def test_another_failure_is_no_reason_for_the_cpu():
    joint = Memory(slices=0, error=ValueError("a fault of the program"))

    results = made(joint)(slices(3), TOTAL_VARIATION)

    assert joint.tried == [(n, "accelerator") for n in (3, 1, 1, 1)]
    assert {result.outcome for result in results} == {"ValueError in the joint reconstruction"}


def test_the_memory_of_a_failed_try_is_free_before_the_next():
    """What is alive where memory runs out hangs on the error; it must be gone by then."""
    alive: list[weakref.ref] = []
    n_alive = []

    def fill(kspace, **_others):
        n_alive.append(sum(one() is not None for one in alive))
        held = kspace.samples.clone()
        alive.append(weakref.ref(held))
        raise torch.OutOfMemoryError

    solver = reconstructor(fill)
    solver.device = ACCELERATOR
    solver(slices(2), TOTAL_VARIATION)

    assert n_alive[:3] == [0, 0, 0]  # after that, pytest's log keeps the error of the final failure


def test_the_prior_on_the_cpu_is_the_one_in_memory(monkeypatch):
    """Its files may have changed since the scan started; its values are the same."""
    chosen = TOTAL_VARIATION.model_copy(update={"prior": "brain-local"})
    joint = Memory(slices=0, error=OUT_OF_MEMORY)
    solver = made(joint, chosen)
    monkeypatch.setattr("gadget.streaming_priors.load_prior", lambda *_: pytest.fail("read again"))

    solver(slices(1), chosen, prior=joint.on_accelerator)

    used = joint.calls[-1]["prior"]
    assert used is not joint.on_accelerator
    assert used.network is not joint.on_accelerator.network
    image = torch.rand(1, 1, 24, 24, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(used.energy.value(image), joint.on_accelerator.energy.value(image))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OUT_OF_MEMORY,
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: ..."),
    ],
    ids=str,
)
def test_memory_that_ran_out_is_known_in_all_of_its_words(error):
    assert is_out_of_memory(error)


def test_torch_says_so_where_the_memory_of_the_cpu_does_not_suffice():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("error", [ValueError("out of memory"), RuntimeError("shape mismatch")], ids=str)
def test_other_failures_are_not_taken_for_it(error):
    assert not is_out_of_memory(error)


def test_the_ladder_ends_on_the_cpu():
    assert Rung(range(1), CPU).next("out of memory", is_memory=True) == ()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_that_is_full_leaves_the_work_to_the_cpu(caplog):
    solver = Reconstructor("cuda", prior_search=prior_folders())
    chosen = TOTAL_VARIATION.model_copy(update={"device": "cuda"})
    torch.cuda.set_per_process_memory_fraction(1e-6)
    try:
        results = solver(slices(2), chosen)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)

    assert [result.kind for result in results] == [ImageKind.RECONSTRUCTED] * 2
    assert "on the CPU now" in caplog.text
