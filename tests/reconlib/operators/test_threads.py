"""Threads that each work on coils of their own: the same results in order, one torch thread each, errors."""

import threading

import pytest
import torch

from reconlib.joint.data_consistency import DataConsistency
from reconlib.operators.fourier import SampledFourier
from reconlib.operators.threads import for_all, groups

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_results_come_in_order_from_two_threads_at_once():
    met = threading.Barrier(2)

    def work(number: int) -> tuple[int, int]:
        met.wait(timeout=30)  # one thread alone would wait for ever
        return number, torch.get_num_threads()

    assert for_all(work, range(6), CPU) == [(number, 1) for number in range(6)]
    assert torch.get_num_threads() == 2
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2], "threads that begin afterwards have the number that was set"


@pytest.mark.parametrize(("threads", "device"), [(1, CPU), (2, torch.device("meta"))], ids=str)
def test_one_thread_or_another_device_needs_no_others(threads, device):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert for_all(lambda _: threading.get_ident(), range(3), device) == [threading.get_ident()] * 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_an_error_is_raised_after_all_have_ended():
    done = []

    def work(number: int) -> None:
        if number == 1:
            raise ValueError("the second one")
        done.append(number)

    with pytest.raises(ValueError, match="the second one"):
        for_all(work, range(5), CPU)
    assert sorted(done) == [0, 2, 3, 4]


@pytest.mark.usefixtures("two_threads")
def test_gradients_are_recorded_as_where_the_work_was_asked_for():
    assert for_all(lambda _: torch.is_grad_enabled(), range(2), CPU) == [True, True]
    with torch.no_grad():
        assert for_all(lambda _: torch.is_grad_enabled(), range(2), CPU) == [False, False]


@pytest.mark.usefixtures("two_threads")
def test_groups_are_neighbours_and_none_is_lost():
    assert groups(range(7), CPU) == [range(4), range(4, 7)]
    assert groups(range(1), CPU) == [range(1)]
    assert groups(range(5), torch.device("meta")) == [range(5)]


@pytest.mark.usefixtures("two_threads")
def test_the_normal_operator_by_two_threads_is_that_by_one(generator):
    n_coils, n = 5, 200  # more pixels than are worked on at once
    maps, image = (
        torch.randn(1, coils, n, n, dtype=torch.complex64, generator=generator) for coils in (n_coils, 1)
    )
    mask = (torch.rand(1, 1, 1, n, generator=generator) > 0.7).float()
    data = DataConsistency(SampledFourier(mask, (-1,)), torch.zeros_like(maps))
    assert len(data.parts(n_coils)) > 2
    found = data.combined_normal(maps, maps.conj().resolve_conj(), image)
    samples = torch.fft.fft(maps * image, norm="ortho") * mask
    expected = (maps.conj() * torch.fft.ifft(samples, norm="ortho")).sum(dim=1, keepdim=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
