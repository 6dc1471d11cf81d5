r"""Find the phase that radial spokes have of their own, from where they cross: the centre of k-space.

All spokes measure the centre, where the signal of a coil is one number. Eddy currents and a drifting field
turn its phase with the direction and the time of a spoke, which no image explains (Moussavi et al.). With
:math:`v_{ci}` the value of coil c at the sample of spoke i that is nearest to the centre, the phases
:math:`\varphi_i` are those of

.. math:: \sum_c \overline{m_c}\, v_{ci}, \qquad m_c = \sum_i e^{-i \varphi_i} v_{ci}

in turn, less their mean, so the phase of the image stays. The magnitude is left alone: it may change while
contrast agent comes in.

References
----------
Moussavi, Untenberger, Uecker, Frahm, "Correction of gradient-induced phase errors in radial MRI", Magn Reson
Med 71:308 (2014).
"""

import numpy as np
from numpy.typing import NDArray

from reconlib.trajectories.radial import SpokeGeometry
from reconlib.trajectories.spoke_shift import interpolated

ROUNDS = 5


def spoke_phases(samples: NDArray[np.complexfloating], geometry: SpokeGeometry) -> NDArray[np.float64]:
    """Return the phases (spoke,) in rad of samples (coil, spoke, sample), in the order of the points.

    They are 0 where there is no signal in the centre.
    """
    if samples.ndim != 3 or samples.shape[1] != len(geometry.directions):
        raise ValueError(
            f"Samples of shape {samples.shape} do not belong to {len(geometry.directions)} spokes; they are "
            "(coil, spoke, sample)."
        )
    centre = interpolated(samples.astype(np.complex128), geometry.nearest[:, None])[..., 0]
    phases: NDArray[np.float64] = np.zeros(centre.shape[1])
    for _ in range(ROUNDS):
        common = (centre * np.exp(-1j * phases)).sum(axis=1)
        phases = np.angle(common.conj() @ centre)
        phases = phases - np.angle(np.exp(1j * phases).sum())
    wrapped: NDArray[np.float64] = np.angle(np.exp(1j * phases))
    return wrapped
