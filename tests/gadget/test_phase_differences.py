"""Phase differences of contrasts and sets of a slice, from readouts to phase images, against the truth.

Every second line and 14 in the centre, noise 1 % of the brightest, so the phase of the brightest pixel is
known to 0.01 rad and that of a difference where the signal is 10 times the noise to 0.14 rad: the error is
judged by its root mean square over all pixels above that, and where the velocity is constant by the mean.
"""

import numpy as np
import pytest
import torch
from simulated_scans import settings
from synthetic_scan import Protocol, noise_readout, readout

from gadget.pipeline import reconstruct_stream
from gadget.wire.headers import AcquisitionFlag
from gadget.wire.messages import Image, ScanHeader
from reconlib.simulation.coils import loop_coils

N_Y, N_X = 64, 54
N_COILS = 6
Y, X = np.meshgrid(
    (np.arange(N_Y) - N_Y // 2) / (N_Y / 2), (np.arange(N_X) - N_X // 2) / (N_X / 2), indexing="ij"
)
MAGNITUDE = ((Y / 0.8) ** 2 + (X / 0.75) ** 2 < 1) * (0.7 + 0.3 * np.cos(5 * X) * np.cos(4 * Y))
BACKGROUND = 1.5 * np.sin(2 * X + Y) + 0.8 * X * Y
FIELD = 3 * np.pi * Y + 2 * X**2
"""Wraps three times."""
VESSELS = [((Y - y) / r) ** 2 + ((X - x) / r) ** 2 < 1 for y, x, r in ((-0.2, 0.3, 0.2), (0.3, -0.3, 0.15))]
VELOCITY = 2.2 * VESSELS[0] - 2.6 * VESSELS[1]
COILS = loop_coils(
    (N_Y, N_X),
    N_COILS,
    generator=torch.Generator().manual_seed(3),
    fov_mm=(192.0, 162.0),
    slice_positions_mm=(0.0,),
)[0].numpy()
BRIGHTNESS = np.linalg.norm(COILS, axis=0) * MAGNITUDE
NOISE = 0.01 * BRIGHTNESS.max()


def readouts_of(image, seed, **counters):
    """Two-fold under-sampled readouts of a complex image (y, x)."""
    rng = np.random.default_rng(seed)
    kspace = np.fft.fftshift(
        np.fft.fft2(np.fft.ifftshift(COILS * image, axes=(-2, -1)), norm="ortho"), axes=(-2, -1)
    )
    kspace = kspace + NOISE * (rng.normal(size=kspace.shape) + 1j * rng.normal(size=kspace.shape))
    centre = N_Y // 2
    rows = [row for row in range(N_Y) if row % 2 == 0 or abs(row - centre + 0.5) < 7]
    last = [AcquisitionFlag.LAST_IN_SLICE]
    return [readout(kspace[:, row], row, *(last if row == rows[-1] else []), **counters) for row in rows]


def phase_images(readouts, **changes):
    """Return the phase images (y, x) by contrast and set, and the number of the image they refer to."""
    protocol = Protocol(
        encoded=(N_X, N_Y, 1),
        encoded_fov=(162.0, 192.0, 5.0),
        recon=(N_X, N_Y, 1),
        recon_fov=(162.0, 192.0, 5.0),
        limits={"kspace_encoding_step_1": (0, N_Y - 1, N_Y // 2), "contrast": (0, 1, 0), "set": (0, 1, 0)},
        acceleration=2,
    )
    messages = [
        ScanHeader(protocol.xml()),
        noise_readout(NOISE, n_coils=N_COILS, n_samples=20_000),
        *readouts,
    ]
    chosen = settings(solver__iterations=40, output__images=["phase"], **changes)
    found, references = {}, set()
    for reply in reconstruct_stream(messages, chosen):
        assert isinstance(reply, Image)
        assert int(reply.header["image_series_index"]) == 4
        found[int(reply.header["contrast"]), int(reply.header["set"])] = reply.data[0, 0]
        references.add(reply.meta.partition("EBM_PhaseReferenceImage</name><value>")[2][:2])
    assert references == {"1<"}
    return found


def error_of(difference, truth, dimmer):
    """Return the error in rad where the signal of the dimmer image is above 10 times the noise."""
    error = np.angle(np.exp(1j * (difference - truth)))
    return error[dimmer * BRIGHTNESS > 10 * NOISE]


def interleaved(first, second):
    return [one for pair in zip(first, second, strict=True) for one in pair]


@pytest.mark.parametrize(
    ("comes_first", "image_phase"),
    [
        (0, "soft"),
        pytest.param(1, "soft", marks=pytest.mark.slow),
        pytest.param(1, "real", marks=pytest.mark.slow),
    ],
)
def test_two_interleaved_contrasts_have_the_field_map_between_them(comes_first, image_phase):
    """The second contrast is dimmer, and its phase is turned by a field that wraps."""
    images = [MAGNITUDE * np.exp(1j * BACKGROUND), 0.8 * MAGNITUDE * np.exp(1j * (BACKGROUND + FIELD))]
    scans = [readouts_of(image, seed, contrast=seed) for seed, image in enumerate(images)]
    found = phase_images(
        interleaved(*(scans[i] for i in (comes_first, 1 - comes_first))), image_phase=image_phase
    )

    error = error_of(found[1, 0] - found[0, 0], FIELD, 0.8)
    assert error.size > 0.4 * N_Y * N_X
    assert np.sqrt(np.mean(error**2)) < 0.05
    assert np.median(np.abs(error)) < 0.025


@pytest.mark.parametrize("image_phase", ["soft", "free"])
def test_two_sets_have_the_velocity_between_them(image_phase):
    """Phase contrast: a constant phase in each of two vessels, and none around them."""
    images = [MAGNITUDE * np.exp(1j * BACKGROUND), MAGNITUDE * np.exp(1j * (BACKGROUND + VELOCITY))]
    first, second = (readouts_of(image, seed, set=seed) for seed, image in enumerate(images))
    found = phase_images([*first, *second], image_phase=image_phase)

    difference = found[0, 1] - found[0, 0]
    error = error_of(difference, VELOCITY, 1.0)
    assert np.sqrt(np.mean(error**2)) < 0.05
    for vessel, velocity in zip(VESSELS, (2.2, -2.6), strict=True):
        inside = vessel & (BRIGHTNESS > 10 * NOISE)
        assert abs(np.angle(np.exp(1j * (difference[inside] - velocity))).mean()) < 0.05
