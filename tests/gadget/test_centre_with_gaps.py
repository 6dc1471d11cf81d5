"""A centre of k-space that was measured densely, but not completely, as by random points."""

from pathlib import Path

import pytest
import torch

from gadget.commands.evaluation_cases import CaseOptions
from gadget.settings import load_settings
from reconlib.evaluation.study import Case
from reconlib.joint.map_start import has_own_calibration
from reconlib.kspace import KSpace
from reconlib.priors.library import find_prior, load_prior
from reconlib.reconstruction import reconstruct

SHIPPED = Path(__file__).parents[2] / "config" / "priors"


@pytest.fixture(scope="module")
def case(data_folder) -> Case:
    """Simulated, of a validation image of a head that fills little of the field of view."""
    options = CaseOptions(
        study="simulated", settings=load_settings(), patterns="gaussian-8", slices=6, part="even"
    )
    return options.cases_of([data_folder / "prior" / "brain_magnitude_256.npz"])[-1]


def test_no_haze_stays_where_nothing_is(case):
    """Maps that begin as noise there hold up a haze of 5 % of the maximum; the reference has 0.01 %."""
    prior = load_prior(find_prior("brain-local", [SHIPPED]), torch.device("cpu"))
    assert isinstance(case.kspace, KSpace)
    assert not has_own_calibration(case.kspace.mask)
    image = reconstruct(case.kspace, prior=prior).image.abs()
    background = case.reference < 0.05 * case.reference.max()
    assert float(image[background].mean() / image.max()) < 0.02
