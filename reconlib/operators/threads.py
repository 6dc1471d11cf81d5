"""Work shared between threads, each with coils or slices of its own.

torch shares each operation between threads, and threads wait for each other after each: for the small arrays
of one coil that takes as long as the operation itself. Threads that each go through all operations on coils
(or slices) of their own wait once. What they call releases Python's lock.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_all(work: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> list[Result]:
    """Return ``work`` of each item, in order; on a CPU by as many threads as torch may use.

    An error of any of them is raised when all have ended.
    """
    n_threads = torch.get_num_threads() if device.type == "cpu" and len(items) > 1 else 1
    if n_threads == 1:
        return [work(item) for item in items]
    is_recorded = torch.is_grad_enabled()

    def alike(item: Item) -> Result:
        with torch.set_grad_enabled(is_recorded):
            return work(item)

    waiting = [_threads(n_threads, os.getpid()).submit(alike, item) for item in items]
    errors = [one.exception() for one in waiting]
    for error in errors:
        if error is not None:
            raise error
    return [one.result() for one in waiting]


def groups(items: Sequence[Item], device: torch.device) -> list[Sequence[Item]]:
    """Return neighbouring items together, one group for each thread of :func:`for_all`."""
    n = min(len(items), torch.get_num_threads()) if device.type == "cpu" else 1
    bounds = [round(k * len(items) / max(1, n)) for k in range(n + 1)]
    return [items[first:last] for first, last in pairwise(bounds)]


@cache
def _threads(n: int, _process: int) -> ThreadPoolExecutor:
    """Return n threads that compute by themselves; a fork of the process needs others.

    What one thread sets as its number is the default of threads that begin later, so it is set back here.
    """
    are_ready = threading.Barrier(n + 1)

    def begin() -> None:
        torch.get_num_threads()  # or the default would replace what is set before the first operation
        torch.set_num_threads(1)
        are_ready.wait()

    threads = ThreadPoolExecutor(n, "shares", initializer=begin)
    for _ in range(n):
        threads.submit(int)
    are_ready.wait()
    torch.set_num_threads(n)
    return threads
