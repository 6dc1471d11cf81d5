"""Scans whose header names the coils, and noise of a chosen covariance."""

from dataclasses import replace

import numpy as np
from synthetic_scan import Protocol, readout

from gadget.scan.assemble import AssembledSlice, AssemblySettings, SliceAssembler
from gadget.scan.header import parse_scan_header
from gadget.scan.noise import NoiseCovariance
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Acquisition

N_ROWS, N_COLUMNS = 45, 40
PROTOCOL = Protocol(encoded=(N_COLUMNS, N_ROWS, 1), encoded_fov=(120.0, 135.0, 5.0))


def header_text(
    names: tuple[str, ...] = (), *, dependency: str = "", bandwidth: float | None = 1.0, own_id: str = "m_17"
) -> str:
    """XML with coil labels, and with a dependency given as 'Type=measurement ID'."""
    labels = "".join(
        f"<coilLabel><coilNumber>{number}</coilNumber><coilName>{name}</coilName></coilLabel>"
        for number, name in enumerate(names)
    )
    text = replace(PROTOCOL, noise_bandwidth=bandwidth).xml()
    text = text.replace("</acquisitionSystemInformation>", f"{labels}</acquisitionSystemInformation>")
    text = text.replace("<measurementID>m_17<", f"<measurementID>{own_id}<")
    if dependency:
        kind, _, measurement = dependency.partition("=")
        inner = f"<dependencyType>{kind}</dependencyType><measurementID>{measurement}</measurementID>"
        text = text.replace(
            "</measurementInformation>",
            f"<measurementDependency>{inner}</measurementDependency></measurementInformation>",
        )
    return text


def mixing(n_coils: int, seed: int = 3, spread: float = 2.0) -> np.ndarray:
    """Colour white noise: correlated coils of different gain."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n_coils, n_coils)) + 1j * rng.normal(size=(n_coils, n_coils))
    return (0.6 * noise + 2 * np.eye(n_coils)) * np.geomspace(1, spread, n_coils)[:, None]


def white(n_coils: int, n_samples: int, seed: int) -> np.ndarray:
    """Complex noise with the standard deviation 1 per real component."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_coils, n_samples)) + 1j * rng.normal(size=(n_coils, n_samples))


def noise_of(data: np.ndarray, **fields: object) -> Acquisition:
    """Return a noise readout."""
    return readout(data, 0, Flag.IS_NOISE_MEASUREMENT, center=0, **fields)


def lines_of_noise(mix: np.ndarray, *, seed: int = 11, **fields: object) -> list[Acquisition]:
    """Imaging readouts that hold nothing but coloured noise; the last is LAST_IN_SLICE."""
    noise = (mix @ white(mix.shape[1], N_ROWS * N_COLUMNS, seed)).reshape(-1, N_ROWS, N_COLUMNS)
    return [
        readout(noise[:, row], row, *([Flag.LAST_IN_SLICE] if row == N_ROWS - 1 else []), **fields)
        for row in range(N_ROWS)
    ]


def assembled(
    text: str, readouts: list[Acquisition], settings: AssemblySettings | None = None
) -> list[AssembledSlice]:
    """Return the slices of a scan."""
    sorter = SliceAssembler(parse_scan_header(text), settings)
    slices = [slice_ for acquisition in readouts for slice_ in sorter.add(acquisition)]
    return [*slices, *sorter.finish()]


def std_of(slice_: AssembledSlice) -> np.ndarray:
    """Standard deviation per real component, (real and imaginary, coil)."""
    samples = slice_.kspace.samples[0].numpy()
    return np.stack([samples.real.std(axis=(1, 2)), samples.imag.std(axis=(1, 2))])


class Shelf:
    """A store of noise in memory."""

    def __init__(self) -> None:
        self.noise: dict[str, NoiseCovariance] = {}

    def keep(self, measurement_id: str, noise: NoiseCovariance) -> None:
        self.noise[measurement_id] = noise

    def find(self, measurement_id: str) -> NoiseCovariance | None:
        return self.noise.get(measurement_id)
