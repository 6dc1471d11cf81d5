r"""One objective for the results of all solvers, at the same views of the prior.

.. math:: H(x, S) + \lambda \frac1K \sum_k R(g_k(x + n_k)) + \mu F(S), \qquad |S(r)| = 1

A solver sees the prior at noise and views that it draws anew (:mod:`reconlib.energies.view`), so the energies
that it reports are not comparable: here every result is measured with the same K seeded draws, the same
scale, weight and noise level, with its maps divided by their root sum of squares.
"""

from dataclasses import dataclass

import torch

from reconlib.energies.coil_smoothness import CoilSmoothness
from reconlib.energies.view import View, draw_view
from reconlib.joint.data_consistency import DataConsistency, DataTerm
from reconlib.joint.echo_shift import echo_centred
from reconlib.joint.image_model import ImageModel
from reconlib.kspace import KSpace, NonuniformKSpace
from reconlib.operators.fourier import SampledFourier
from reconlib.operators.least_squares import LeastSquares
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.priors.library import Prior
from reconlib.reconstruction import Reconstruction, ReconstructionSettings, coil_smoothness

N_DRAWS = 8
SEED = 20342


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """The objective of a batch of slices, every one with the numbers of a reference's reconstruction."""

    data: DataTerm
    """Of the scaled samples."""
    model: ImageModel
    coil_energy: CoilSmoothness
    views: tuple[View, ...]
    scale: torch.Tensor
    """float32 (slice, 1, 1, 1)"""
    turn: torch.Tensor | None
    """What the solvers take out of the maps, see :mod:`~reconlib.joint.echo_shift`."""

    @staticmethod
    def like(
        reference: Reconstruction,
        kspace: KSpace | NonuniformKSpace,
        *,
        prior: Prior,
        settings: ReconstructionSettings,
    ) -> "Objective":
        """Return the objective at the scale, weight and noise level of a reconstruction of the k-space."""
        device, card = reference.image.device, prior.card
        scale = torch.tensor(reference.scale, device=device)
        levels = torch.tensor(reference.noise_level, dtype=torch.float64, device=device)
        model = ImageModel(
            reference.image_phase,
            prior.energy,
            torch.tensor(reference.prior_weight, dtype=torch.float64, device=device),
            settings.imaginary_weight * levels,
            signed=card.input.values == "signed",
        )
        generator = torch.Generator().manual_seed(SEED)
        matrix = (reference.image.shape[-2], reference.image.shape[-1])
        noise_std, symmetric = card.gradient_noise_std, card.symmetric_views
        n_draws = N_DRAWS if noise_std > 0 or symmetric else 1
        views = tuple(
            draw_view(matrix, generator, device, noise_std=noise_std, symmetric=symmetric)
            for _ in range(n_draws)
        )
        coil_energy = CoilSmoothness(coil_smoothness(settings, card, matrix))
        centred, turn = echo_centred(kspace)
        return Objective(
            data_term(centred, reference.trust).scaled(scale),
            model,
            coil_energy,
            views,
            scale[:, None, None, None],
            turn,
        )

    def of(self, result: Reconstruction) -> list[float]:
        """Return the objective of each slice of a reconstruction of the same k-space."""
        image = result.image * self.scale
        coils = result.coils if self.turn is None else result.coils * self.turn.conj()
        _, value = self.data.gradient_and_value(coils * image)
        prior = torch.stack([self.model.value(image, view) for view in self.views]).mean(dim=0)
        total: list[float] = (value + prior + self.coil_energy.value(coils)).tolist()
        return total


def data_term(kspace: KSpace | NonuniformKSpace, trust: torch.Tensor | None = None) -> DataTerm:
    """Return the data term of k-space as it is; ``trust`` is that of samples off the grid."""
    if isinstance(kspace, NonuniformKSpace):
        fourier = NonuniformFourier.plan(kspace.trajectory, kspace.shape)
        return LeastSquares.of(fourier, kspace.samples, trust)
    return DataConsistency(*SampledFourier.fold(kspace))
