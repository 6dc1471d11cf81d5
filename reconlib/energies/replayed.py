"""An energy whose calls are captured once for each shape of image, and then replayed.

Solvers and samplers ask an energy hundreds of times for images of one shape. On a GPU a small network is then
bound by the launches of its kernels; a replay launches them all at once
(:mod:`reconlib.energies.cuda_graphs`). Results are those of the energy itself: the same kernels, in the same
order.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from reconlib.energies.cuda_graphs import CudaGraphs
from reconlib.energies.protocol import Energy

logger = logging.getLogger(__name__)

KEPT = 8
"""Shapes of images that are known at a time, those of the value and of the gradient apart."""
CALLS_BEFORE = 2
"""Calls with a shape before it is captured, which takes as long as several of them."""

_Outputs = tuple[Tensor, ...]
_Function = Callable[[Tensor], _Outputs]
_Key = tuple[str, torch.Size, torch.dtype, torch.device]


@runtime_checkable
class Capture(Protocol):
    """What makes replays: :class:`~reconlib.energies.cuda_graphs.CudaGraphs`, or another one for tests."""

    def suits(self, image: Tensor, /) -> bool:
        """Whether calls with such an image are captured."""
        ...

    def capture(self, function: _Function, image: Tensor, /) -> Callable[[], _Outputs]:
        """Return what gives ``function(image)`` for the content that ``image`` then has.

        It writes to the same tensors each time. A RuntimeError says that it cannot be done.
        """
        ...


@dataclass(slots=True)
class _Shape:
    """What is known of calls with one shape."""

    calls: int = 0
    image: Tensor | None = None
    """Where replays look for the image."""
    replay: Callable[[], _Outputs] | None = None
    """None: not captured yet, or it cannot be."""


class _Replays:
    """Replays of one energy's methods; safe from any thread.

    The lock is held from the copy of the image until the copies of the results: replays of a shape share
    their memory.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._lock = threading.Lock()
        self._shapes: OrderedDict[_Key, _Shape] = OrderedDict()

    def call(self, method: str, function: _Function, image: Tensor) -> _Outputs:
        """Return ``function(image)``."""
        if self._capture.suits(image):
            with self._lock, torch.no_grad():
                shape = self._shape_of((method, image.shape, image.dtype, image.device))
                if shape.calls == CALLS_BEFORE:
                    self._try_to_capture(shape, function, image)
                shape.calls += 1
                if shape.image is not None and shape.replay is not None:
                    shape.image.copy_(image)
                    return tuple(output.clone() for output in shape.replay())
        return function(image)

    def clear(self) -> None:
        """Forget all shapes; the memory of their graphs is free then."""
        with self._lock:
            self._shapes.clear()

    def _shape_of(self, key: _Key) -> _Shape:
        """Return what is known of a shape; where it is new, that of the one not used for longest goes."""
        if key not in self._shapes and len(self._shapes) == KEPT:
            self._shapes.popitem(last=False)
        shape = self._shapes.setdefault(key, _Shape())
        self._shapes.move_to_end(key)
        return shape

    def _try_to_capture(self, shape: _Shape, function: _Function, image: Tensor) -> None:
        fixed = torch.empty_like(image, memory_format=torch.contiguous_format).copy_(image)
        try:
            shape.replay = self._capture.capture(function, fixed)
        except RuntimeError as error:
            logger.warning(
                "The energy of images of shape %s cannot be captured as a CUDA graph (%s); it is evaluated "
                "without, which is slower.",
                tuple(image.shape),
                error,
            )
        else:
            shape.image = fixed


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedEnergy:
    """Another energy, its calls replayed where ``capture`` can; all else is that energy's.

    The energy's weights stay where they are. It may be called from any thread. Copies share the energy and
    have replays of their own.
    """

    energy: Energy
    capture: Capture = field(default_factory=CudaGraphs)
    _replays: _Replays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_replays", _Replays(self.capture))

    def __reduce__(self) -> tuple[type["ReplayedEnergy"], tuple[Energy, Capture]]:
        return ReplayedEnergy, (self.energy, self.capture)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.energy, name)

    @property
    def temperature(self) -> float:
        """T in the density ``exp(-R / T)``."""
        return self.energy.temperature

    def value(self, image: Tensor, /) -> Tensor:
        """Energy (slice,) of a float32 image (slice, 1, y, x)."""
        return self._replays.call("value", lambda seen: (self.energy.value(seen),), image)[0]

    def value_and_gradient(self, image: Tensor, /) -> tuple[Tensor, Tensor]:
        """Energy (slice,) and gradient, shaped as the image."""
        value, gradient = self._replays.call("value_and_gradient", self.energy.value_and_gradient, image)
        return value, gradient

    def release(self) -> None:
        """Free the memory of all replays; what is asked for again is captured again."""
        self._replays.clear()


def replayed_on_cuda(energy: Energy, network: nn.Module) -> Energy:
    """Return the energy of a network, replayed where the network is on a CUDA device."""
    return ReplayedEnergy(energy) if any(one.is_cuda for one in network.parameters()) else energy


def plain(energy: Energy) -> Energy:
    """Return the energy that is replayed, or the energy itself: what kind it is can be told from that."""
    return energy.energy if isinstance(energy, ReplayedEnergy) else energy


def release_replays(energy: Energy) -> None:
    """Free the memory of an energy's replays, where it has any: when a device's memory ran out."""
    if isinstance(energy, ReplayedEnergy):
        energy.release()
