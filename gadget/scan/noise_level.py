"""The noise level of an assembled slice: known, where its coils were whitened, else estimated."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from gadget.scan.noise import NoiseSource
from gadget.scan.receiver import CoilMap


def noise_level(
    source: NoiseSource,
    coil_map: CoilMap,
    why_no_noise: str,
    *,
    known: float,
    estimate: Callable[[], float],
    samples: NDArray[np.complex64],
) -> tuple[float, tuple[str, ...]]:
    """Return the standard deviation per real component, and what to say of it.

    Parameters
    ----------
    why_no_noise
        Why the noise of an earlier measurement is not used; empty if not so.
    known
        What it is after prewhitening.
    estimate
        Called where it was not prewhitened.
    samples
        complex64 (coil, ...): an estimate is at least a millionth of the largest.
    """
    if source is NoiseSource.PREWHITENED:
        return known, ("taken as prewhitened before it came here",)
    if coil_map.is_white:
        return known, ()
    cause = "" if source is NoiseSource.DATA else ", as there are no usable noise readouts"
    if why_no_noise:
        cause += f" ({why_no_noise})"
    found = estimate()
    # Coil by coil: of a slab the magnitudes of all would take half its memory again.
    largest = max(float(np.abs(of_coil).max(initial=0.0)) for of_coil in samples)
    if largest == 0:
        return 1.0, ("all samples are zero: noise level 1 assumed",)
    if found < 1e-6 * largest:
        return 1e-6 * largest, (
            f"no noise found in the outermost samples{cause}: a millionth of the largest sample assumed",
        )
    return found, (f"noise level estimated from the outermost samples{cause}; not prewhitened",)
