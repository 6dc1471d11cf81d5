r"""A non-uniform Fourier transform in torch alone, for GPUs and wherever no NUFFT library is installed.

The image is divided by the kernel's own transform, zero-filled to a grid of twice the size, transformed by
FFT, and interpolated at the points with a Kaiser-Bessel kernel; the adjoint does the same backwards, with the
same numbers. Interpolation is the product with a sparse matrix of ``width`` squared real entries per point,
which is stored with its transpose: neither direction needs atomic additions, so results repeat exactly.

With distance d in cells of the fine grid, width W and oversampling 2, kernel and transform are

.. math::
    \kappa(d) = I_0\big(\beta \sqrt{1 - (2 d / W)^2}\big), \qquad
    \hat\kappa(f) = W \frac{\sinh \sqrt{\beta^2 - (\pi W f)^2}}{\sqrt{\beta^2 - (\pi W f)^2}}, \qquad
    \beta = \pi \sqrt{\tfrac{9}{16} W^2 - 0.8}

References
----------
Jackson et al., IEEE Trans Med Imaging 10:473 (1991); Beatty et al., IEEE Trans Med Imaging 24:799 (2005).
"""

import math
import warnings

import torch
from torch import Tensor

_AXES = (-2, -1)
_LARGEST_WIDTH = 14


class GriddingPlan:
    """Transforms between images on a grid and values at fixed points, not scaled; see the module's text.

    The relative error is about ``eps``, and not below 1e-11 in double precision or 1e-6 in single.
    """

    def __init__(self, points: Tensor, shape: tuple[int, int], *, eps: float, dtype: torch.dtype) -> None:
        """Take points float64 (point, 2), (y, x) in cycles per pixel, and the image's shape (y, x)."""
        self._shape = shape
        self._fine = (2 * shape[0], 2 * shape[1])
        real_dtype = torch.zeros((), dtype=dtype).real.dtype
        width = min(max(math.ceil(-math.log10(eps)) + 1, 3), _LARGEST_WIDTH)
        beta = math.pi * math.sqrt(9 / 16 * width**2 - 0.8)
        columns, weights = zip(
            *(_neighbours(points[:, axis], self._fine[axis], width, beta) for axis in (0, 1)), strict=True
        )
        index = columns[0][:, :, None] * self._fine[1] + columns[1][:, None, :]
        weight = (weights[0][:, :, None] * weights[1][:, None, :]).to(real_dtype)
        self._interpolation, self._spreading = _sparse_pair(index.flatten(1), weight.flatten(1), self._fine)
        roll_off = torch.outer(*(_kernel_transform(n, width, beta, points.device) for n in shape))
        self._deapodisation = (1 / roll_off).to(real_dtype)
        self._first = tuple(n - n // 2 for n in shape)

    def forward(self, images: Tensor) -> Tensor:
        """Images (transform, y, x) to values (transform, point)."""
        n = len(images)
        fine = images.new_zeros(n, *self._fine)
        # the image's centre lies at index 0 of the fine grid
        self._window(fine).copy_(images * self._deapodisation)
        spectrum = torch.fft.fft2(torch.fft.ifftshift(fine, dim=_AXES)).flatten(1)
        columns = torch.view_as_real(spectrum).permute(1, 0, 2).reshape(-1, 2 * n)
        values = (self._interpolation @ columns).reshape(-1, n, 2).permute(1, 0, 2).contiguous()
        return torch.view_as_complex(values)

    def adjoint(self, values: Tensor) -> Tensor:
        """Values (transform, point) to images (transform, y, x)."""
        n = len(values)
        columns = torch.view_as_real(values.resolve_conj()).permute(1, 0, 2).reshape(-1, 2 * n)
        spread = (self._spreading @ columns).reshape(*self._fine, n, 2).permute(2, 0, 1, 3).contiguous()
        fine = torch.fft.ifft2(torch.view_as_complex(spread), norm="forward")
        return self._window(torch.fft.fftshift(fine, dim=_AXES)) * self._deapodisation

    def _window(self, fine: Tensor) -> Tensor:
        """Return the part of a centred fine grid that holds the image."""
        (y, x), (n_y, n_x) = self._first, self._shape
        return fine[:, y : y + n_y, x : x + n_x]


def _neighbours(position: Tensor, n_fine: int, width: int, beta: float) -> tuple[Tensor, Tensor]:
    """Cells (point, width) that a point touches along one axis, in FFT order, and the kernel there."""
    centre = position * n_fine
    first = torch.ceil(centre - width / 2)
    cells = first[:, None] + torch.arange(width, device=position.device)
    distance = (cells - centre[:, None]) * (2 / width)
    kernel = torch.special.i0(beta * (1 - distance.square()).clamp_min(0).sqrt())
    return cells.long() % n_fine, kernel


def _kernel_transform(n: int, width: int, beta: float, device: torch.device) -> Tensor:
    """Transform of the kernel at the pixels of one axis, float64 (n,)."""
    position = (torch.arange(n, dtype=torch.float64, device=device) - n // 2) / (2 * n)
    root = (beta**2 - (math.pi * width * position).square()).sqrt()
    return width * torch.sinh(root) / root


def _sparse_pair(index: Tensor, weight: Tensor, fine: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the interpolation matrix (point, cell) and its transpose in compressed rows."""
    shape = (len(index), fine[0] * fine[1])
    rows = torch.arange(len(index), device=index.device)[:, None].expand_as(index)
    with warnings.catch_warnings():
        # torch calls all its compressed sparse matrices beta
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        pair = tuple(
            torch.sparse_coo_tensor(
                torch.stack(where).flatten(1), weight.flatten(), size, check_invariants=False
            ).to_sparse_csr()
            for where, size in (((rows, index), shape), ((index, rows), shape[::-1]))
        )
    return pair[0], pair[1]
