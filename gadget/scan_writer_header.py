"""How a simulated scan is recorded, and the XML header that says so."""

from dataclasses import dataclass
from typing import Any

from ismrmrd import xsd

from gadget.errors import SettingsError
from reconlib.simulation.scan import SimulatedScan


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFileSettings:
    """How a simulated scan is recorded."""

    group: str = "dataset"
    readout_oversampling: int = 2
    n_noise_readouts: int = 32
    """0 for a scan without a noise measurement."""
    noise_seed: int = 1
    sample_time_us: float = 5.0
    """Dwell time of imaging readouts."""
    noise_sample_time_us: float | None = None
    """Dwell time of noise readouts; None: that of the imaging readouts."""
    relative_receiver_noise_bandwidth: float | None = 1.0
    """None: the header does not say; readers then take 0.793."""
    interleave_slices: bool = False
    """Measure a line of every slice before the next line."""
    number_lines_from_first: bool = False
    """Count lines from the first measured one, as some scanners do where outer lines are left out."""
    recon_matrix: tuple[int, int] | None = None
    """Matrix (y, x) that the scanner is to show; None: that of k-space."""
    recon_fov_mm: tuple[float, float] | None = None
    """Field of view (y, x) of it; smaller than the encoded one along y where there is phase oversampling."""
    protocol_name: str = "simulated"
    measurement_uid: int = 1
    store_truth: bool = True

    def __post_init__(self) -> None:
        faults = []
        if self.readout_oversampling < 1:
            faults.append(f"readout_oversampling is {self.readout_oversampling}, needs at least 1")
        if self.n_noise_readouts < 0:
            faults.append(f"n_noise_readouts is {self.n_noise_readouts}, needs at least 0")
        if not self.sample_time_us > 0 or not self.noise_dwell_us > 0:
            faults.append(
                f"sample times are {self.sample_time_us} and {self.noise_dwell_us}, need to be positive"
            )
        if faults:
            raise SettingsError("A scan cannot be written so: " + "; ".join(faults) + ".")

    @property
    def noise_dwell_us(self) -> float:
        """Dwell time of noise readouts."""
        return self.sample_time_us if self.noise_sample_time_us is None else self.noise_sample_time_us

    def first_line(self, scan: SimulatedScan) -> int:
        """Row of k-space that is counted as line 0."""
        if not self.number_lines_from_first:
            return 0
        return int(scan.kspace.mask.any(dim=0)[0, :, 0].nonzero()[0])


def header_xml(scan: SimulatedScan, settings: ScanFileSettings, *, n_repetitions: int) -> str:
    """Return the ISMRMRD XML header of a scan; it names no person, place or date."""
    n_slices, n_coils, n_ky, n_kx = scan.kspace.samples.shape
    fov_y, fov_x = scan.fov_mm
    factor = settings.readout_oversampling
    recon_y, recon_x = settings.recon_matrix or (n_ky, n_kx)
    recon_fov_y, recon_fov_x = settings.recon_fov_mm or scan.fov_mm
    first = settings.first_line(scan)
    last = (
        int(scan.kspace.mask.any(dim=0)[0, :, 0].nonzero()[-1])
        if settings.number_lines_from_first
        else n_ky - 1
    )
    limits = {
        "kspace_encoding_step_0": counter_limit(factor * n_kx, (factor * n_kx) // 2),
        "kspace_encoding_step_1": counter_limit(last - first + 1, n_ky // 2 - first),
        "slice": counter_limit(n_slices),
        "repetition": counter_limit(n_repetitions),
    }
    others = ("kspace_encoding_step_2", "average", "contrast", "phase", "set", "segment")
    acceleration = max(1, round(scan.acceleration))
    encoding = xsd.encodingType(
        encodedSpace=space_of(factor * n_kx, n_ky, factor * fov_x, fov_y, scan.slice_thickness_mm),
        reconSpace=space_of(recon_x, recon_y, recon_fov_x, recon_fov_y, scan.slice_thickness_mm),
        encodingLimits=xsd.encodingLimitsType(**limits, **{name: counter_limit(1) for name in others}),
        trajectory=xsd.trajectoryType.CARTESIAN,
        parallelImaging=xsd.parallelImagingType(
            accelerationFactor=xsd.accelerationFactorType(
                kspace_encoding_step_1=acceleration, kspace_encoding_step_2=1
            ),
            calibrationMode=xsd.calibrationModeType.EMBEDDED if scan.calibration_lines.any() else None,
        ),
    )
    header = xsd.ismrmrdHeader(
        version=1,
        measurementInformation=xsd.measurementInformationType(
            measurementID=str(settings.measurement_uid),
            patientPosition=xsd.patientPositionType.HFS,
            protocolName=settings.protocol_name,
        ),
        acquisitionSystemInformation=xsd.acquisitionSystemInformationType(
            systemVendor="gadgetron-ebm",
            systemModel="simulation",
            systemFieldStrength_T=3.0,
            relativeReceiverNoiseBandwidth=settings.relative_receiver_noise_bandwidth,
            receiverChannels=n_coils,
            coilLabel=[xsd.coilLabelType(coilNumber=i, coilName=f"loop {i + 1}") for i in range(n_coils)],
        ),
        experimentalConditions=xsd.experimentalConditionsType(H1resonanceFrequency_Hz=127_728_000),
        encoding=[encoding],
        sequenceParameters=xsd.sequenceParametersType(TR=[10.0], TE=[4.0], flipAngle_deg=[12.0]),
    )
    xml: str = xsd.ToXML(header)
    return xml


def counter_limit(size: int, center: int = 0) -> Any:
    """Return the limits of a counter of so many values, from 0."""
    return xsd.limitType(minimum=0, maximum=size - 1, center=center)


def space_of(n_x: int, n_y: int, fov_x: float, fov_y: float, thickness: float) -> Any:
    """Return an encoding space of one slice; lengths in mm."""
    return xsd.encodingSpaceType(
        matrixSize=xsd.matrixSizeType(x=n_x, y=n_y, z=1),
        fieldOfView_mm=xsd.fieldOfViewMm(x=fov_x, y=fov_y, z=thickness),
    )
