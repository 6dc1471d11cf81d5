"""Stacks of stars and spirals: transformed along the stack, then each partition is a slice."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from trajectory_protocol import MATRIX, SPIRAL, UNWHITENED, assembled, changed, recorded, unflagged

from gadget.errors import ScanError
from gadget.scan.trajectory_choice import TrajectoryChoice
from gadget.wire.messages import Acquisition

SCAN = recorded(SPIRAL)
FOV_Z, WIDTH, CENTRE = 42.0, 6.0, 1.5
"""In mm: of the stack, and of the object's profile along z."""


def header_of(n_encoded: int, n_sent: int, fov_sent: float):
    """A change of the header that makes the scan a stack."""

    def change(xml: str) -> str:
        spaces = ((n_encoded, FOV_Z), (n_sent, fov_sent))
        for (n, fov), name in zip(spaces, ("encodedSpace", "reconSpace"), strict=True):
            start, end = xml.index(f"<{name}>"), xml.index(f"</{name}>")
            space = xml[start:end]
            space = re.sub(r"<z>1</z>", f"<z>{n}</z>", space, count=1)
            space = re.sub(r"<z>5(\.0)?</z>", f"<z>{fov}</z>", space, count=1)
            xml = xml[:start] + space + xml[end:]
        return re.sub(
            r"<kspace_encoding_step_2>.*?</kspace_encoding_step_2>",
            f"<kspace_encoding_step_2><minimum>0</minimum><maximum>{n_encoded - 1}</maximum>"
            f"<center>{n_encoded // 2}</center></kspace_encoding_step_2>",
            xml,
            flags=re.DOTALL,
        )

    return change


def stack(n_partitions: int, **fields) -> list[Acquisition]:
    """The readouts of the object times a Gaussian profile along z, partition by partition."""
    kz = (np.arange(n_partitions) - n_partitions // 2) / FOV_Z
    profile = np.sqrt(2 * np.pi) * WIDTH * np.exp(-2 * (np.pi * WIDTH * kz) ** 2 - 2j * np.pi * kz * CENTRE)
    profile = profile * np.sqrt(n_partitions) / FOV_Z
    return [
        replace(changed(one, kspace_encode_step_2=partition, **fields), data=(value * one.data))
        for (partition, value), one in product(enumerate(profile.astype(np.complex64)), unflagged(SCAN))
    ]


def expected_profile(n: int, thickness: float) -> np.ndarray:
    z = (np.arange(n) - n // 2) * thickness
    return np.exp(-((z - CENTRE) ** 2) / (2 * WIDTH**2))


@pytest.mark.parametrize("n", [7, 8])
def test_partitions_have_the_profile_of_the_object(n):
    lines = stack(n, position=(0, 0, 10))

    slices = assembled(SCAN, lines[::-1], change=header_of(n, n, FOV_Z))

    assert [one.context.slice for one in slices] == list(range(n))
    thickness = FOV_Z / n
    profile = expected_profile(n, thickness)
    (flat,) = assembled(SCAN)
    for one, value in zip(slices, profile, strict=True):
        expected = value * flat.kspace.samples
        # The ends of the sampled profile, in both spaces, are what limits this.
        assert (one.kspace.samples - expected).abs().max() < 1e-2 * flat.kspace.samples.abs().max()
        assert torch.equal(one.kspace.trajectory, flat.kspace.trajectory)
        assert one.kspace.noise_std == flat.kspace.noise_std
        assert one.context.recon_matrix == (*MATRIX[::-1], 1)
    positions = [one.context.position[2] for one in slices]
    assert positions == pytest.approx([10 + (p - n // 2) * thickness for p in range(n)])
    assert any(f"{n} x 12 non-Cartesian readouts" in note for note in slices[0].context.notes)


def test_oversampling_along_the_stack_is_cropped_and_interpolation_filled():
    slices = assembled(SCAN, stack(8), change=header_of(8, 8, FOV_Z / 2))

    profile = expected_profile(8, FOV_Z / 16)
    (flat,) = assembled(SCAN)
    for one, value in zip(slices, profile, strict=True):
        expected = value * flat.kspace.samples
        assert (one.kspace.samples - expected).abs().max() < 0.02 * flat.kspace.samples.abs().max()


def test_a_stack_is_complete_with_its_last_readout():
    from trajectory_protocol import sorter_of

    sorter = sorter_of(SCAN, change=header_of(7, 7, FOV_Z))
    lines = stack(7)
    assert [len(sorter.add(one)) for one in lines] == [0] * (len(lines) - 1) + [7]
    assert sorter.finish() == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-12], r"slice 0: a stack whose 7 partitions have 0 to 12 readouts, which is"),
        (lambda lines: lines[:-1], r"a stack whose 7 partitions have 11 to 12 readouts, which is not"),
        (
            lambda lines: [
                *lines[:-12],
                *(replace(one, trajectory=one.trajectory[:, ::-1].copy()) for one in lines[-12:]),
            ],
            "partition 6 of the stack has another trajectory than partition 0, which is not supported",
        ),
        (
            lambda lines: [*lines, changed(lines[0], kspace_encode_step_2=9)],
            "a readout has kspace_encode_step_2 9, which lies outside of the stack",
        ),
    ],
    ids=["partial Fourier", "a readout missing", "rotated", "outside"],
)
def test_other_stacks_are_refused_by_name(change, message):
    header = header_of(7, 7, FOV_Z)
    with pytest.raises(ScanError, match=message):
        assembled(SCAN, [changed(one, slice=0) for one in change(stack(7))[::-1]], change=header)


def test_stacks_have_no_frames():
    settings = replace(UNWHITENED, trajectory=TrajectoryChoice(window=6))
    with pytest.raises(ScanError, match=r"trajectory.window is set, but the scan is a stack"):
        assembled(SCAN, stack(7), settings, header_of(7, 7, FOV_Z))
