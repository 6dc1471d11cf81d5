"""Trajectories that are built from the header."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from gadget.errors import ScanError
from gadget.scan.header import Space
from gadget.scan.trajectory import slice_trajectory
from gadget.scan.trajectory_description import TrajectoryDescription, read_trajectory_description
from gadget.wire.headers import AcquisitionFlag
from tests.gadget.scan.trajectory_scans import ENCODING, OVERSAMPLED, spokes, without_points
from tests.synthetic_scan import readout

GOLDEN = replace(ENCODING, trajectory="goldenangle")


def degrees_of(points: np.ndarray) -> np.ndarray:
    """Angles of the last sample of each readout."""
    return np.degrees(np.arctan2(points[:, -1, 1], points[:, -1, 0])) % 360


def test_uniform_spokes_halve_the_circle_by_the_number_that_the_limits_announce():
    read = slice_trajectory(without_points([0, 1, 6, 23]), ENCODING)

    assert read.is_built
    assert np.allclose(read.points, spokes()[[0, 1, 6, 23]])
    assert "built as 24 radial spokes, evenly over half a circle" in read.notes[0]


def test_golden_spokes_go_by_their_number():
    read = slice_trajectory(without_points([0, 1, 2, 1000]), GOLDEN)

    step = 180 * (np.sqrt(5) - 1) / 2
    assert np.allclose(degrees_of(read.points), np.array([0, step, 2 * step, 1000 * step]) % 360)
    assert "golden angle, 111.246 degrees" in read.notes[0]


@pytest.mark.parametrize(
    ("xml", "step", "first"),
    [
        ("<identifier>TinyGoldenAngle7</identifier>", 23.62814, 0.0),
        ("<identifier>golden angle radial</identifier>", 111.24612, 0.0),
        (
            "<identifier>wip</identifier><userParameterLong><name>tiny_golden_angle</name><value>2</value>"
            "</userParameterLong><userParameterDouble><name>first_angle_deg</name><value>90</value>"
            "</userParameterDouble>",
            68.75388,
            90.0,
        ),
        (
            "<identifier>wip</identifier><userParameterDouble><name>AngleIncrementRad</name>"
            "<value>0.5235987755982988</value></userParameterDouble>",
            30.0,
            0.0,
        ),
        (
            "<identifier>wip</identifier><userParameterDouble><name>angle_increment_deg</name>"
            "<value>15</value></userParameterDouble>",
            15.0,
            0.0,
        ),
    ],
    ids=["tiny", "golden", "tiny by number", "rad", "degrees"],
)
def test_the_trajectory_description_says_the_step(xml, step, first):
    xml = f"<encoding><trajectoryDescription>{xml}</trajectoryDescription></encoding>"
    element = ElementTree.fromstring(xml)

    read = slice_trajectory(
        without_points([0, 1, 2, 3]), ENCODING, description=read_trajectory_description(element)
    )

    expected = (first + step * np.arange(4)) % 360
    assert np.allclose(degrees_of(read.points), expected, atol=1e-4)
    assert f"{step:.3f} degrees apart (trajectoryDescription)" in read.notes[0]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (TrajectoryDescription(identifier="tiny golden angle"), "tiny golden angle without its number"),
        (TrajectoryDescription(numbers={"tinygoldenangle": 1.5}), r"tiny_golden_angle is 1\.5; it must be"),
    ],
)
def test_a_tiny_golden_angle_without_a_number_is_refused(description, message):
    with pytest.raises(ScanError, match=message):
        slice_trajectory(without_points([0, 1, 2]), ENCODING, description=description)


def test_an_encoding_without_a_description_has_an_empty_one():
    assert read_trajectory_description(ElementTree.fromstring("<encoding/>")) == TrajectoryDescription()


def test_uniform_spokes_without_their_number_are_refused():
    with pytest.raises(ScanError, match=r"announces 0 spoke\(s\): the angles cannot be known"):
        slice_trajectory(without_points([0, 1, 2]), replace(ENCODING, limits={}))


@pytest.mark.parametrize(
    ("encoding", "n_samples", "center", "expected"),
    [
        (ENCODING, 64, 32, np.arange(64) - 32.0),
        (ENCODING, 64, 0, np.arange(64) - 32.0),
        (OVERSAMPLED, 128, 64, (np.arange(128) - 64) / 2),
        # oversampling that was removed upstream
        (OVERSAMPLED, 64, 32, np.arange(64) - 32.0),
        # asymmetric echo: a quarter before the centre
        (OVERSAMPLED, 96, 32, (np.arange(96) - 32) / 2),
        # half spokes from the centre outwards
        (ENCODING, 32, 0, np.arange(32.0)),
        # twice as many samples as the header says, over twice the field of view
        (ENCODING, 128, 64, (np.arange(128) - 64) / 2),
        (
            replace(
                ENCODING,
                encoded=Space(matrix=(63, 63, 1), fov_mm=(315.0, 315.0, 5.0)),
                recon=Space(matrix=(63, 63, 1), fov_mm=(315.0, 315.0, 5.0)),
            ),
            63,
            31,
            np.arange(63) - 31.0,
        ),
    ],
    ids=["even", "not set", "oversampled", "removed", "asymmetric", "half", "more", "odd"],
)
def test_samples_lie_where_those_of_a_cartesian_readout_do(encoding, n_samples, center, expected):
    numbers = list(range(0, 24, 2))

    read = slice_trajectory(without_points(numbers, n_samples, center=center), encoding)

    assert np.allclose(read.points[0, :, 0], expected)
    assert np.allclose(read.points[0, :, 1], 0)
    assert np.allclose(np.hypot(read.points[5, :, 0], read.points[5, :, 1]), np.abs(expected))


def test_a_reversed_spoke_runs_the_other_way():
    forward = readout(np.ones((2, 64)), 3)
    backward = readout(np.ones((2, 64)), 3, AcquisitionFlag.IS_REVERSE)
    others = without_points(list(range(8)))

    read = slice_trajectory([forward, backward, *others], ENCODING)

    assert np.allclose(read.points[1], read.points[0, ::-1])


def test_spokes_are_straight_in_mm_where_the_field_of_view_is_not_square():
    encoding = replace(
        ENCODING,
        encoded=Space(matrix=(64, 48, 1), fov_mm=(320.0, 240.0, 5.0)),
        recon=Space(matrix=(64, 48, 1), fov_mm=(320.0, 240.0, 5.0)),
    )

    read = slice_trajectory(without_points([0, 3, 12]), encoding)

    # the spoke along y reaches the same cycles per mm as the one along x: 32 / 320 = 24 / 240
    assert np.allclose(read.points[2, 0], [0.0, -24.0])
    assert np.allclose(read.points[0, 0], [-32.0, 0.0])
    geometry = read.geometry()
    assert geometry is not None
    assert np.allclose(np.degrees(geometry.angles), [0.0, 22.5, 90.0])
