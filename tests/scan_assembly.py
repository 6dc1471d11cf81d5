"""Scans through the assembler, for tests of what comes out."""

from collections.abc import Iterable

import numpy as np
from synthetic_scan import Protocol

from gadget.scan.assemble import AssembledSlice, AssemblySettings, NoiseSource, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.scan.volume import AssembledVolume
from gadget.wire.messages import Acquisition

UNWHITENED = AssemblySettings(noise=NoiseSource.PREWHITENED)


def assembler(scan: Protocol | str, settings: AssemblySettings = UNWHITENED) -> SliceAssembler:
    """Return an assembler for a protocol, or for the text of a header."""
    return SliceAssembler(parse_scan_header(scan if isinstance(scan, str) else scan.xml()), settings)


def assembled(
    scan: Protocol | str, readouts: Iterable[Acquisition], settings: AssemblySettings = UNWHITENED
) -> tuple[AssembledSlice, ...]:
    """Return all slices of a scan."""
    sorter = assembler(scan, settings)
    found = [one for acquisition in readouts for one in sorter.add(acquisition)]
    slices = (*found, *sorter.finish())
    assert all(isinstance(one, AssembledSlice) for one in slices)
    return slices  # type: ignore[return-value]  # as just checked


def samples_of(one: AssembledSlice | AssembledVolume) -> np.ndarray:
    """Return the k-space (coil, ky, kx) or (coil, kz, ky, kx)."""
    return one.samples if isinstance(one, AssembledVolume) else one.kspace.samples[0].numpy()


def mask_of(one: AssembledSlice | AssembledVolume) -> np.ndarray:
    """Return the mask (ky, kx) or (kz, ky, kx)."""
    return one.mask if isinstance(one, AssembledVolume) else one.kspace.mask[0, 0].numpy()


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    """Compare to 2 millionths of the largest value: what float32 keeps through two FFTs."""
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=2e-6 * np.abs(expected).max())
