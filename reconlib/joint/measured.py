"""A batch of slices as it was measured: the data term, in a solver's units, and the trust in samples."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from reconlib.joint.data_consistency import DataConsistency, DataTerm, normalise_coils
from reconlib.joint.outcome import Outcome
from reconlib.joint.result import JointResult, Watch, between
from reconlib.joint.sample_trust import is_repeated, sample_trust
from reconlib.joint.solving import START_ITERATIONS, JointProblem
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.fourier import SampledFourier
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.operators.sense import root_sum_of_squares


def weighted_adjoint(fourier: NonuniformFourier, kspace: NonuniformKSpace) -> Tensor:
    """A^H W z: complex64 (slice, coil, y, x)."""
    return fourier.adjoint(kspace.samples * kspace.weights[:, None])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """A batch of slices as it was measured, and what takes it to a solver's units."""

    kspace: KSpace | NonuniformKSpace
    fourier: SampledFourier | NonuniformFourier
    data: DataTerm
    coil_images: Tensor
    """To start from: complex64 (slice, coil, y, x)."""
    scales: list[float]
    """The samples are multiplied by these, so that images are about 1."""
    factors: Tensor
    """The same, float32 (slice,)."""
    used: Tensor
    """bool (slice,): not all zero."""

    @staticmethod
    def of(kspace: KSpace | NonuniformKSpace, peak: float | None) -> "Measured":
        """Transform a batch once; ``peak`` as for :func:`~reconlib.reconstruction.reconstruct`."""
        fourier: SampledFourier | NonuniformFourier
        data: DataTerm
        if isinstance(kspace, NonuniformKSpace):
            fourier = NonuniformFourier.plan(kspace.trajectory, kspace.shape)
            data, coil_images = LeastSquares.of(fourier, kspace.samples), weighted_adjoint(fourier, kspace)
        else:
            fourier, samples = SampledFourier.fold(kspace)
            data, coil_images = DataConsistency(fourier, samples), fourier.adjoint(samples)
        peaks = root_sum_of_squares(coil_images).amax(dim=(1, 2, 3))
        scales = [1 / (peak or value) if 0 < value < math.inf else 1.0 for value in peaks.tolist()]
        return Measured(
            kspace=kspace,
            fourier=fourier,
            data=data,
            coil_images=coil_images,
            scales=scales,
            factors=torch.tensor(scales, device=coil_images.device),
            used=peaks != 0,  # NaN and infinity count as used: the solver reports them as not finite
        )

    def scaled(self, data: DataTerm) -> DataTerm:
        """Return a data term of the slices in use, in the solver's units."""
        return data.scaled(self.factors).select(self.used)


def solve_trusting(
    measured: Measured, problem: JointProblem, iterations: int, on_iteration: Watch | None
) -> tuple[JointResult, Tensor | None]:
    """Solve for the slices in use; return what samples are trusted, too.

    Where that may be less than fully, the first steps of total variation tell; if not, the estimate goes on
    from them.
    """
    kspace, fourier, data = measured.kspace, measured.fourier, measured.scaled(measured.data)
    if not (
        isinstance(kspace, NonuniformKSpace)
        and isinstance(fourier, NonuniformFourier)
        and is_repeated(kspace)
    ):
        return problem.solve(data, iterations, on_iteration), None
    pilot = problem.start(data, between(on_iteration, before=0, after=problem.n_start + iterations))
    if Outcome.OUT_OF_TIME in pilot.outcomes:
        return pilot, None
    seen = torch.zeros_like(measured.coil_images)
    unscale = 1 / measured.factors[measured.used][:, None, None, None]
    seen[measured.used] = normalise_coils(pilot.coils)[0] * pilot.image * unscale
    trust = sample_trust(kspace, fourier, seen)
    if trust is not None:
        data = measured.scaled(LeastSquares.of(fourier, kspace.samples, trust))
    elif problem.n_start:
        problem = problem.started(pilot)
    return problem.solve(data, iterations, between(on_iteration, before=START_ITERATIONS, after=0)), trust
