"""The root sum of squares of noisy coil images without the floor that their noise raises it to."""

from torch import Tensor

from reconlib.operators.sense import sum_of_squares


def root_sum_of_squares_without_floor(coil_images: Tensor, noise_std: float) -> Tensor:
    r"""Return the root sum of squares less the mean contribution of the noise.

    .. math:: \sqrt{\max\Big(\sum_c |x_c|^2 - 2 N \sigma^2,\, 0\Big)}

    Coil images :math:`x_c`, complex (slice, coil, y, x), to a real image (slice, 1, y, x) in their units; N
    is the number of coils. ``noise_std`` is :math:`\sigma` per real component of each coil image, in the same
    units: with the unitary FFT that of the samples, and where coils differ the root mean square of theirs.
    Before the clamp at 0 the square is right on average. Only the mean of the noise is taken away: without
    signal more than half of the pixels become 0, and the others keep what they have above it.

    References
    ----------
    Henkelman, Med Phys 12:232 (1985), for one coil; Constantinides, Atalar and McVeigh, Magn Reson Med 38:852
    (1997), for the second moment with N coils, the squared truth plus :math:`2 N \sigma^2`.
    """
    floor = 2 * coil_images.shape[1] * noise_std**2
    return (sum_of_squares(coil_images) - floor).clamp_min_(0).sqrt_()
