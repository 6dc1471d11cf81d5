"""The XML header: what is read, what is refused, and that nothing of the subject is kept."""

import warnings
from pathlib import Path

import h5py
import ismrmrd.xsd
import numpy as np
import pytest
from synthetic_scan import Protocol

from gadget.errors import ScanError
from gadget.scan.header import Limit, parse_scan_header


def test_the_header_of_a_scan_is_read() -> None:
    description = parse_scan_header(
        Protocol(
            limits={"kspace_encoding_step_1": (2, 40, 20), "slice": (0, 6, 0)},
            acceleration=3,
            calibration_mode="embedded",
            noise_bandwidth=0.81,
        ).xml()
    )
    (encoding,) = description.encodings
    assert encoding.encoded.matrix == (80, 45, 1)
    assert encoding.encoded.fov_mm == (240.0, 135.0, 5.0)
    assert encoding.recon.matrix == (40, 45, 1)
    assert encoding.recon.fov_mm == (120.0, 135.0, 5.0)
    assert encoding.limits["kspace_encoding_step_1"] == Limit(minimum=2, maximum=40, center=20)
    assert encoding.limits["slice"].size == 7
    assert "average" not in encoding.limits
    assert (encoding.trajectory, encoding.acceleration, encoding.calibration_mode) == (
        "cartesian",
        (3, 1),
        "embedded",
    )
    assert description.noise_bandwidth == 0.81
    assert (description.protocol_name, description.measurement_id) == ("t1_test", "m_17")
    assert description.receiver_channels == 3


def test_a_header_without_noise_bandwidth_gets_gadgetrons_default() -> None:
    description = parse_scan_header(Protocol(noise_bandwidth=None).xml())
    assert description.relative_receiver_noise_bandwidth is None
    assert description.noise_bandwidth == 0.793


def test_no_patient_data_is_kept() -> None:
    text = repr(parse_scan_header(Protocol().xml()))
    assert "Doe" not in text
    assert "4711" not in text


def test_a_measured_header_is_read_as_the_ismrmrd_package_reads_it(data_folder: Path) -> None:
    with h5py.File(data_folder / "kspace" / "skyra_phantom_14coil_r3.h5", "r") as file:
        text = file["dataset/xml"][0].decode()
    ours = parse_scan_header(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = ismrmrd.xsd.CreateFromDocument(text)
    system, encoding = theirs.acquisitionSystemInformation, theirs.encoding[0]
    for name, space in (("encoded", encoding.encodedSpace), ("recon", encoding.reconSpace)):
        assert getattr(ours.encodings[0], name).matrix == tuple(getattr(space.matrixSize, a) for a in "xyz")
        assert getattr(ours.encodings[0], name).fov_mm == tuple(
            getattr(space.fieldOfView_mm, a) for a in "xyz"
        )
    limit = encoding.encodingLimits.kspace_encoding_step_1
    assert ours.encodings[0].limits["kspace_encoding_step_1"] == Limit(
        minimum=limit.minimum, maximum=limit.maximum, center=limit.center
    )
    assert ours.encodings[0].trajectory == encoding.trajectory.value
    assert (
        ours.encodings[0].acceleration[0]
        == encoding.parallelImaging.accelerationFactor.kspace_encoding_step_1
    )
    assert ours.encodings[0].calibration_mode == encoding.parallelImaging.calibrationMode.value
    assert ours.relative_receiver_noise_bandwidth == system.relativeReceiverNoiseBandwidth
    assert dict(ours.coil_labels) == {label.coilNumber: label.coilName for label in system.coilLabel}
    assert ours.dependencies["Noise"] == theirs.measurementInformation.measurementDependency[1].measurementID
    assert ours.field_strength_t == system.systemFieldStrength_T
    assert ours.echo_times_ms == tuple(theirs.sequenceParameters.TE)


def test_elements_that_we_do_not_need_or_know_do_not_matter() -> None:
    text = Protocol(extra="<brandNew><matrixSize>?</matrixSize></brandNew>").xml()
    text = text.replace("<patientPosition>HFS</patientPosition>", "")
    text = text.replace(' xmlns="http://www.ismrm.org/ISMRMRD"', "")
    assert parse_scan_header(text).encodings[0].encoded.matrix == (80, 45, 1)


def test_whole_numbers_may_be_written_with_a_decimal_point() -> None:
    text = Protocol().xml().replace("<y>45</y>", "<y>45.000</y>")
    assert parse_scan_header(text).encodings[0].encoded.matrix[1] == 45


XML = Protocol().xml()
ENCODED_SIZE = "<matrixSize><x>80</x><y>45</y><z>1</z></matrixSize>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("this is no header", r"is not XML \(.*; 17 characters\)"),
        ("", "is not XML"),
        (XML[:300], "is not XML"),
        (XML.replace("t1_test", "\ud800"), "is not XML .characters that cannot be in a text"),
        ("<configuration/>", "root element is 'configuration'"),
        ("<ismrmrdHeader/>", "has no encoding; cannot lay out k-space"),
        ("<!DOCTYPE a><ismrmrdHeader/>", "document type declaration"),
        (
            XML.replace(ENCODED_SIZE, ""),
            r"has no encoding\[0\].encodedSpace.matrixSize; cannot lay out k-space. Check",
        ),
        (XML.replace("<y>45</y>", "", 1), r"has no encoding\[0\].encodedSpace.matrixSize.y"),
        (XML.replace("<x>80</x>", "<x>0</x>"), r"encodedSpace.matrixSize.x is 0; it must be from 1 to 8192"),
        (XML.replace("<x>80</x>", "<x>-4</x>"), "matrixSize.x is -4; it must be"),
        (XML.replace("<x>80</x>", "<x>100000</x>"), "matrixSize.x is 100000; it must be"),
        (XML.replace("<x>80</x>", "<x>eighty</x>"), "matrixSize.x is 'eighty'; it must be a finite number"),
        (XML.replace("<x>80</x>", "<x>79.5</x>"), "matrixSize.x is 79.5; it must be a whole number"),
        (XML.replace("<x>240.0</x>", "<x>NaN</x>"), "fieldOfView_mm.x is 'NaN'"),
        (XML.replace("<x>240.0</x>", "<x>0</x>"), "fieldOfView_mm.x is 0; a field of view must be positive"),
        (XML.replace("<z>5.0</z>", "<z>-1</z>"), "fieldOfView_mm.z is -1"),
        (XML.replace("<x>240.0</x>", ""), r"has no encoding\[0\].encodedSpace.fieldOfView_mm.x"),
        (
            XML.replace("<trajectory>cartesian</trajectory>", ""),
            r"has no encoding\[0\].trajectory; cannot tell",
        ),
        (
            XML.replace("<maximum>44</maximum>", "<maximum>-1</maximum>"),
            "kspace_encoding_step_1 has minimum 0, maximum -1, center 22; counters run",
        ),
        (
            XML.replace("Bandwidth>1.0<", "Bandwidth>7<"),
            "relativeReceiverNoiseBandwidth is 7; it must be above 0 and at most 1",
        ),
    ],
)
def test_a_faulty_header_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScanError, match=message):
        parse_scan_header(text)


def test_a_missing_field_of_view_is_refused() -> None:
    start, end = XML.index("<fieldOfView_mm>"), XML.index("</fieldOfView_mm>") + len("</fieldOfView_mm>")
    with pytest.raises(ScanError, match=r"has no encoding\[0\].encodedSpace.fieldOfView_mm; cannot place"):
        parse_scan_header(XML[:start] + XML[end:])


@pytest.mark.parametrize("name", ["radial", "spiral", "goldenangle", "other", "Spiral"])
def test_trajectories_of_the_standard_are_not_refused(name: str) -> None:
    encoding = parse_scan_header(Protocol(trajectory=name).xml()).encodings[0]
    assert encoding.refusal() is None
    assert not encoding.is_cartesian


def test_trajectories_that_the_standard_does_not_know_are_refused_by_name() -> None:
    reason = parse_scan_header(Protocol(trajectory="Rosette").xml()).encodings[0].refusal()
    assert reason is not None
    assert "the trajectory 'rosette', which is not supported. 'cartesian' and, with trajectories, " in reason


@pytest.mark.parametrize(("name", "step"), [("goldenangle", 30.0), ("cartesian", None)])
def test_the_description_of_a_trajectory_is_read_where_it_is_needed(name: str, step: float | None) -> None:
    text = (
        Protocol(trajectory=name)
        .xml()
        .replace(
            "<parallelImaging>",
            "<trajectoryDescription><identifier>mine</identifier><userParameterDouble>"
            "<name>angle_increment_deg</name><value>30</value></userParameterDouble></trajectoryDescription>"
            "<parallelImaging>",
        )
    )
    description = parse_scan_header(text).encodings[0].trajectory_description
    assert description.identifier == "mine"
    assert description.angle_step_rad == (None if step is None else pytest.approx(np.deg2rad(step)))


def test_epi_is_refused_by_name() -> None:
    reason = parse_scan_header(Protocol(trajectory="epi").xml()).encodings[0].refusal()
    assert reason is not None
    assert "'epi', which is not supported yet: EPI needs regridding" in reason


def test_multiband_is_refused_by_name() -> None:
    text = (
        Protocol()
        .xml()
        .replace(
            "</accelerationFactor>",
            "</accelerationFactor><multiband><multiband_factor>3</multiband_factor></multiband>",
        )
    )
    reason = parse_scan_header(text).encodings[0].refusal()
    assert reason is not None
    assert "multiband scan (factor 3), which is not supported yet" in reason


def test_epi_that_calls_itself_cartesian_is_refused_by_name() -> None:
    # What the Siemens converter's default map writes for EPI
    text = (
        Protocol()
        .xml()
        .replace(
            "<parallelImaging>",
            "<trajectoryDescription><identifier>ConventionalEPI</identifier></trajectoryDescription>"
            "<parallelImaging>",
        )
    )
    reason = parse_scan_header(text).encodings[0].refusal()
    assert reason is not None
    assert "is EPI by its trajectoryDescription, whatever its trajectory ('cartesian') says" in reason


@pytest.mark.parametrize(
    ("partitions", "limits", "is_3d"),
    [
        (8, (0, 7, 4), True),
        (8, (0, 0, 0), False),
        (8, None, False),
        (1, (0, 7, 4), False),
    ],
)
def test_a_3d_scan_has_partitions_in_matrix_and_limits(
    partitions: int, limits: tuple[int, int, int] | None, is_3d: bool
) -> None:
    protocol = Protocol(
        encoded=(80, 45, partitions),
        limits={"kspace_encoding_step_1": (0, 44, 22)}
        | ({"kspace_encoding_step_2": limits} if limits else {}),
    )
    encoding = parse_scan_header(protocol.xml()).encodings[0]
    assert encoding.refusal() is None
    assert encoding.announces_partitions is is_3d


@pytest.mark.parametrize(("value", "expected"), [("24", 24), ("0", None), ("x", None), ("9" * 9, None)])
def test_the_number_of_embedded_reference_lines_comes_from_the_user_parameters(
    value: str, expected: int | None
) -> None:
    extra = (
        "<userParameters><userParameterLong><name>EmbeddedRefLinesE1</name>"
        f"<value>{value}</value></userParameterLong></userParameters>"
    )
    assert parse_scan_header(Protocol(extra=extra).xml()).reference_lines == (expected, None)


def test_a_plain_scan_is_not_refused() -> None:
    assert parse_scan_header(Protocol().xml()).encodings[0].refusal() is None


def test_a_reference_to_an_encoding_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScanError, match=r"encoding_space_ref 1, but the scan header has 1 encoding"):
        parse_scan_header(XML).encoding_of(1)
