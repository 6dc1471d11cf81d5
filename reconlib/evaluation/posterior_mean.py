"""The mean of the posterior as a method, with its standard deviations."""

from collections.abc import Callable

import torch

from reconlib.evaluation.study import CPU, Case, Method, MethodError, MethodImage, reconstruct_case
from reconlib.posterior.run import sample_posterior
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import Prior
from reconlib.reconstruction import Progress, ReconstructionSettings


def no_limit() -> Callable[[], bool]:
    """Return a clock that never runs out."""
    return lambda: False


def posterior_mean(
    prior: Prior,
    settings: ReconstructionSettings,
    sampling: PosteriorSettings,
    *,
    seed: int = 0,
    device: torch.device = CPU,
    start_clock: Callable[[], Callable[[], bool]] = no_limit,
    on_iteration: Callable[[Progress], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Method:
    """Return the method that reconstructs as :func:`reconlib.evaluation.study.joint` and then samples.

    The prior is on the device. ``start_clock`` is called when the sampling of a case begins and returns what
    says whether its time is up. The facts hold the weight, the noise level, the worst R-hat, the smallest
    effective number of draws, and the outcome. A case without two draws per chain, or whose chains left the
    finite numbers, is a :class:`reconlib.evaluation.study.MethodError`.
    """

    def method(case: Case) -> MethodImage:
        kspace, result = reconstruct_case(
            case, prior, settings, seed=seed, device=device, on_iteration=on_iteration
        )
        posterior = sample_posterior(
            kspace,
            result,
            prior=prior,
            settings=sampling,
            solver=settings,
            seed=seed,
            out_of_time=start_clock(),
            on_step=on_step,
        )
        image, std = (case.in_view(part).cpu() for part in (posterior.mean.abs(), posterior.std))
        if not bool((torch.isfinite(image) & torch.isfinite(std)).all()):
            raise MethodError(f"no posterior mean: {posterior.outcomes[0].value}")
        return MethodImage(
            image=image,
            coils=case.in_view(result.coils).cpu(),
            std=std,
            std_factor=posterior.std_factor,
            facts={
                "weight": result.prior_weight[0],
                "noise level": result.noise_level[0],
                "worst R-hat": posterior.worst_rhat[0],
                "smallest ESS": posterior.smallest_ess[0],
                "outcome": posterior.outcomes[0].value,
            },
        )

    return method
