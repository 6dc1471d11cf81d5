"""Readouts of an object whose k-space and image are known in closed form: Gaussian spots.

A spot of width s at (x0, y0) has the Fourier transform 2 pi s^2 exp(-2 pi^2 s^2 |k|^2) exp(-2 pi i k.r0), so
its k-space on any grid, and its image on any grid, are written down without a discrete Fourier transform.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gadget.wire.headers import ACQUISITION_HEADER, AcquisitionFlag
from gadget.wire.messages import Acquisition


@dataclass(frozen=True, kw_only=True)
class Spot:
    """One Gaussian: place and width in mm, and its complex amplitude in each coil."""

    x: float
    y: float
    width: float = 6.0
    amplitudes: tuple[complex, ...] = (1.0, 0.5 - 0.5j, -0.7j)


OBJECT = (Spot(x=-23.0, y=12.0), Spot(x=17.5, y=-23.0, width=6.5, amplitudes=(0.4j, 1.0, 0.6)))


def kspace_of(spots: tuple[Spot, ...], matrix: tuple[int, int], fov_mm: tuple[float, float]) -> np.ndarray:
    """Centred k-space (coil, ky, kx) of the unitary transform; matrix and field of view along (x, y)."""
    (nx, ny), (fov_x, fov_y) = matrix, fov_mm
    kx = (np.arange(nx) - nx // 2) / fov_x
    ky = (np.arange(ny) - ny // 2)[:, None] / fov_y
    total = np.zeros((len(spots[0].amplitudes), ny, nx), np.complex128)
    for spot in spots:
        transform = 2 * np.pi * spot.width**2 * np.exp(-2 * (np.pi * spot.width) ** 2 * (kx**2 + ky**2))
        transform = transform * np.exp(-2j * np.pi * (kx * spot.x + ky * spot.y))
        total += np.array(spot.amplitudes)[:, None, None] * transform
    pixel_area = fov_x / nx * fov_y / ny
    return total / (np.sqrt(nx * ny) * pixel_area)


def image_of(spots: tuple[Spot, ...], matrix: tuple[int, int], fov_mm: tuple[float, float]) -> np.ndarray:
    """Coil images (coil, y, x)."""
    (nx, ny), (fov_x, fov_y) = matrix, fov_mm
    x = (np.arange(nx) - nx // 2) * fov_x / nx
    y = (np.arange(ny) - ny // 2)[:, None] * fov_y / ny
    total = np.zeros((len(spots[0].amplitudes), ny, nx), np.complex128)
    for spot in spots:
        shape = np.exp(-((x - spot.x) ** 2 + (y - spot.y) ** 2) / (2 * spot.width**2))
        total += np.array(spot.amplitudes)[:, None, None] * shape
    return total


def inverse_transform(kspace: np.ndarray) -> np.ndarray:
    """Centred, unitary inverse FFT over the last two axes."""
    shifted = np.fft.ifft2(np.fft.ifftshift(kspace, axes=(-2, -1)), norm="ortho")
    return np.fft.fftshift(shifted, axes=(-2, -1))


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The geometry of a simulated scan, and its XML header."""

    encoded: tuple[int, int, int] = (80, 45, 1)
    encoded_fov: tuple[float, float, float] = (240.0, 135.0, 5.0)
    recon: tuple[int, int, int] = (40, 45, 1)
    recon_fov: tuple[float, float, float] = (120.0, 135.0, 5.0)
    limits: dict[str, tuple[int, int, int]] = field(
        default_factory=lambda: {"kspace_encoding_step_1": (0, 44, 22)}
    )
    trajectory: str = "cartesian"
    acceleration: int = 1
    calibration_mode: str | None = None
    noise_bandwidth: float | None = 1.0
    extra: str = ""

    def xml(self) -> str:
        """Return the header."""
        limits = "".join(
            f"<{name}><minimum>{low}</minimum><maximum>{high}</maximum><center>{center}</center></{name}>"
            for name, (low, high, center) in self.limits.items()
        )
        mode = f"<calibrationMode>{self.calibration_mode}</calibrationMode>" if self.calibration_mode else ""
        bandwidth = (
            ""
            if self.noise_bandwidth is None
            else f"<relativeReceiverNoiseBandwidth>{self.noise_bandwidth}</relativeReceiverNoiseBandwidth>"
        )
        return f"""<?xml version="1.0"?>
<ismrmrdHeader xmlns="http://www.ismrm.org/ISMRMRD">
  <subjectInformation><patientName>Doe^Jane</patientName><patientID>4711</patientID></subjectInformation>
  <measurementInformation><measurementID>m_17</measurementID><patientPosition>HFS</patientPosition>
    <protocolName>t1_test</protocolName></measurementInformation>
  <acquisitionSystemInformation>{bandwidth}<receiverChannels>3</receiverChannels>
  </acquisitionSystemInformation>
  <experimentalConditions><H1resonanceFrequency_Hz>63500000</H1resonanceFrequency_Hz></experimentalConditions>
  <encoding>
    <encodedSpace>{_space(self.encoded, self.encoded_fov)}</encodedSpace>
    <reconSpace>{_space(self.recon, self.recon_fov)}</reconSpace>
    <encodingLimits>{limits}</encodingLimits>
    <trajectory>{self.trajectory}</trajectory>
    <parallelImaging><accelerationFactor>
      <kspace_encoding_step_1>{self.acceleration}</kspace_encoding_step_1>
      <kspace_encoding_step_2>1</kspace_encoding_step_2></accelerationFactor>{mode}
    </parallelImaging>
  </encoding>{self.extra}
</ismrmrdHeader>"""

    def kspace(self, spots: tuple[Spot, ...] = OBJECT) -> np.ndarray:
        """K-space (coil, ky, kx) of the whole encoded matrix."""
        return kspace_of(spots, self.encoded[:2], self.encoded_fov[:2])

    def kept_kspace(self, spots: tuple[Spot, ...] = OBJECT) -> np.ndarray:
        """The same with the readout's oversampling never measured."""
        fov_x = self.recon_fov[0]
        n_kept = round(self.encoded[0] * fov_x / self.encoded_fov[0])
        return kspace_of(spots, (n_kept, self.encoded[1]), (fov_x, self.encoded_fov[1]))


def _space(matrix: tuple[int, int, int], fov: tuple[float, float, float]) -> str:
    size = "".join(f"<{axis}>{n}</{axis}>" for axis, n in zip("xyz", matrix, strict=True))
    view = "".join(f"<{axis}>{mm}</{axis}>" for axis, mm in zip("xyz", fov, strict=True))
    return f"<matrixSize>{size}</matrixSize><fieldOfView_mm>{view}</fieldOfView_mm>"


def readout(
    data: np.ndarray,
    line: int = 0,
    *flags: AcquisitionFlag,
    center: int | None = None,
    scan_counter: int = 0,
    **fields: Any,
) -> Acquisition:
    """One readout of complex data (coil, sample); ``fields`` are header fields or loop counters by name."""
    header = np.zeros((), ACQUISITION_HEADER)
    n_coils, n_samples = data.shape
    header["version"] = 1
    header["flags"] = sum(flag.bit for flag in set(flags))
    header["scan_counter"] = scan_counter
    header["number_of_samples"] = n_samples
    header["available_channels"] = header["active_channels"] = n_coils
    header["center_sample"] = n_samples // 2 if center is None else center
    header["sample_time_us"] = 5.0
    header["read_dir"], header["phase_dir"], header["slice_dir"] = (1, 0, 0), (0, 1, 0), (0, 0, 1)
    header["idx"]["kspace_encode_step_1"] = line
    for name, value in fields.items():
        target = header if name in (ACQUISITION_HEADER.names or ()) else header["idx"]
        target[name] = value
    return Acquisition(
        header=header[()],
        trajectory=np.zeros((n_samples, 0), np.float32),
        data=np.ascontiguousarray(data, np.complex64),
    )


def lines_of(kspace: np.ndarray, lines: list[int] | None = None, **fields: Any) -> list[Acquisition]:
    """Readouts of a full k-space (coil, ky, kx), line number = row; the last one is LAST_IN_SLICE."""
    rows = list(range(kspace.shape[1])) if lines is None else lines
    last = AcquisitionFlag.LAST_IN_SLICE
    return [
        readout(kspace[:, row], row, *([last] if row == rows[-1] else []), scan_counter=100 + row, **fields)
        for row in rows
    ]


def noise_readout(std: float = 1.0, *, n_coils: int = 3, n_samples: int = 4000, **fields: Any) -> Acquisition:
    """White noise, independent in the coils, of this standard deviation per real component."""
    rng = np.random.default_rng(7)
    noise = std * (rng.normal(size=(n_coils, n_samples)) + 1j * rng.normal(size=(n_coils, n_samples)))
    return readout(noise, 0, AcquisitionFlag.IS_NOISE_MEASUREMENT, center=0, **fields)
