"""Noise and signal of each coil, and which coils are dead or copies of others."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gadget.inspection.content import Coil, Noise

SAME_COIL = 0.999
"""Two coils whose noise is correlated by more than this are copies of each other."""
DEAD_BELOW = 1e-6
"""A coil with less noise or signal than this part of the strongest one's has none."""


class CoilTally:
    """Adds up the products of coils over noise readouts, and their energy over imaging readouts."""

    def __init__(self) -> None:
        self.n_not_finite = 0
        """Readouts with NaN or infinite samples; they are left out."""
        self._noise: NDArray[np.complex128] | None = None
        self._energy: NDArray[np.float64] | None = None
        self._n_noise_readouts = self._n_noise_samples = self._n_image_samples = 0
        self._dwell_us: set[float] = set()

    def add_noise(self, data: NDArray[np.complex64], dwell_us: float) -> None:
        """Add a noise readout, complex (coil, sample); others than of the first one's coils are left out."""
        noise = data.astype(np.complex128)
        if not self._is_finite(data) or (self._noise is not None and len(self._noise) != len(noise)):
            return
        product = noise @ noise.conj().T
        self._noise = product if self._noise is None else self._noise + product
        self._n_noise_readouts += 1
        self._n_noise_samples += noise.shape[1]
        self._dwell_us.add(dwell_us)

    def add_image(self, data: NDArray[np.complex64]) -> None:
        """Add an imaging readout, complex (coil, sample)."""
        if not self._is_finite(data) or (self._energy is not None and len(self._energy) != len(data)):
            return
        parts = np.ascontiguousarray(data).view(np.float32).astype(np.float64)
        energy = np.einsum("cs,cs->c", parts, parts)
        self._energy = energy if self._energy is None else self._energy + energy
        self._n_image_samples += data.shape[1]

    def noise(self) -> Noise | None:
        """Return what the noise readouts tell; None without any."""
        if self._noise is None:
            return None
        correlation = _correlation(self._noise)
        return Noise(
            n_readouts=self._n_noise_readouts,
            n_samples=self._n_noise_samples,
            dwell_us=tuple(sorted(self._dwell_us)),
            correlation=tuple(tuple(round(float(value), 4) for value in row) for row in correlation),
        )

    def coils(self, names: Sequence[str]) -> tuple[Coil, ...]:
        """Describe each coil of the imaging readouts, or of the noise where there are none."""
        n_coils = len(self._energy) if self._energy is not None else 0
        if self._energy is None and self._noise is not None:
            n_coils = len(self._noise)
        noise_std = signal = correlation = None
        if self._noise is not None and len(self._noise) == n_coils:
            noise_std = np.sqrt(np.diag(self._noise).real / max(2 * self._n_noise_samples, 1))
            correlation = _correlation(self._noise) - np.eye(n_coils)
        if self._energy is not None:
            signal = np.sqrt(self._energy / max(self._n_image_samples, 1))
        coils = []
        for number in range(n_coils):
            other = None
            if correlation is not None and noise_std is not None and n_coils > 1 and noise_std[number] > 0:
                other = int(correlation[number].argmax())
            largest = None if correlation is None or other is None else float(correlation[number, other])
            coils.append(
                Coil(
                    number=number,
                    name=names[number] if len(names) == n_coils else None,
                    noise_std=None if noise_std is None else float(noise_std[number]),
                    signal_rms=None if signal is None else float(signal[number]),
                    largest_correlation=largest,
                    correlated_with=other,
                    note=_note(number, noise_std, signal, largest, other),
                )
            )
        return tuple(coils)

    def _is_finite(self, data: NDArray[np.complex64]) -> bool:
        is_finite = bool(np.isfinite(np.ascontiguousarray(data).view(np.float32)).all())
        self.n_not_finite += not is_finite
        return is_finite


def _correlation(products: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Magnitude of the correlation of each pair of coils; 0 for coils without noise, 1 on the diagonal."""
    std = np.sqrt(np.diag(products).real)
    scale = np.outer(std, std)
    correlation: NDArray[np.float64] = np.zeros_like(scale)
    np.divide(np.abs(products), scale, out=correlation, where=scale > 0)
    np.fill_diagonal(correlation, 1.0)
    np.minimum(correlation, 1.0, out=correlation)
    return correlation


def _note(
    number: int,
    noise_std: NDArray[np.float64] | None,
    signal: NDArray[np.float64] | None,
    largest: float | None,
    other: int | None,
) -> str | None:
    if signal is not None and signal[number] <= DEAD_BELOW * signal.max():
        return "no signal"
    if noise_std is not None and noise_std[number] <= DEAD_BELOW * noise_std.max():
        return "no noise"
    if largest is not None and largest > SAME_COIL:
        return f"a copy of coil {other}"
    return None
