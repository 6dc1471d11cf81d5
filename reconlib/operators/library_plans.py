"""Plans of the NUFFT libraries: finufft on the CPU, cufinufft on CUDA devices.

References
----------
Barnett, Magland and af Klinteberg, SIAM J Sci Comput 41:C479 (2019); Shih et al., arXiv 2102.08463 (2021).
"""

import importlib
import importlib.util
import math
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class TransformPlan(Protocol):
    """Fixed points and a grid; transforms between them, not scaled, each the other's exact adjoint."""

    def forward(self, images: Tensor, /) -> Tensor:
        """Images (transform, y, x) to values (transform, point)."""
        ...

    def adjoint(self, values: Tensor, /) -> Tensor:
        """Values (transform, point) to images (transform, y, x)."""
        ...


def is_installed(library: str) -> bool:
    """Whether a library can be imported."""
    return importlib.util.find_spec(library) is not None


class FinufftPlan:
    """One finufft plan for each number of transforms that is asked for; points (y, x) in cycles per pixel.

    It runs with as many threads as torch had when the plan was made, and must not run twice at once.
    """

    def __init__(self, points: Tensor, shape: tuple[int, int], *, eps: float, dtype: torch.dtype) -> None:
        self._shape, self._eps, self._name = shape, eps, _name_of(dtype)
        real_dtype = torch.zeros((), dtype=dtype).real.dtype
        self._angles = [angles.to(real_dtype).numpy() for angles in _angles(points)]
        self._plans: dict[int, Any] = {}

    def forward(self, images: Tensor) -> Tensor:
        """Images (transform, y, x) to values (transform, point)."""
        values = images.new_empty(len(images), len(self._angles[0]))
        self._plan(len(images)).execute(_plain(images).numpy(), out=values.numpy())
        return values

    def adjoint(self, values: Tensor) -> Tensor:
        """Values (transform, point) to images (transform, y, x)."""
        images = values.new_empty(len(values), *self._shape)
        self._plan(len(values)).execute_adjoint(_plain(values).numpy(), out=images.numpy())
        return images

    def _plan(self, n_transforms: int) -> Any:
        if n_transforms not in self._plans:
            finufft = importlib.import_module("finufft")
            plan = finufft.Plan(
                2,
                self._shape,
                n_transforms,
                self._eps,
                isign=-1,
                dtype=self._name,
                nthreads=torch.get_num_threads(),
                showwarn=0,  # it would write to the terminal where OMP_NUM_THREADS is lower
            )
            plan.setpts(*self._angles)
            self._plans[n_transforms] = plan
        return self._plans[n_transforms]


class CufinufftPlan:
    """As :class:`FinufftPlan` on a CUDA device, on the stream that is torch's current one when it is planned.

    A plan of cufinufft knows one direction, so there are two; they use the same kernel and points.
    """

    def __init__(self, points: Tensor, shape: tuple[int, int], *, eps: float, dtype: torch.dtype) -> None:
        self._shape, self._eps, self._name = shape, eps, _name_of(dtype)
        real_dtype = torch.zeros((), dtype=dtype).real.dtype
        self._angles = [angles.to(real_dtype) for angles in _angles(points)]
        self._plans: dict[tuple[int, int, int], Any] = {}

    def forward(self, images: Tensor) -> Tensor:
        """Images (transform, y, x) to values (transform, point)."""
        values = images.new_empty(len(images), len(self._angles[0]))
        self._plan(2, len(images)).execute(_plain(images), out=values)
        return values

    def adjoint(self, values: Tensor) -> Tensor:
        """Values (transform, point) to images (transform, y, x)."""
        images = values.new_empty(len(values), *self._shape)
        self._plan(1, len(values)).execute(_plain(values), out=images)
        return images

    def _plan(self, kind: int, n_transforms: int) -> Any:
        device = self._angles[0].device
        stream = torch.cuda.current_stream(device).cuda_stream
        key = (kind, n_transforms, stream)
        if key not in self._plans:
            cufinufft = importlib.import_module("cufinufft")
            plan = cufinufft.Plan(
                kind,
                self._shape,
                n_transforms,
                self._eps,
                isign=1 if kind == 1 else -1,
                dtype=self._name,
                gpu_device_id=torch.cuda.current_device() if device.index is None else device.index,
                gpu_stream=stream,
            )
            plan.setpts(*self._angles)
            self._plans[key] = plan
        return self._plans[key]


def _angles(points: Tensor) -> tuple[Tensor, Tensor]:
    """Phase per pixel along y and x, in radians within [-pi, pi]."""
    turned = points - points.round()
    return (2 * math.pi * turned[:, 0]).contiguous(), (2 * math.pi * turned[:, 1]).contiguous()


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _plain(values: Tensor) -> Tensor:
    """Return the values as they are meant, one after the other in memory."""
    return values.detach().resolve_conj().resolve_neg().contiguous()
