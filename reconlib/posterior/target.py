r"""The densities that are sampled, for many chains of many slices at once.

Coil maps are held at their (normalised) estimate e. The energy of an image x = a + i b is

.. math::
    E(x) = \frac{1}{2 \sigma^2} \|A x - z\|^2 + \frac{\lambda}{\sigma^2} R(a)
           + \frac{\lambda_{im}}{\sigma^2} Q(b), \qquad (A x)_c = M F (e_c x)

in the scaled units of the reconstruction, with its weights and its image model
(:class:`~reconlib.joint.image_model.ImageModel`), and its density is exp(-E). Q is the quadratic that touches
the reconstruction's total variation of b at its estimate, with :math:`\epsilon = \sigma`
(:class:`~reconlib.energies.quadratic_variation.QuadraticVariation`): total variation finds the edges of an
estimate, but as a density it is far too wide where b is not measured, and its mean has no edges (Lassas and
Siltanen, Inverse Probl 20:1537, 2004). On simulated scans its posterior mean lay 0.8 to 2.2 dB below that
of Q, and its kink keeps the steps of chains short. That is ``soft``; in ``free`` both parts have R, and there
is no Q.

A ``real`` image is kept from negative values by reflection where the prior knows magnitudes only. A prior
that knows negative values needs no wall there, and dark pixels are then not brighter than they should be.

The data term is quadratic, so :math:`A^H z` is all that it needs of the data:

.. math::
    \nabla H = A^H A x - A^H z, \qquad
    \tfrac12 \|A x - z\|^2 = \tfrac12 \mathrm{Re} \langle x, \nabla H - A^H z \rangle + \tfrac12 \|z\|^2

Images are rows (slice and chain, 1, y, x), the chains of a slice side by side. Random numbers are drawn per
chain and shared by the slices, so the chains of a slice do not depend on its neighbours in the batch.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from reconlib.energies.protocol import Energy
from reconlib.energies.quadratic_variation import QuadraticVariation
from reconlib.energies.replayed import release_replays
from reconlib.energies.view import View
from reconlib.joint.data_consistency import DataConsistency, normalise_coils
from reconlib.joint.image_model import ImageModel
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.fourier import SampledFourier
from reconlib.operators.inner_product import half_square, real_dot
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.operators.sense import SenseInImage
from reconlib.posterior.memory import rows_that_fit
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import Prior
from reconlib.reconstruction import Reconstruction, ReconstructionSettings

_log = logging.getLogger(__name__)

IMAGINARY_EPSILON = 1.0
"""epsilon of Q, in units of sigma."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """E and its gradient at the images of all rows."""

    gradient: Tensor
    """Shaped as the images; d/dRe + i d/dIm."""
    prior: Tensor
    """float64 (row,): E without the data term."""
    data: Tensor
    """float64 (row,): the data term; zero where there are no data."""
    data_gradient: Tensor | None = None
    """Gradient of the data term; None where there are no data."""


@runtime_checkable
class Target(Protocol):
    """A density exp(-E) of images and the random numbers of its chains."""

    @property
    def reflecting(self) -> bool:
        """Real parts are not negative: chains are reflected at 0."""
        ...

    def evaluate(self, image: Tensor, /) -> Evaluation:
        """E and its gradient at images (row, 1, y, x)."""
        ...

    def noise(self, generator: torch.Generator, /) -> Tensor:
        """Normal random numbers of variance 1 per free component, shaped as the images."""
        ...

    def uniform(self, generator: torch.Generator, /) -> Tensor:
        """Uniform random numbers of [0, 1), float64 (row,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PriorTarget:
    """The density of a prior alone, exp(-R / T); float32 images, one chain per row."""

    energy: Energy
    shape: tuple[int, int, int, int]
    """Of the images: (row, 1, y, x)."""

    reflecting = False

    def evaluate(self, image: Tensor, /) -> Evaluation:
        """R / T and its gradient."""
        value, gradient = self.energy.value_and_gradient(image)
        prior = value.double() / self.energy.temperature
        return Evaluation(gradient / self.energy.temperature, prior, torch.zeros_like(prior))

    def noise(self, generator: torch.Generator, /) -> Tensor:
        """Normal random numbers, shaped as the images."""
        return torch.randn(self.shape, generator=generator, device=generator.device)

    def uniform(self, generator: torch.Generator, /) -> Tensor:
        """Uniform random numbers (row,)."""
        return torch.rand(self.shape[0], generator=generator, device=generator.device, dtype=torch.float64)


@dataclass(slots=True, eq=False)
class PosteriorTarget:
    """The posterior of a batch of slices; see the module's text."""

    data: DataConsistency | LeastSquares
    """What gives A^H A."""
    directions: Tensor
    """e: complex64 (slice, coil, y, x), normalised maps."""
    backprojection: Tensor
    """A^H z: complex64 (slice, 1, y, x), scaled."""
    half_data_norm: Tensor
    """|z|^2 / 2: float64 (slice,)"""
    model: ImageModel
    """Prior terms with the weights lambda / sigma^2 and lambda_im / sigma^2, per slice."""
    inverse_variance: Tensor
    """1 / sigma^2: float64 (slice,)"""
    n_chains: int
    chunk: int
    """Rows that are evaluated at once; halved where the device's memory does not suffice."""
    conjugates: Tensor = field(init=False)
    """Of ``directions``."""
    view: View = View()
    """How R sees the images, those of all rows alike."""

    def __post_init__(self) -> None:
        self.conjugates = self.directions.conj().resolve_conj()

    @property
    def real(self) -> bool:
        """Whether the image is real."""
        return self.model.phase == "real"

    @property
    def reflecting(self) -> bool:
        """Whether the image is real and not negative."""
        return self.real and not self.model.signed

    def with_one_chain(self) -> "PosteriorTarget":
        """Return the same density for one chain per slice."""
        return replace(self, n_chains=1)

    def evaluate(self, image: Tensor, /) -> Evaluation:
        """E and its gradient, in chunks of rows; out of memory, with chunks of half the size."""
        while True:
            try:
                return self._evaluate(image)
            except torch.OutOfMemoryError:
                if self.chunk == 1:
                    raise
                self.chunk = self.chunk // 2
                _log.warning("out of device memory: going on with %s chains at once", self.chunk)
            if image.is_cuda:
                release_replays(self.model.energy)
                torch.cuda.empty_cache()

    def noise(self, generator: torch.Generator, /) -> Tensor:
        """Normal random numbers per chain; the imaginary part is zero where the image is real."""
        n_slices, _, n_y, n_x = self.directions.shape
        shape = (self.n_chains, 1, n_y, n_x)
        if self.real:
            real_part = torch.randn(shape, generator=generator, device=generator.device)
            drawn = torch.complex(real_part, torch.zeros_like(real_part))
        else:
            parts = torch.randn((*shape, 2), generator=generator, device=generator.device)
            drawn = torch.view_as_complex(parts)
        return drawn if n_slices == 1 else drawn.repeat(n_slices, 1, 1, 1)

    def uniform(self, generator: torch.Generator, /) -> Tensor:
        """Uniform random numbers per chain."""
        drawn = torch.rand(self.n_chains, generator=generator, device=generator.device, dtype=torch.float64)
        return drawn.repeat(len(self.inverse_variance))

    def _evaluate(self, image: Tensor) -> Evaluation:
        n_rows = image.shape[0]
        gradient, data_gradient = torch.empty_like(image), torch.empty_like(image)
        data = torch.empty(n_rows, dtype=torch.float64, device=image.device)
        prior = torch.empty_like(data)
        for slices, chains in self._pieces():
            rows = slice(
                slices.start * self.n_chains + chains.start, (slices.stop - 1) * self.n_chains + chains.stop
            )
            self._evaluate_piece(
                image[rows], slices, chains, gradient[rows], data_gradient[rows], data[rows], prior[rows]
            )
        return Evaluation(gradient, prior, data, data_gradient)

    def _pieces(self) -> Iterator[tuple[slice, slice]]:
        """Yield ranges of slices and chains: several whole slices, or some chains of one."""
        n_slices = len(self.inverse_variance)
        if self.chunk >= self.n_chains:
            n_together = self.chunk // self.n_chains
            for first in range(0, n_slices, n_together):
                yield slice(first, min(first + n_together, n_slices)), slice(0, self.n_chains)
            return
        for one in range(n_slices):
            for first in range(0, self.n_chains, self.chunk):
                yield slice(one, one + 1), slice(first, min(first + self.chunk, self.n_chains))

    def _evaluate_piece(
        self,
        image: Tensor,
        slices: slice,
        chains: slice,
        gradient: Tensor,
        data_gradient: Tensor,
        data: Tensor,
        prior: Tensor,
    ) -> None:
        """Write the results of some rows into the last four arguments."""
        n_together = slices.stop - slices.start
        n_chains = chains.stop - chains.start
        stack = image.reshape(n_together, n_chains, *image.shape[2:])
        term = self.data
        if n_together < len(self.directions):
            term = term.select(torch.arange(slices.start, slices.stop, device=image.device))
        projected = term.combined_normal(self.directions[slices], self.conjugates[slices], stack)
        backprojection = self.backprojection[slices].expand_as(stack).reshape(image.shape)
        pull = projected.reshape(image.shape).sub_(backprojection)
        inverse_variance = self.inverse_variance[slices].repeat_interleave(n_chains)
        away = pull - backprojection
        value = real_dot(image, away) / 2 + self.half_data_norm[slices].repeat_interleave(n_chains)
        data[:] = value * inverse_variance
        if self.real:
            pull.imag.zero_()
        torch.mul(pull, inverse_variance.float()[:, None, None, None], out=data_gradient)
        which = torch.arange(slices.start, slices.stop, device=image.device).repeat_interleave(n_chains)
        model = self.model.select(which)
        prior[:], prior_gradient = model.value_and_gradient(image, self.view)
        torch.add(data_gradient, prior_gradient, out=gradient)


def _measured(
    kspace: KSpace | NonuniformKSpace, trust: Tensor | None, directions: Tensor, scale: Tensor, rows: Tensor
) -> tuple[DataConsistency | LeastSquares, Tensor, Tensor]:
    """Return what gives A^H A, A^H z (slice, 1, y, x) and |z|^2 / 2 of the slices, in scaled units."""
    factors = scale[:, None, None, None]
    if isinstance(kspace, NonuniformKSpace):
        fourier = NonuniformFourier.plan(kspace.trajectory, kspace.shape)
        term = LeastSquares.of(fourier, kspace.samples, trust).select(rows).scaled(scale)
        combined = (directions.conj() * term.backprojection).sum(dim=1, keepdim=True)
        return term, combined, term.half_data_norm
    grid, samples = SampledFourier.fold(
        KSpace(samples=kspace.samples[rows], mask=kspace.mask[rows], noise_std=kspace.noise_std)
    )
    samples = samples * factors
    combined = SenseInImage(directions, grid).adjoint(samples)
    return DataConsistency(grid, samples), combined, half_square(samples)


def posterior_target(
    kspace: KSpace | NonuniformKSpace,
    reconstruction: Reconstruction,
    prior: Prior,
    solver: ReconstructionSettings,
    settings: PosteriorSettings,
    rows: Tensor,
) -> tuple[PosteriorTarget, Tensor, Tensor]:
    """Return the density, the scaled reconstruction (slice, 1, y, x) and sigma (slice,), float64."""

    def per_slice(values: tuple[float, ...]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=kspace.samples.device)[rows]

    scale = per_slice(reconstruction.scale).float()
    sigma = per_slice(reconstruction.noise_level)
    image = reconstruction.image[rows] * scale[:, None, None, None]
    directions = normalise_coils(reconstruction.coils[rows])[0]
    data, backprojection, half_data_norm = _measured(kspace, reconstruction.trust, directions, scale, rows)
    target = PosteriorTarget(
        data=data,
        directions=directions,
        backprojection=backprojection,
        half_data_norm=half_data_norm,
        model=ImageModel(
            reconstruction.image_phase,
            prior.energy,
            per_slice(reconstruction.prior_weight) / sigma.square(),
            solver.imaginary_weight / sigma,
            imaginary=QuadraticVariation.around(image.imag, IMAGINARY_EPSILON * sigma),
            signed=prior.card.input.values == "signed",
        ),
        inverse_variance=1 / sigma.square(),
        n_chains=settings.chains,
        chunk=rows_that_fit(directions, prior),
    )
    return target, image, sigma
