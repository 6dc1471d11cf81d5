r"""The weight lambda of the prior in H + lambda R, by one of three rules.

``noise``: after prewhitening and scaling, the noise standard deviation sigma per real component is known,
and the posterior is exp(-|A x - z|^2 / (2 sigma^2) - R / T); so :math:`\lambda = f \max(\sigma^2, 10^{-5})
/ T`, with a correction f from the prior's card (1 without one). The floor stands for model error, which is
what limits scans that are nearly free of noise.

``fit``: :math:`\lambda = a + b \sigma`, with a and b from the card, fitted on validation scans.

``fixed``: the number that the user gives.
"""

from typing import Literal

from reconlib.priors.card import PriorCard

WeightRule = Literal["noise", "fit", "fixed"]
SMALLEST_NOISE_VARIANCE = 1e-5


def prior_weight(
    card: PriorCard, noise_level: float, *, rule: WeightRule | None, value: float | None, factor: float
) -> tuple[float, WeightRule]:
    """Return lambda and the rule that gave it.

    ``rule`` None takes the card's; ``value`` belongs to ``fixed``; ``factor`` multiplies any rule's result.
    """
    chosen: WeightRule = rule or card.prior_weight.rule
    if chosen == "fixed":
        if value is None or not value > 0:
            raise ValueError(f"prior_weight rule 'fixed' needs a positive value, not {value}.")
        return value * factor, chosen
    if chosen == "fit":
        if card.prior_weight.slope is None:
            raise ValueError(
                f"the card of prior {card.name!r} has no fit of the prior weight; use another rule."
            )
        weight = card.prior_weight.intercept + card.prior_weight.slope * noise_level
        if not weight > 0:
            raise ValueError(
                f"the fitted prior weight is {weight:g} at noise level {noise_level:g}; use another rule."
            )
        return weight * factor, chosen
    variance = max(noise_level**2, SMALLEST_NOISE_VARIANCE)
    return card.prior_weight.factor * variance / card.temperature * factor, chosen
