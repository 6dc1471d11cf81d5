"""A benchmark that takes a second: sizes, and a plan of its cases."""

from dataclasses import replace

import torch

from gadget.benchmark.cases import CaseName
from gadget.benchmark.run import Plan
from gadget.benchmark.sizes import QUICK, Sizes
from gadget.configs import prior_folders
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import Prior, find_prior, load_prior
from reconlib.reconstruction import ReconstructionSettings

CPU = torch.device("cpu")
TINY: Sizes = replace(
    QUICK,
    name="tiny",
    paper=(40, 36, 2),
    brain=(40, 36, 3),
    radial=(40, 40, 3),
    n_spokes=9,
    iterations=4,
    paper_iterations=1,
    batches=(1, 2),
    batch_iterations=2,
    matrices=(40,),
    coils=(3,),
    spokes=(8,),
    slices=(2,),
    posterior_limit_s=0.01,
)


def total_variation() -> Prior:
    return load_prior(find_prior("tv", prior_folders()), CPU)


def plan(*cases: CaseName, **changes: object) -> Plan:
    return replace(
        Plan(
            sizes=TINY,
            cases=cases,
            settings=ReconstructionSettings(),
            sampling=PosteriorSettings(),
            prior=total_variation(),
            device=CPU,
        ),
        **changes,
    )
