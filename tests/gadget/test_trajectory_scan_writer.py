"""Scan files with trajectories: what is written is what readers find."""

from dataclasses import replace
from xml.etree import ElementTree

import ismrmrd
import numpy as np
import pytest
import torch
from trajectory_protocol import measured_phantom

from gadget.errors import FileError, SettingsError
from gadget.scan.header import parse_scan_header
from gadget.scan.readout_kinds import ReadoutKind, kind_of_readout
from gadget.scan.trajectory import corrected_for_delays, slice_trajectory
from gadget.scan.trajectory_description import read_trajectory_description
from gadget.scan.trajectory_units import TrajectoryUnits
from gadget.scan_file import read_scan
from gadget.scan_writer import read_truth
from gadget.trajectory_scan_writer import (
    TrajectoryFileSettings,
    readouts_of,
    trajectory_acquisitions,
    trajectory_header_xml,
    write_trajectory_scan,
)
from gadget.wire.messages import Acquisition, ScanHeader
from reconlib.simulation.nonuniform_scan import simulate_phantom_scan
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.simulation.scan_settings import ScanSettings
from reconlib.trajectories.radial import SpokeShift

SETTINGS = ScanSettings(matrix=(32, 40), fov_mm=(160.0, 200.0), n_coils=3)
RADIAL = NonuniformSettings(n_readouts=9)
SPIRAL = NonuniformSettings(shape="spiral", n_readouts=6, n_full=6)
WRITTEN = [units for units in TrajectoryUnits if units is not TrajectoryUnits.AUTO]


def read_back(scan, **settings):
    """Return the encoding, the description of the trajectory and the imaging readouts, without a file."""
    chosen = TrajectoryFileSettings(**settings)
    xml = trajectory_header_xml(readouts_of(scan), chosen)
    root = ElementTree.fromstring(xml)
    node = next(child for child in root if child.tag.endswith("}encoding"))
    images = [
        readout
        for readout in trajectory_acquisitions(readouts_of(scan), chosen)
        if kind_of_readout(int(readout.header["flags"])) is ReadoutKind.IMAGE
    ]
    return parse_scan_header(xml).encodings[0], read_trajectory_description(node), images


@pytest.mark.parametrize("units", WRITTEN, ids=lambda units: units.value)
@pytest.mark.parametrize("trajectory", [RADIAL, SPIRAL], ids=["radial", "spiral"])
def test_in_any_units_the_points_come_back(units, trajectory):
    scan = simulate_phantom_scan(SETTINGS, trajectory)

    encoding, _, images = read_back(scan, units=units)
    read = slice_trajectory(images, encoding)

    assert read.grid.matrix == (40, 32)
    assert read.grid.fov_mm == pytest.approx((200.0, 160.0))
    assert np.allclose(read.points, scan.points, atol=1e-4)
    assert read.kept.all()


@pytest.mark.parametrize(
    ("trajectory", "kind"),
    [
        (RADIAL, "radial"),
        (replace(RADIAL, order="golden"), "goldenangle"),
        (replace(RADIAL, order="golden", golden_number=7), "goldenangle"),
        (replace(RADIAL, oversampling=1), "radial"),
    ],
    ids=["uniform", "golden", "tiny golden", "not oversampled"],
)
def test_without_a_trajectory_the_header_gives_the_same_points(trajectory, kind):
    scan = simulate_phantom_scan(SETTINGS, trajectory)

    encoding, description, images = read_back(scan, with_trajectory=False)
    read = slice_trajectory(images, encoding, description=description)

    assert encoding.trajectory == kind
    assert read.is_built
    assert np.allclose(read.points, scan.points, atol=1e-9)


def test_delays_of_a_simulated_scan_are_corrected():
    shift = SpokeShift(xx=0.7, yy=-0.4, xy=0.1)
    trajectory = replace(RADIAL, n_readouts=31, order="golden", shift=shift)
    scan = simulate_phantom_scan(replace(SETTINGS, n_coils=6), trajectory)
    encoding, _, images = read_back(scan)

    read = corrected_for_delays(slice_trajectory(images, encoding), scan.samples[0].numpy())

    true = trajectory.points(scan.matrix, scan.fov_mm, shifted=True)
    inside = read.kept & (np.abs(true).max(axis=-1) < 15)
    assert np.abs((read.points - true)[inside]).max() < 0.03
    assert np.abs((scan.points - true)[inside]).max() > 0.3


def test_the_file_holds_the_scan_for_another_reader(tmp_path):
    scan = simulate_phantom_scan(SETTINGS, RADIAL)

    write_trajectory_scan(tmp_path / "scan.h5", scan, TrajectoryFileSettings(n_noise_readouts=4))

    with ismrmrd.Dataset(tmp_path / "scan.h5", "dataset", create_if_needed=False) as file:
        header = ismrmrd.xsd.CreateFromDocument(file.read_xml_header())
        readouts = [file.read_acquisition(number) for number in range(file.number_of_acquisitions())]
    assert header.encoding[0].trajectory.value == "radial"
    assert header.encoding[0].encodedSpace.matrixSize.x == 80
    assert header.encoding[0].encodedSpace.fieldOfView_mm.x == pytest.approx(400)
    assert header.encoding[0].encodingLimits.kspace_encoding_step_1.maximum == 8
    assert [one.is_flag_set(ismrmrd.ACQ_IS_NOISE_MEASUREMENT) for one in readouts] == [True] * 4 + [False] * 9
    assert np.allclose(readouts[6].data, scan.samples[0, :, 2].numpy())
    assert np.allclose(readouts[6].traj, scan.points[2] / [40, 32], atol=1e-7)
    assert readouts[6].idx.kspace_encode_step_1 == 2
    assert readouts[-1].is_flag_set(ismrmrd.ACQ_LAST_IN_SLICE)
    assert readouts[-1].is_flag_set(ismrmrd.ACQ_LAST_IN_MEASUREMENT)


def test_our_own_reader_and_the_truth(tmp_path):
    scan = simulate_phantom_scan(SETTINGS, SPIRAL)
    write_trajectory_scan(tmp_path / "scan.h5", scan)

    messages = list(read_scan(tmp_path / "scan.h5"))
    truth = read_truth(tmp_path / "scan.h5")

    assert any(isinstance(message, ScanHeader) for message in messages)
    images = [m for m in messages if isinstance(m, Acquisition) and m.trajectory.size]
    assert len(images) == 6
    assert np.array_equal(images[3].data, scan.samples[0, :, 3].numpy())
    assert truth is not None
    assert np.array_equal(truth.image, scan.truth[:, 0].numpy())
    assert truth.noise_std == scan.noise_std


def test_noise_readouts_have_the_covariance_of_the_samples():
    scan = simulate_phantom_scan(replace(SETTINGS, noise_correlation=0.4), RADIAL)
    chosen = TrajectoryFileSettings(n_noise_readouts=400)

    noise = np.concatenate(
        [
            one.data
            for one in trajectory_acquisitions(readouts_of(scan), chosen)
            if kind_of_readout(int(one.header["flags"])) is ReadoutKind.NOISE
        ],
        axis=1,
    )

    measured = noise @ noise.conj().T / noise.shape[1]
    expected = scan.noise_covariance.numpy()
    assert np.abs(measured - expected).max() < 0.05 * np.abs(expected).max()


def test_weights_are_the_third_column():
    scan = simulate_phantom_scan(SETTINGS, RADIAL)
    weights = np.random.default_rng(1).uniform(0.1, 1, scan.points.shape[:2])
    readouts = replace(readouts_of(scan), weights=weights)

    images = list(trajectory_acquisitions(readouts, TrajectoryFileSettings(n_noise_readouts=0)))
    xml = trajectory_header_xml(readouts)
    read = slice_trajectory(images, parse_scan_header(xml).encodings[0])

    assert read.weights is not None
    assert np.allclose(read.weights, weights)


@pytest.mark.parametrize(
    ("name", "kind"), [("phantom_8coil_spiral", "spiral"), ("phantom_16coil_radial", "radial")]
)
def test_measured_phantoms_can_be_written(name, kind, data_folder):
    points = np.load(data_folder / "kspace" / f"{name}.npz")["coord"]
    readouts = measured_phantom(data_folder, name, kind)

    images = list(trajectory_acquisitions(readouts))
    encoding = parse_scan_header(trajectory_header_xml(readouts)).encodings[0]
    read = slice_trajectory(images, encoding)

    assert read.units is TrajectoryUnits.PER_PIXEL
    assert np.abs(read.points - points).max() < 0.11
    assert read.kept.all()
    assert (read.weights is not None) == (kind == "spiral")
    assert len(images) == len(points)


def test_settings_that_cannot_be_written_are_refused():
    with pytest.raises(SettingsError, match="'auto' is none, choose one of the others"):
        TrajectoryFileSettings(units=TrajectoryUnits.AUTO)
    with pytest.raises(SettingsError, match="-1 noise readouts"):
        TrajectoryFileSettings(n_noise_readouts=-1)


def test_a_file_that_is_there_stays(tmp_path):
    scan = simulate_phantom_scan(SETTINGS, RADIAL)
    (tmp_path / "scan.h5").write_text("precious")

    with pytest.raises(FileError):
        write_trajectory_scan(tmp_path / "scan.h5", scan)

    assert (tmp_path / "scan.h5").read_text() == "precious"
    assert isinstance(scan.noise_covariance, torch.Tensor)
