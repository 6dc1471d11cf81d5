"""Steps 1/L with L found by doubling (Algorithm 2 of Zach, Knoll and Pock), slice by slice."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Attempt = Callable[[Tensor], tuple[Sequence[Tensor], Tensor, Tensor]]
"""From L (slice,) to the step's end (in parts, slices first), its value, and whether it is accepted."""


def backtrack(
    attempt: Attempt, lipschitz: Tensor, *, smallest: float, relaxation: float, most_doublings: int
) -> tuple[Sequence[Tensor], Tensor, Tensor]:
    """Double L until the step is accepted; return its end and value, and L to begin the next step with.

    L is divided by ``relaxation`` after an accepted step, down to ``smallest``.
    """
    new, value, accepted = attempt(lipschitz)
    for _ in range(most_doublings):
        if bool(accepted.all()):
            break
        lipschitz = torch.where(accepted, lipschitz, 2 * lipschitz)
        again, again_value, again_accepted = attempt(lipschitz)
        retry = ~accepted
        new = [torch.where(retry[:, None, None, None], b, a) for a, b in zip(new, again, strict=True)]
        value = torch.where(retry, again_value, value)
        accepted = accepted | again_accepted
    relaxed = (lipschitz / relaxation).clamp_min(smallest)
    return new, value, torch.where(accepted, relaxed, lipschitz)
