"""The reconstruction alone, in a process of its own: the one of the tests checks shapes, which takes time."""

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Any

import torch
from served_scans import head, protocol, slice_readouts

from gadget.reconstructor import Reconstructor
from gadget.scan.assemble import SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.settings import load_settings
from reconlib.kspace import KSpace

Settings = tuple[tuple[str, Any], ...]


@contextmanager
def process() -> Iterator[ProcessPoolExecutor]:
    """Yield a process that :func:`seconds_of` can be submitted to."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def seconds_of(number: int, n_slices: int, settings: Settings) -> float:
    """Reconstruct a slice as the program assembles it; return how long that took."""
    reconstructor, kspace = _reconstructor(settings), _slices(n_slices)[number]
    started = time.monotonic()
    reconstructor([kspace], load_settings(None, settings))
    return time.monotonic() - started


@cache
def _slices(n_slices: int) -> list[KSpace]:
    assembler = SliceAssembler(parse_scan_header(protocol(n_slices).xml()))
    readouts = (one for number in range(n_slices) for one in slice_readouts(number))
    done = [one for message in (head(n_slices)[-1], *readouts) for one in assembler.add(message)]
    return [one.kspace for one in done]


@cache
def _reconstructor(settings: Settings) -> Reconstructor:
    torch.set_num_threads(1)
    reconstructor = Reconstructor("cpu")
    reconstructor.load(load_settings(None, settings))
    return reconstructor
