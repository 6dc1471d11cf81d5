r"""CG-SENSE, the usual reconstruction of non-Cartesian scans, to compare with.

Conjugate gradients on :math:`\min_x \|W^{1/2} (A(e\, x) - z)\|^2`, from zero, with the density weights W and
maps e from the centre of the samples themselves. It has no regularisation but the number of iterations.

References
----------
Pruessmann et al., "Advances in sensitivity encoding with arbitrary k-space trajectories", Magn Reson Med
46:638 (2001).
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from reconlib.evaluation.metrics import psnr_after_scale_fit
from reconlib.evaluation.study import Case, MethodImage
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.fourier import fft2c, ifft2c
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.operators.sense import root_sum_of_squares

CALIBRATION_RADIUS = 12.0
"""Of the part of k-space that maps are made of, in cycles per field of view (Hann window)."""
MOST_ITERATIONS = 60
PATIENCE = 4
"""Iterations without a better image after which the search for the best number ends."""


def cg_sense(
    kspace: KSpace | NonuniformKSpace, coils: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the image after each iteration, complex64 (slice, 1, y, x), and the maps (slice, coil, y, x).

    Given maps are divided by their root-sum-of-squares. It ends by itself only where nothing is left to do.
    """
    backprojection, normal = _weighted_normal(kspace)
    maps = smooth_centre(backprojection) if coils is None else coils
    magnitude = root_sum_of_squares(maps)
    maps = maps / magnitude.clamp_min(torch.finfo(magnitude.dtype).tiny)

    def combined(coil_images: Tensor) -> Tensor:
        return (maps.conj() * coil_images).sum(dim=1, keepdim=True)

    residual = combined(backprojection)
    image, direction = torch.zeros_like(residual), residual
    power = _power(residual)
    while power > 0:
        turned = combined(normal(maps * direction))
        step = power / float((direction.conj() * turned).sum().real)
        image, residual = image + step * direction, residual - step * turned
        power, before = _power(residual), power
        direction = residual + (power / before) * direction
        yield image, maps


def cg_sense_image(kspace: KSpace | NonuniformKSpace, iterations: int) -> Tensor:
    """Return the magnitude after that many iterations (fewer where it ends by itself), float32."""
    image = torch.zeros((len(kspace.samples), 1, *_grid(kspace)))
    for number, (found, _) in enumerate(cg_sense(kspace), start=1):
        image = found.abs()
        if number == iterations:
            break
    return image


def best_of_cg_sense(case: Case) -> MethodImage:
    """CG-SENSE at the number of iterations that is best against the reference (oracle)."""
    best, found = -math.inf, MethodImage(image=torch.zeros_like(case.reference))
    chosen = 0
    for number, (image, maps) in enumerate(cg_sense(case.kspace, case.scan.coils), start=1):
        magnitude = case.in_view(image).abs()
        quality = float(psnr_after_scale_fit(magnitude, case.reference))
        if quality > best:
            best, chosen = quality, number
            found = MethodImage(
                image=magnitude, coils=case.in_view(maps), facts={"iterations": float(number)}
            )
        if number == MOST_ITERATIONS or number >= chosen + PATIENCE:
            break
    return found


def smooth_centre(coil_images: Tensor) -> Tensor:
    """Return coil images (slice, coil, y, x) of the centre of their k-space, under a Hann window."""
    n_y, n_x = coil_images.shape[-2:]
    y, x = (torch.arange(n, device=coil_images.device) - n // 2 for n in (n_y, n_x))
    radius = torch.hypot(y[:, None].float(), x.float()) / CALIBRATION_RADIUS
    window = torch.where(radius < 1, 0.5 + 0.5 * torch.cos(math.pi * radius), torch.zeros(()))
    low: Tensor = ifft2c(fft2c(coil_images) * window)
    return low


def _weighted_normal(
    kspace: KSpace | NonuniformKSpace,
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return A^H W z and A^H W A, complex64 (slice, coil, y, x); on the grid W is the mask."""
    if isinstance(kspace, KSpace):
        mask = kspace.mask
        return ifft2c(kspace.samples * mask), lambda images: ifft2c(fft2c(images) * mask)
    fourier = NonuniformFourier.plan(kspace.trajectory, kspace.shape, eps=1e-5)
    weights = kspace.weights[:, None]
    return (
        fourier.adjoint(kspace.samples * weights),
        lambda images: fourier.adjoint(fourier.forward(images) * weights),
    )


def _grid(kspace: KSpace | NonuniformKSpace) -> tuple[int, int]:
    if isinstance(kspace, NonuniformKSpace):
        return kspace.shape
    n_y, n_x = kspace.samples.shape[-2:]
    return n_y, n_x


def _power(image: Tensor) -> float:
    return float(image.abs().double().square().sum())
