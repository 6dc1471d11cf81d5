"""What is reconstructed: simulated scans of three kinds, or measured ones, each with its prior.

* ``paper``: 640 x 372, 15 coils, the paper's network with random weights. Its times mean something, its image
  does not.
* ``brain``: 256 x 256, 8 coils, 4-fold random lines, the prior of the settings.
* ``radial``: the same size, 45 spokes off the grid.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

import torch

from gadget.benchmark.sizes import Sizes
from reconlib.energies.network import NetworkEnergy
from reconlib.energies.paper import random_paper_network
from reconlib.energies.replayed import replayed_on_cuda
from reconlib.evaluation.grid_patterns import PATTERNS
from reconlib.evaluation.off_grid import finer, measured_along
from reconlib.evaluation.study import Case, FullScan
from reconlib.priors.card import PaperArchitecture, PriorCard, PriorWeightCard
from reconlib.priors.library import Prior
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.simulation.scan import simulate_head_scan
from reconlib.simulation.scan_settings import ScanSettings

CaseName = Literal["paper", "brain", "radial"]
CASES: tuple[CaseName, ...] = get_args(CaseName)
PATTERN = "cartesian-4"
SEED = 3
PAPER_TEMPERATURE = 2.8125e-5
PAPER_NOISE = 7.5e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCase:
    """One slice, its prior, and how long to iterate."""

    name: str
    case: Case
    prior: Prior
    """On the device."""
    iterations: int | None
    """None: the solver's own number."""
    has_image: bool = True
    """Whether the image is worth looking at: with random weights it is not."""

    @property
    def about(self) -> str:
        """Say what it is."""
        scan, points = self.case.scan, self.case.at_points
        n_y, n_x = scan.matrix
        how = self.case.pattern if points is None else f"{points.samples.shape[-1]} points off the grid"
        return f"{n_y} x {n_x}, {scan.samples.shape[1]} coils, {how}, prior {self.prior.card.name}"


def simulated_case(name: CaseName, sizes: Sizes, prior: Prior, device: torch.device) -> BenchCase:
    """Return a case by its name; ``prior`` is that of ``brain`` and ``radial``."""
    n_y, n_x, n_coils = {"paper": sizes.paper, "brain": sizes.brain, "radial": sizes.radial}[name]
    scan = head((n_y, n_x), n_coils)
    if name == "paper":
        case = Case(scan=scan, pattern=PATTERN, mask=PATTERNS[PATTERN](scan.matrix))
        return BenchCase(
            name=name,
            case=case,
            prior=random_paper_prior(device),
            iterations=sizes.paper_iterations,
            has_image=False,
        )
    if name == "brain":
        return replace(measured_case(scan, sizes, prior), name=name)
    return BenchCase(
        name=name, case=spokes_of(scan, sizes.n_spokes), prior=prior, iterations=sizes.iterations
    )


def measured_case(scan: FullScan, sizes: Sizes, prior: Prior) -> BenchCase:
    """Return a case of a fully sampled scan: 4-fold random lines of it."""
    case = Case(scan=scan, pattern=PATTERN, mask=PATTERNS[PATTERN](scan.matrix))
    return BenchCase(name=scan.name, case=case, prior=prior, iterations=sizes.iterations)


def spokes_of(scan: FullScan, n_spokes: int) -> Case:
    """Return a case of spokes at equal angles, off the grid."""
    points = measured_along(scan, finer(scan.samples), NonuniformSettings(n_readouts=n_spokes))
    return Case(scan=scan, pattern=f"{n_spokes} spokes", at_points=points)


@cache
def head(matrix: tuple[int, int], n_coils: int) -> FullScan:
    """Return one fully sampled slice of a simulated head, noise 0.7 % of the maximum, with its truth."""
    scan = simulate_head_scan(
        ScanSettings(matrix=matrix, n_coils=n_coils, pattern="full", noise=0.007, seed=SEED, noise_seed=SEED)
    )
    return FullScan(
        name="head",
        samples=scan.kspace.samples,
        noise_std=scan.kspace.noise_std,
        noise_source="known",
        reference=scan.truth.abs(),
    )


def random_paper_prior(device: torch.device) -> Prior:
    """Return the paper's network with random weights, seeded, at the published one's temperature."""
    architecture = PaperArchitecture(kind="paper")
    network = random_paper_network(torch.Generator().manual_seed(SEED)).to(device)
    network.outside_weight = architecture.outside_weight * PAPER_TEMPERATURE
    card = PriorCard(
        name="paper-random",
        version="1.0",
        description="The paper's network with random weights, to measure its speed",
        architecture=architecture,
        temperature=PAPER_TEMPERATURE,
        gradient_noise_std=PAPER_NOISE,
        image_phase="real",
        prior_weight=PriorWeightCard(rule="noise"),
        anatomy="none",
        licence="none",
    )
    return Prior(card, replayed_on_cuda(NetworkEnergy(network, PAPER_TEMPERATURE), network), network)
