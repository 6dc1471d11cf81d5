"""What is said about uncertainty images: in their meta attributes and in the log."""

import math

from gadget.finished_slice import SampledSlice
from gadget.image_labels import describe, describe_sampled, image_comment, image_meta, warnings_on
from gadget.reconstructor import ImageKind
from gadget.series import POSTERIOR_MEAN, MetaValue, Series
from reconlib.posterior.outcome import PosteriorOutcome
from reconlib.posterior.posterior import Posterior


def posterior_meta(sampled: SampledSlice, series: Series) -> dict[str, MetaValue]:
    """Return the attributes of an image of the posterior; they stand beside the standard ones.

    Attributes of the reconstruction (prior, weight, scale) stay. Numbers that are not known are left out.
    """
    finished, posterior, outcome = sampled.finished, sampled.posterior, sampled.outcome
    if posterior is None or outcome is None:
        raise ValueError("there is no posterior to label: the sampling failed.")
    context, row = finished.slice.context, sampled.row
    remarks = [
        f"posterior {'mean' if series is POSTERIOR_MEAN else 'standard deviation'}, {_counts(posterior)}"
    ]
    if not sampled.is_reliable:
        remarks.append(
            sampled.words if outcome is PosteriorOutcome.ALL_ZERO else f"NOT RELIABLE: {sampled.words}"
        )
    if finished.result.kind is ImageKind.OUT_OF_TIME:
        remarks.append(describe(finished.result))
    numbers: dict[str, float] = {
        "EBM_WorstRhat": posterior.worst_rhat[row],
        "EBM_SmallestEffectiveSampleSize": posterior.smallest_ess[row],
        "EBM_EffectiveTemperature": posterior.effective_temperature[row],
        "EBM_AcceptanceRate": math.nan if posterior.acceptance is None else posterior.acceptance[row],
    }
    return {
        **image_meta(finished.result, context, finished.mismatches),
        "EBM_Image": series.name,
        "EBM_Posterior": outcome.name,
        "EBM_PosteriorOutcome": outcome.value,
        "EBM_Chains": posterior.n_chains,
        "EBM_Draws": posterior.n_draws,
        "EBM_Sampler": posterior.sampler,
        "EBM_StdFactor": posterior.std_factor,
        "EBM_NoiseLevelFrom": _noise_source(sampled),
        "EBM_SamplingSeconds": round(sampled.seconds, 3),
        **{name: value for name, value in numbers.items() if math.isfinite(value)},
        "ImageComments": image_comment(*remarks, *warnings_on(finished.result, context, finished.mismatches)),
    }


def sampled_log_line(sampled: SampledSlice) -> str:
    """Return the line that the log gets for each slice that was sampled."""
    posterior, row = sampled.posterior, sampled.row
    if posterior is None:
        return describe_sampled(sampled)
    return (
        f"{describe_sampled(sampled)}; {_counts(posterior)} ({posterior.sampler}), "
        f"{_in_words('worst R-hat', posterior.worst_rhat[row], '.3f')}, "
        f"{_in_words('smallest effective sample size', posterior.smallest_ess[row], '.0f')}, "
        f"noise level {posterior.sigma[row]:.3g} ({_noise_source(sampled)}), {sampled.seconds:.1f} s"
    )


def _in_words(what: str, value: float, form: str) -> str:
    """Say a number that is not known where there were too few draws."""
    return f"{what} {value:{form}}" if math.isfinite(value) else f"{what} not known"


def _counts(posterior: Posterior) -> str:
    return f"{posterior.n_chains} x {posterior.n_draws} draws"


def _noise_source(sampled: SampledSlice) -> str:
    return "measured" if sampled.finished.slice.context.is_prewhitened else "estimated from the data"
