"""Tell what a readout is from its header, before any of its data is looked at."""

from enum import Enum

from gadget.errors import ScanError
from gadget.wire.headers import AcquisitionFlag as Flag
from gadget.wire.messages import Header


class ReadoutKind(Enum):
    """What a readout is for; the values are the words of the log."""

    IMAGE = "image"
    CALIBRATION = "calibration-only"
    NOISE = "noise"
    NAVIGATION = "navigator"
    PHASE_CORRECTION = "phase correction"
    FEEDBACK = "feedback"
    DUMMY = "dummy"
    SURFACE_COIL = "surface coil correction"
    PHASE_STABILIZATION = "phase stabilisation"


_KIND_OF_FLAG = (
    # The first match counts: a noise readout is noise whatever else it claims to be.
    (Flag.IS_NOISE_MEASUREMENT, ReadoutKind.NOISE),
    (Flag.IS_DUMMYSCAN_DATA, ReadoutKind.DUMMY),
    (Flag.IS_NAVIGATION_DATA, ReadoutKind.NAVIGATION),
    (Flag.IS_PHASECORR_DATA, ReadoutKind.PHASE_CORRECTION),
    (Flag.IS_HPFEEDBACK_DATA, ReadoutKind.FEEDBACK),
    (Flag.IS_RTFEEDBACK_DATA, ReadoutKind.FEEDBACK),
    (Flag.IS_SURFACECOILCORRECTIONSCAN_DATA, ReadoutKind.SURFACE_COIL),
    (Flag.IS_PHASE_STABILIZATION_REFERENCE, ReadoutKind.PHASE_STABILIZATION),
    (Flag.IS_PHASE_STABILIZATION, ReadoutKind.PHASE_STABILIZATION),
)
_COMPRESSED = (Flag.COMPRESSION1, Flag.COMPRESSION2, Flag.COMPRESSION3, Flag.COMPRESSION4)
_CALIBRATION_BIT = Flag.IS_PARALLEL_CALIBRATION.bit
_CALIBRATION_BITS = _CALIBRATION_BIT | Flag.IS_PARALLEL_CALIBRATION_AND_IMAGING.bit
_SPECIAL_BITS = sum(flag.bit for flag in (*(f for f, _ in _KIND_OF_FLAG), *_COMPRESSED))


def kind_of_readout(flags: int) -> ReadoutKind:
    """Return what a readout is for.

    Calibration readouts flagged as calibration *and* imaging, or with both calibration flags, are image data.
    Readouts with none of the special flags are image data.

    Raises
    ------
    ScanError
        The samples are compressed (COMPRESSION1 to 4): they mean nothing to us.
    """
    if flags & _SPECIAL_BITS:
        for flag in _COMPRESSED:
            if flags & flag.bit:
                raise ScanError(
                    f"The readouts are compressed (flag {flag.name}), which is not supported. Let Gadgetron "
                    "or the converter decompress them first."
                )
        for flag, kind in _KIND_OF_FLAG:
            if flags & flag.bit:
                return kind
    is_only_calibration = flags & _CALIBRATION_BITS == _CALIBRATION_BIT
    return ReadoutKind.CALIBRATION if is_only_calibration else ReadoutKind.IMAGE


def known_dwell(header: Header) -> float:
    """Return the dwell time of a readout in microseconds; 0 where it is not known, or cannot be.

    Up to a second: what is longer, negative or no number says nothing of the noise.
    """
    return possible_dwell(float(header["sample_time_us"]))


def possible_dwell(dwell_us: float) -> float:
    """Return a dwell time; 0 where it cannot be one."""
    return dwell_us if 0 < dwell_us <= 1e6 else 0.0
