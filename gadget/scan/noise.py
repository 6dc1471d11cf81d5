r"""Noise: from noise readouts to a prewhitening matrix, or, without them, a noise level from the data.

Conventions: the covariance of the coils is the complex one, :math:`C = E[n n^H]`. Whitening uses half of it,
:math:`W = L^{-1}` with :math:`L L^H = C / 2`, so that each *real component* of a whitened sample has the
standard deviation 1 (a complex sample the variance 2).
"""

from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from gadget.errors import ScanError
from gadget.scan.coil_identity import CoilIdentity
from gadget.scan.coil_products import coil_covariance_sum

DEPENDENT_BELOW = 1e-5
"""A coil whose noise the others explain up to this part of its variance carries no data of its own."""

SAMPLES_PER_COIL = 4
"""With fewer noise samples than this times the number of coils, correlations are too uncertain to be used."""

_GAUSSIAN_MAD = 0.6744897501960817  # the median of |x| for a normal x of standard deviation 1


class NoiseSource(Enum):
    """Where the noise level comes from."""

    READOUTS = "readouts"
    """Prewhiten with the scan's noise readouts; without any, with the earlier measurement that the header
    names, where that is kept; else estimate from the data."""
    DATA = "data"
    """Estimate from the data; no prewhitening."""
    PREWHITENED = "prewhitened"
    """The data came prewhitened: standard deviation 1 per real component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prewhitening:
    """A linear map from the scanner's coils to coils with independent noise of equal level."""

    matrix: NDArray[np.complex128]
    """complex128 (kept coil, coil)."""
    dwell_us: float
    """Dwell time of the noise readouts; 0 where it is not known."""
    bandwidth: float | None = None
    """The relative noise bandwidth that came with the noise; None: the one of the scan counts."""
    kept_coils: tuple[int, ...]
    """The scanner's coils that carry data of their own, in their order."""
    notes: tuple[str, ...]

    def scale(self, dwell_us: float, noise_bandwidth: float) -> float:
        r"""Return the factor for imaging data sampled with another dwell time.

        :math:`\sqrt{t_\mathrm{imaging} / t_\mathrm{noise} \cdot b}`: noise power follows the bandwidth, and
        noise readouts see the receiver's filter (relative bandwidth b). 1 where one of the dwell times is not
        known.
        """
        if self.dwell_us <= 0 or dwell_us <= 0:
            return 1.0
        return float(np.sqrt(dwell_us / self.dwell_us * noise_bandwidth))

    def describe_scale(self, dwell_us: float, noise_bandwidth: float, *, from_header: bool) -> str:
        """Say in words what :meth:`scale` used."""
        if self.dwell_us <= 0 or dwell_us <= 0:
            return "a dwell time is not known: noise readouts and data taken to have the same noise"
        source = "from the header" if from_header else "the default, none in the header"
        return (
            f"dwell times {dwell_us:g} us (data) and {self.dwell_us:g} us (noise), relative noise bandwidth "
            f"{noise_bandwidth:g} ({source})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseCovariance:
    """What is known after a noise measurement; no more of it is ever kept."""

    matrix: NDArray[np.complex128]
    """complex128 (coil, coil), E[n n^H]; rows and columns of coils whose noise is not known are zero."""
    n_samples: int
    n_readouts: int
    dwell_us: float
    """Dwell time that ``matrix`` belongs to; 0 where it is not known."""
    bandwidth: float | None = None
    """Relative receiver noise bandwidth of the measurement's header; None where it has none."""
    coil_names: tuple[str, ...] = ()
    """Name of each coil; empty where they are not known."""
    origin: str = ""
    """Words for the log: where the noise comes from, when not from the scan itself."""
    remarks: tuple[str, ...] = field(default=())
    """How it was pooled, in words for the log."""

    def of_coils(self, rows: tuple[int, ...]) -> "NoiseCovariance":
        """Return the covariance of some coils, in the order that is given."""
        names = tuple(self.coil_names[row] for row in rows) if self.coil_names else ()
        return replace(self, matrix=self.matrix[np.ix_(rows, rows)], coil_names=names)

    def prewhitening(self, left_out: tuple[int, ...] = ()) -> Prewhitening | None:
        r"""Return the whitening; None where there is no noise at all.

        The matrix that N samples of n coils give whitens other samples of the same noise to the variance
        :math:`2 N / (N - n)` on average (the mean of an inverse complex Wishart matrix), not 2. The factor is
        taken out here, so that few noise samples do not make the noise look larger than it is.

        Parameters
        ----------
        left_out
            Coils that are not used; the others are whitened as if these were not there.
        """
        n_coils = self.matrix.shape[0]
        notes = [
            f"prewhitened with {self.n_samples} noise samples of {self.n_readouts} readout(s){self.origin}",
            *self.remarks,
        ]
        candidates = [coil for coil in range(n_coils) if coil not in left_out]
        covariance = self.matrix[np.ix_(candidates, candidates)]
        is_diagonal = self.n_samples < SAMPLES_PER_COIL * n_coils
        if is_diagonal:
            covariance = np.diag(np.diag(covariance))
            notes.append(
                f"only {self.n_samples} noise samples for {n_coils} coils: their correlations were left out"
            )
        factor, kept = _independent_factor(covariance / 2)
        if not kept:
            return None
        n_fitted = 1 if is_diagonal else len(kept)
        factor = factor * np.sqrt(self.n_samples / max(self.n_samples - n_fitted, 1))
        kept = [candidates[index] for index in kept]
        coils = CoilIdentity(n_coils, names=self.coil_names)
        silent = [coil for coil in candidates if self.matrix[coil, coil].real == 0]
        copies = [coil for coil in candidates if coil not in kept and coil not in silent]
        if silent:
            notes.append(f"{coils.say(silent)} left out: no noise in the noise readouts")
        if copies:
            notes.append(f"{coils.say(copies)} left out: next to no noise, or only a copy of other coils'")
        matrix = np.zeros((len(kept), n_coils), np.complex128)
        matrix[:, kept] = solve_triangular(factor, np.eye(len(kept)), lower=True)
        return Prewhitening(
            matrix=matrix,
            dwell_us=self.dwell_us,
            bandwidth=self.bandwidth,
            kept_coils=tuple(kept),
            notes=tuple(notes),
        )


class NoiseScan:
    """Pools noise readouts of any length.

    Readouts of different dwell times are pooled too: noise power is inversely proportional to the dwell time,
    so each is scaled to the first dwell time that is known. A readout whose dwell time is not known (0) is
    not scaled. The mean is not removed: noise has none. The noise of a coil that is zero throughout any of
    the readouts is not known.
    """

    def __init__(self) -> None:
        self.n_readouts = 0
        self.n_samples = 0
        self.dwell_us = 0.0
        self._sum: NDArray[np.complex128] | None = None
        self._has_noise: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._dwells_differ = False

    @property
    def n_coils(self) -> int:
        """Number of coils; 0 before the first readout."""
        return 0 if self._sum is None else self._sum.shape[0]

    def add(self, data: NDArray[np.complex64], dwell_us: float) -> None:
        """Add one noise readout, complex (coil, sample), of finite samples."""
        noise = data.astype(np.complex128)
        if self._sum is None:
            self._sum = np.zeros((noise.shape[0], noise.shape[0]), np.complex128)
            self._has_noise = np.ones(noise.shape[0], np.bool_)
        elif noise.shape[0] != self._sum.shape[0]:
            raise ScanError(
                f"Noise readouts have {self._sum.shape[0]} and {noise.shape[0]} coils; all need the same "
                "number."
            )
        self._has_noise &= noise.any(axis=1)
        if self.dwell_us <= 0:
            self.dwell_us = dwell_us
        elif dwell_us > 0 and dwell_us != self.dwell_us:
            noise *= np.sqrt(dwell_us / self.dwell_us)
            self._dwells_differ = True
        self._sum += coil_covariance_sum(noise)
        self.n_samples += noise.shape[1]
        self.n_readouts += 1

    def covariance(
        self, coil_names: tuple[str, ...] = (), bandwidth: float | None = None
    ) -> NoiseCovariance | None:
        """Return the covariance of what was added; None where nothing was added, or only zeros."""
        if self._sum is None or self.n_samples == 0 or not self._has_noise.any():
            return None
        remark = f"noise readouts of different dwell times were scaled to {self.dwell_us:g} us"
        return NoiseCovariance(
            matrix=self._sum / self.n_samples * np.outer(self._has_noise, self._has_noise),
            n_samples=self.n_samples,
            n_readouts=self.n_readouts,
            dwell_us=self.dwell_us,
            bandwidth=bandwidth,
            coil_names=coil_names,
            remarks=(remark,) if self._dwells_differ else (),
        )


def _independent_factor(covariance: NDArray[np.complex128]) -> tuple[NDArray[np.complex128], list[int]]:
    """Cholesky factor of the coils that are independent of those before them, and which coils these are.

    A coil without noise, or whose noise the kept coils before it predict up to ``DEPENDENT_BELOW`` of its
    variance, is left out, so nothing is ever divided by (nearly) zero.
    """
    n_coils = covariance.shape[0]
    variance = np.diag(covariance).real
    # Coils differ in gain by decades in real arrays; below 1e-12 of the strongest there is only rounding.
    floor = 1e-12 * float(variance.max(initial=0.0))
    factor = np.zeros((n_coils, n_coils), np.complex128)
    kept: list[int] = []
    for coil in range(n_coils):
        if not variance[coil] > floor:
            continue
        n = len(kept)
        row = (
            solve_triangular(factor[:n, :n], covariance[kept, coil], lower=True).conj() if n else np.zeros(0)
        )
        rest = float(variance[coil] - np.vdot(row, row).real)
        if rest <= DEPENDENT_BELOW * variance[coil]:
            continue
        factor[n, :n] = row
        factor[n, n] = np.sqrt(rest)
        kept.append(coil)
    return factor[: len(kept), : len(kept)], kept


def noise_std_from_edges(samples: NDArray[np.complex64]) -> float:
    """Estimate the noise per real component from the outermost samples of k-space, coil by coil.

    For each coil the median absolute value of the real and imaginary parts (over 0.6745: the standard
    deviation of a normal variable, insensitive to a few large samples), then the root mean square over the
    coils with any signal. Where the outermost samples still hold signal it comes out too large, never too
    small by much.

    Parameters
    ----------
    samples
        complex64 (line, coil, sample): the outermost samples of all lines.

    Returns
    -------
    float
        0 where there is nothing but zeros.
    """
    parts = np.ascontiguousarray(np.moveaxis(samples, 1, 0)).reshape(samples.shape[1], -1)
    std = np.median(np.abs(parts.view(np.float32)), axis=1).astype(np.float64) / _GAUSSIAN_MAD
    std = std[std > 0]
    return float(np.sqrt(np.mean(std**2))) if std.size else 0.0
