"""Who gets the device next."""

import gc
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from running_server import soon

from gadget.settings import Settings
from gadget.streaming_scan import ScanDevice
from gadget.turns import TurnCancelledError, Turns


class Queue:
    """Takes note of who held a turn, in threads that ask in a given order while the turn is taken."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.held: list[str] = []
        self.failures: list[Exception] = []
        self.threads: list[threading.Thread] = []

    def ask(
        self, who: str, what: str, *, urgent: bool = True, cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Let a thread ask, and return when it waits."""
        n_waiting = len(self.turns)

        def run() -> None:
            try:
                with self.turns.turn(who, urgent=urgent, cancelled=cancelled):
                    self.held.append(what)
            except TurnCancelledError as error:
                self.failures.append(error)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        assert soon(lambda: len(self.turns) == n_waiting + 1)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def queue():
    queue = Queue()
    yield queue
    queue.join()


def test_scans_take_turns_however_much_one_asks_for(queue):
    with queue.turns.turn("a", urgent=True):
        for what in ("a1", "a2", "a3"):
            queue.ask("a", what)
        for what in ("b1", "b2"):
            queue.ask("b", what)
        queue.ask("c", "c1")
    queue.join()
    # b and c have had none yet; then the one whose last turn was longest ago
    assert queue.held == ["b1", "c1", "a1", "b2", "a2", "a3"]


def test_images_go_before_sampling_of_any_scan(queue):
    with queue.turns.turn("a", urgent=True):
        queue.ask("b", "sampling of b", urgent=False)
        queue.ask("a", "image of a")
        queue.ask("a", "another image of a")
    queue.join()
    assert queue.held == ["image of a", "another image of a", "sampling of b"]


def test_a_scan_that_is_over_leaves_nothing_of_its_prior_behind():
    class SomePrior:
        pass

    prior, reconstructor = SomePrior(), SimpleNamespace(turns=Turns())
    device = ScanDevice(reconstructor=reconstructor, settings=Settings(), prior=prior)
    with device.turn(urgent=True):
        pass
    is_there = weakref.ref(prior)
    del device, prior
    gc.collect()
    assert is_there() is None


def test_only_one_holds_a_turn():
    turns, inside, most = Turns(), [], []

    def work(who: int) -> None:
        for _ in range(20):
            with turns.turn(who, urgent=who % 2 == 0):
                inside.append(who)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.remove(who)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (len(most), max(most)) == (100, 1)


def test_one_who_is_cancelled_waits_no_more_and_holds_nobody_up(queue):
    gone = threading.Event()
    with queue.turns.turn("a", urgent=True):
        queue.ask("b", "b", cancelled=gone.is_set)
        queue.ask("c", "c")
        gone.set()
        assert soon(lambda: queue.failures)
        assert len(queue.turns) == 1
    queue.join()
    assert queue.held == ["c"]
    assert "Nobody waits for the images any more" in str(queue.failures[0])


def test_a_turn_that_fails_ends():
    turns = Turns()
    with pytest.raises(ValueError, match="out of luck"), turns.turn("a", urgent=True):
        raise ValueError("out of luck")
    with turns.turn("b", urgent=False):
        assert len(turns) == 0


def test_scans_that_were_are_forgotten():
    turns = Turns()
    for who in range(2000):
        with turns.turn(who, urgent=True):
            pass
    assert len(turns._last_turn) < 1000
