"""A third of the shots of the measured phantoms, against the image of CG-SENSE from all of them.

The image to beat is that of CG-SENSE from the same third, stopped at its best number of iterations, which
only one who has the reference can choose.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from simulated_scans import settings
from test_nonuniform_against_sense import cg_sense
from trajectory_protocol import measured_phantom

from gadget.pipeline import reconstruct_stream
from gadget.scan.assemble import SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.trajectory_scan_writer import NonCartesianReadouts, trajectory_acquisitions, trajectory_header_xml
from gadget.wire.messages import Close, Image, ScanHeader
from reconlib.kspace import NonuniformKSpace

PHANTOMS = {
    "spiral": ("phantom_8coil_spiral", (3, 4, 5, 6, 8, 12)),
    "radial": ("phantom_16coil_radial", (8, 12, 16, 20, 30)),
}
"""File, and numbers of iterations to choose CG-SENSE's best from."""
LARGEST_LOSS_DB = 0.5
"""Of the learned prior against total variation, whose home ground phantoms are."""


def thinned(scan: NonCartesianReadouts, every: int) -> NonCartesianReadouts:
    weights = None if scan.weights is None else scan.weights[::every]
    return replace(scan, samples=scan.samples[:, :, ::every], points=scan.points[::every], weights=weights)


def assembled(scan: NonCartesianReadouts) -> NonuniformKSpace:
    sorter = SliceAssembler(parse_scan_header(trajectory_header_xml(scan)))
    (one,) = (done for line in trajectory_acquisitions(scan) for done in sorter.add(line))
    assert isinstance(one.kspace, NonuniformKSpace)
    return one.kspace


def joint_image(scan: NonCartesianReadouts, prior: str) -> np.ndarray:
    messages = [ScanHeader(trajectory_header_xml(scan)), *trajectory_acquisitions(scan), Close()]
    chosen = settings(prior=prior, solver__iterations=40)
    (image,) = (one for one in reconstruct_stream(messages, chosen) if isinstance(one, Image))
    return np.asarray(image.data)[0, 0]


def psnr(image: np.ndarray, reference: np.ndarray, inside: np.ndarray) -> float:
    """In dB of the reference's peak, inside the object, after one scale fit."""
    found, wanted = image[inside].astype(np.float64), reference[inside].astype(np.float64)
    found = found * (found @ wanted / (found @ found))
    return float(-20 * np.log10(np.sqrt(np.square(found - wanted).mean()) / reference.max()))


@cache
def measured(kind: str, data_folder) -> dict[str, float]:
    """PSNR of CG-SENSE at its best and of both priors, from a third of the shots."""
    name, iterations = PHANTOMS[kind]
    scan = measured_phantom(data_folder, name, kind)
    n_y, n_x = scan.matrix

    def cut(image: np.ndarray) -> np.ndarray:
        y, x = (image.shape[0] - n_y) // 2, (image.shape[1] - n_x) // 2
        return image[y : y + n_y, x : x + n_x]

    reference = cut(cg_sense(assembled(scan)))
    inside = gaussian_filter(reference, 3) > 0.15 * np.percentile(reference, 99)
    third = thinned(scan, 3)
    kspace = assembled(third)
    found = {"cg": max(psnr(cut(cg_sense(kspace, n)), reference, inside) for n in iterations)}
    for prior in ("tv", "brain-local"):
        found[prior] = psnr(joint_image(third, prior), reference, inside)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", PHANTOMS)
def test_a_third_of_the_shots_is_better_than_cg_sense_at_its_best(kind, data_folder):
    found = measured(kind, data_folder)
    assert found["brain-local"] > found["cg"], found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", PHANTOMS)
def test_the_learned_prior_is_not_far_below_total_variation(kind, data_folder):
    found = measured(kind, data_folder)
    assert found["brain-local"] > found["tv"] - LARGEST_LOSS_DB, found
