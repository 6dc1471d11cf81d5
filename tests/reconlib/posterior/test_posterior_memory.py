"""The memory of a chain: what is stated, against what torch allocates."""

from pathlib import Path

import pytest
import torch
from gaussian_scans import NO_IMAGINARY_PRIOR, reconstruction_of, scan
from torch.profiler import ProfilerActivity, profile

from reconlib.posterior.memory import CPU_BUDGET, bytes_per_chain, rows_that_fit
from reconlib.posterior.run import PosteriorRun
from reconlib.posterior.settings import PosteriorSettings
from reconlib.priors.library import find_prior, load_prior

SHIPPED = Path(__file__).parents[3] / "config" / "priors"


def peak_bytes(action):
    """Return the most that torch had allocated beyond what it had before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        action()
    now = peak = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@pytest.mark.filterwarnings("ignore")  # the profiler warns of what it does not trace
@pytest.mark.parametrize(("name", "n_coils"), [("brain-local", 3), ("brain-local", 24), ("tv", 6)])
@pytest.mark.parametrize("sampler", ["kinetic", "mala"])
def test_what_is_stated_for_a_chain_is_what_it_takes(name, n_coils, sampler, generator):
    prior = load_prior(find_prior(name, [SHIPPED]), torch.device("cpu"))
    kspace, coils, image = scan(generator, n_coils=n_coils, grid=(80, 64))
    peaks = []
    for chains in (1, 2):
        run = PosteriorRun(
            kspace,
            reconstruction_of(kspace, coils, image, weight=0.0025),
            prior=prior,
            settings=PosteriorSettings(sampler=sampler, chains=chains, warmup=3, draws=1),
            solver=NO_IMAGINARY_PRIOR,
        )
        for _ in range(13):
            run.advance()
        peaks.append(peak_bytes(run.advance))
    stated = bytes_per_chain((80, 64), n_coils, prior)
    assert 0.5 * stated < peaks[1] - peaks[0] < stated


def test_chains_are_chosen_to_fit_and_there_is_always_one():
    prior = load_prior(find_prior("tv", [SHIPPED]), torch.device("cpu"))
    each = bytes_per_chain((96, 64), 5, prior)
    assert rows_that_fit(torch.zeros(2, 5, 96, 64), prior) == CPU_BUDGET // each > 1
    assert rows_that_fit(torch.empty(1, 64, 1024, 1024, device="meta"), prior) == 1
    assert bytes_per_chain((192, 64), 5, prior) == 2 * each
