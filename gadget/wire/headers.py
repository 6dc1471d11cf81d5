"""The fixed-size headers of ISMRMRD messages as packed, little-endian numpy dtypes.

Field names are those of the ISMRMRD standard (``ismrmrd/ismrmrd.h``). The sizes are part of the wire format:
340 bytes for an acquisition, 198 for an image, 40 for a waveform.
"""

from enum import IntEnum

import numpy as np

ENCODING_COUNTERS = np.dtype(
    [
        ("kspace_encode_step_1", "<u2"),
        ("kspace_encode_step_2", "<u2"),
        ("average", "<u2"),
        ("slice", "<u2"),
        ("contrast", "<u2"),
        ("phase", "<u2"),
        ("repetition", "<u2"),
        ("set", "<u2"),
        ("segment", "<u2"),
        ("user", "<u2", (8,)),
    ]
)

ACQUISITION_HEADER = np.dtype(
    [
        ("version", "<u2"),
        ("flags", "<u8"),
        ("measurement_uid", "<u4"),
        ("scan_counter", "<u4"),
        ("acquisition_time_stamp", "<u4"),
        ("physiology_time_stamp", "<u4", (3,)),
        ("number_of_samples", "<u2"),
        ("available_channels", "<u2"),
        ("active_channels", "<u2"),
        ("channel_mask", "<u8", (16,)),
        ("discard_pre", "<u2"),
        ("discard_post", "<u2"),
        ("center_sample", "<u2"),
        ("encoding_space_ref", "<u2"),
        ("trajectory_dimensions", "<u2"),
        ("sample_time_us", "<f4"),
        ("position", "<f4", (3,)),
        ("read_dir", "<f4", (3,)),
        ("phase_dir", "<f4", (3,)),
        ("slice_dir", "<f4", (3,)),
        ("patient_table_position", "<f4", (3,)),
        ("idx", ENCODING_COUNTERS),
        ("user_int", "<i4", (8,)),
        ("user_float", "<f4", (8,)),
    ]
)

IMAGE_HEADER = np.dtype(
    [
        ("version", "<u2"),
        ("data_type", "<u2"),
        ("flags", "<u8"),
        ("measurement_uid", "<u4"),
        ("matrix_size", "<u2", (3,)),
        ("field_of_view", "<f4", (3,)),
        ("channels", "<u2"),
        ("position", "<f4", (3,)),
        ("read_dir", "<f4", (3,)),
        ("phase_dir", "<f4", (3,)),
        ("slice_dir", "<f4", (3,)),
        ("patient_table_position", "<f4", (3,)),
        ("average", "<u2"),
        ("slice", "<u2"),
        ("contrast", "<u2"),
        ("phase", "<u2"),
        ("repetition", "<u2"),
        ("set", "<u2"),
        ("acquisition_time_stamp", "<u4"),
        ("physiology_time_stamp", "<u4", (3,)),
        ("image_type", "<u2"),
        ("image_index", "<u2"),
        ("image_series_index", "<u2"),
        ("user_int", "<i4", (8,)),
        ("user_float", "<f4", (8,)),
        ("attribute_string_len", "<u4"),
    ]
)

WAVEFORM_HEADER = np.dtype(
    {
        # The C struct is padded to its 8-byte alignment before time_stamp's neighbours; offsets are explicit.
        "names": [
            "version",
            "flags",
            "measurement_uid",
            "scan_counter",
            "time_stamp",
            "number_of_samples",
            "channels",
            "sample_time_us",
            "waveform_id",
        ],
        "formats": ["<u2", "<u8", "<u4", "<u4", "<u4", "<u2", "<u2", "<f4", "<u2"],
        "offsets": [0, 8, 16, 20, 24, 28, 30, 32, 36],
        "itemsize": 40,
    }
)


class AcquisitionFlag(IntEnum):
    """Bit numbers in ``AcquisitionHeader.flags``, counted from 1 as in ``ismrmrd.h``."""

    FIRST_IN_ENCODE_STEP1 = 1
    LAST_IN_ENCODE_STEP1 = 2
    FIRST_IN_ENCODE_STEP2 = 3
    LAST_IN_ENCODE_STEP2 = 4
    FIRST_IN_AVERAGE = 5
    LAST_IN_AVERAGE = 6
    FIRST_IN_SLICE = 7
    LAST_IN_SLICE = 8
    FIRST_IN_CONTRAST = 9
    LAST_IN_CONTRAST = 10
    FIRST_IN_PHASE = 11
    LAST_IN_PHASE = 12
    FIRST_IN_REPETITION = 13
    LAST_IN_REPETITION = 14
    FIRST_IN_SET = 15
    LAST_IN_SET = 16
    FIRST_IN_SEGMENT = 17
    LAST_IN_SEGMENT = 18
    IS_NOISE_MEASUREMENT = 19
    IS_PARALLEL_CALIBRATION = 20
    IS_PARALLEL_CALIBRATION_AND_IMAGING = 21
    IS_REVERSE = 22
    IS_NAVIGATION_DATA = 23
    IS_PHASECORR_DATA = 24
    LAST_IN_MEASUREMENT = 25
    IS_HPFEEDBACK_DATA = 26
    IS_DUMMYSCAN_DATA = 27
    IS_RTFEEDBACK_DATA = 28
    IS_SURFACECOILCORRECTIONSCAN_DATA = 29
    IS_PHASE_STABILIZATION_REFERENCE = 30
    IS_PHASE_STABILIZATION = 31
    COMPRESSION1 = 53
    COMPRESSION2 = 54
    COMPRESSION3 = 55
    COMPRESSION4 = 56
    USER1 = 57
    USER2 = 58
    USER3 = 59
    USER4 = 60
    USER5 = 61
    USER6 = 62
    USER7 = 63
    USER8 = 64

    @property
    def bit(self) -> int:
        """The mask of this flag."""
        return 1 << (self.value - 1)
