r"""Mean and covariance of complex images, one batch of draws after the other, in float64.

Per pixel the mean of (a, b) = (Re x, Im x) and the 2 x 2 matrix of summed products of deviations are kept,
and a batch of draws is merged into them (Welford, Technometrics 4:419, 1962; for batches Chan, Golub and
LeVeque, Am Stat 37:242, 1983), which loses nothing to cancellation.
"""

import torch
from torch import Tensor


class Moments:
    """Of the draws of all chains of each slice."""

    def __init__(self) -> None:
        self.n_draws = 0
        self._mean: Tensor | None = None
        self._products: Tensor | None = None

    def add(self, draws: Tensor) -> None:
        """Merge draws complex (slice, chain, y, x)."""
        parts = torch.view_as_real(draws).double()
        n_new = parts.shape[1]
        mean = parts.mean(dim=1)
        products = _products(parts - mean[:, None]).sum(dim=1)
        if self._mean is None or self._products is None:
            self._mean, self._products, self.n_draws = mean, products, n_new
            return
        total = self.n_draws + n_new
        shift = mean - self._mean
        self._products += products + _products(shift) * (self.n_draws * n_new / total)
        self._mean += shift * (n_new / total)
        self.n_draws = total

    def mean(self) -> Tensor:
        """Complex128 (slice, y, x)."""
        if self._mean is None:
            raise ValueError("there are no draws to take moments of; add some first.")
        return torch.view_as_complex(self._mean)

    def std(self) -> Tensor:
        r"""Standard deviation float64 (slice, y, x) of :math:`\mathrm{Re}(x \bar m / |m|)`, m the mean.

        Where m is 0, the root of half the variance of both parts. The variance has n - 1 in its denominator,
        n the draws of all chains.
        """
        mean = self.mean()
        if self._products is None or self.n_draws < 2:
            raise ValueError(f"a standard deviation needs two draws or more, not {self.n_draws}.")
        size = mean.abs()
        known = size > 0
        direction = torch.where(known, mean / torch.where(known, size, 1), 0)
        aa, ab, bb = self._products.unbind(dim=-1)
        c, s = direction.real, direction.imag
        along = c.square() * aa + 2 * c * s * ab + s.square() * bb
        variance = torch.where(known, along, (aa + bb) / 2) / (self.n_draws - 1)
        return variance.clamp_min(0).sqrt()


def _products(deviation: Tensor) -> Tensor:
    """Return aa, ab, bb of deviations (..., 2) on a last axis of length 3."""
    a, b = deviation.unbind(dim=-1)
    return torch.stack([a * a, a * b, b * b], dim=-1)
