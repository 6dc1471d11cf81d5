"""Measured spiral and radial phantoms against an image of conjugate gradients (CG-SENSE)."""

import finufft
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from simulated_scans import settings
from trajectory_protocol import measured_phantom

from gadget.pipeline import reconstruct_stream
from gadget.scan.assemble import SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.trajectory_scan_writer import (
    trajectory_acquisitions,
    trajectory_header_xml,
)
from gadget.wire.messages import Close, Image, ScanHeader
from reconlib.kspace import NonuniformKSpace

CALIBRATION_RADIUS = 12.0
"""Of the part of k-space that the maps are made of, in cycles per field of view (Hann window)."""


def cg_sense(kspace: NonuniformKSpace, iterations: int = 12) -> np.ndarray:
    """Return |x| of min_x ||W^(1/2) (A (e_c x) - z_c)||^2, with maps e from the centre of k-space."""
    samples, weights = kspace.samples[0].numpy().astype(np.complex64), kspace.weights[0].numpy()
    points = kspace.trajectory[0].numpy()
    scale = 1 / np.sqrt(np.prod(kspace.shape))
    kinds = {"n_trans": len(samples), "eps": 1e-5, "dtype": "complex64"}
    out = finufft.Plan(2, kspace.shape, isign=-1, **kinds)
    back = finufft.Plan(1, kspace.shape, isign=1, **kinds)
    for plan in (out, back):
        plan.setpts(*(2 * np.pi * points.T).astype(np.float32).copy())

    def adjoint(values):
        return scale * back.execute(np.ascontiguousarray(values * weights, np.complex64))

    radius = np.linalg.norm(points * kspace.shape, axis=1)
    window = np.where(radius < CALIBRATION_RADIUS, 0.5 + 0.5 * np.cos(np.pi * radius / CALIBRATION_RADIUS), 0)
    low = adjoint(samples * window)
    maps = low / np.sqrt((np.abs(low) ** 2).sum(axis=0))

    def normal(image):
        measured = scale * out.execute(np.ascontiguousarray(maps * image, np.complex64))
        return (maps.conj() * adjoint(measured)).sum(axis=0)

    residual = (maps.conj() * adjoint(samples)).sum(axis=0)
    image, direction = np.zeros_like(residual), residual.copy()
    power = np.vdot(residual, residual).real
    for _ in range(iterations):
        turned = normal(direction)
        step = power / np.vdot(direction, turned).real
        image, residual = image + step * direction, residual - step * turned
        power, before = np.vdot(residual, residual).real, power
        direction = residual + power / before * direction
    return np.abs(image)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "kind", "least"),
    [("phantom_8coil_spiral", "spiral", 0.99), ("phantom_16coil_radial", "radial", 0.98)],
)
def test_the_joint_image_of_a_measured_phantom_is_that_of_cg_sense(name, kind, least, data_folder):
    scan = measured_phantom(data_folder, name, kind)
    n = scan.matrix[0]
    xml, lines = trajectory_header_xml(scan), list(trajectory_acquisitions(scan))
    sorter = SliceAssembler(parse_scan_header(xml))
    (assembled,) = (one for readout in lines for one in sorter.add(readout))

    messages = [ScanHeader(xml), *lines, Close()]
    stream = reconstruct_stream(messages, settings(solver__iterations=30))
    (image,) = (np.asarray(one.data)[0, 0] for one in stream if isinstance(one, Image))

    wide = cg_sense(assembled.kspace)
    middle = tuple(slice(size // 2 - n // 2, size // 2 - n // 2 + n) for size in wide.shape)
    reference = wide[middle]
    inside = gaussian_filter(reference, 3) > 0.15 * np.percentile(reference, 99)
    assert 0.1 < inside.mean() < 0.6
    assert np.corrcoef(image[inside], reference[inside])[0, 1] > least
