"""The optimisers a run can choose from."""

from collections.abc import Iterable

import torch
from torch import nn

from reconlib.training.settings import OptimiserSettings


def make_optimiser(parameters: Iterable[nn.Parameter], settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Return AdamW, or AdaBelief (Zhuang et al., NeurIPS 2020) of the package pytorch-optimizer.

    Weight decay is decoupled from the gradient in both.
    """
    rate, betas, decay = settings.learning_rate, settings.betas, settings.weight_decay
    if settings.kind == "adamw":
        epsilon = 1e-8 if settings.epsilon is None else settings.epsilon
        return torch.optim.AdamW(parameters, lr=rate, betas=betas, eps=epsilon, weight_decay=decay)
    from pytorch_optimizer.optimizer.adabelief import AdaBelief  # slow to import; few runs need it

    epsilon = 1e-16 if settings.epsilon is None else settings.epsilon
    return AdaBelief(parameters, lr=rate, betas=betas, eps=epsilon, weight_decay=decay)
