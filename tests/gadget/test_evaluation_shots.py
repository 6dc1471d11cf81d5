"""Radial and spiral scans to evaluate on: which readouts stay, the reference, what is refused."""

import csv
import io
import re
from dataclasses import replace

import matplotlib.image as pictures
import numpy as np
import pytest
import torch
from simulated_scans import make_scan, settings
from trajectory_protocol import readouts, recorded

from gadget.commands.evaluation_cases import about
from gadget.errors import ScanError
from gadget.evaluation_shots import every_nth, kept_of, read_shot_cases, reference_noise
from gadget.trajectory_scan_writer import readouts_of, write_trajectory_scan
from gadget.wire.messages import Acquisition
from reconlib.kspace import NonuniformKSpace
from reconlib.operators.nonuniform import NonuniformFourier
from reconlib.simulation.nonuniform_scan import simulate_head_nonuniform
from reconlib.simulation.nonuniform_settings import NonuniformSettings
from reconlib.simulation.scan_settings import ScanSettings

MATRIX = (48, 40)
PLAIN = settings(trajectory__delay_correction=False)


def simulated(**trajectory):
    return simulate_head_nonuniform(
        ScanSettings(matrix=MATRIX, fov_mm=(240.0, 200.0), n_coils=4, n_slices=2, noise=0.01, seed=3),
        NonuniformSettings(**trajectory),
    )


@pytest.fixture(scope="module")
def radial():
    return simulated(n_readouts=76)


@pytest.fixture(scope="module")
def files(tmp_path_factory, radial):
    """A radial scan with its truth, the same without, a spiral one, and a Cartesian one."""
    folder = tmp_path_factory.mktemp("scans")
    write_trajectory_scan(folder / "radial.h5", radial)
    one = readouts_of(radial)
    write_trajectory_scan(folder / "bare.h5", replace(one, samples=one.samples[:1]))
    write_trajectory_scan(folder / "spiral.h5", simulated(shape="spiral", n_readouts=12, n_full=12))
    make_scan(folder / "cartesian.h5")
    return folder


def rows_of(folder):
    with (folder / "table.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_third_readout_of_each_slice_stays_and_noise_readouts_do():
    scan = recorded(
        NonuniformSettings(n_readouts=7), noise_covariance=torch.eye(4, dtype=torch.complex128) * 2
    )
    scan = replace(scan, samples=np.concatenate([scan.samples, scan.samples]), slice_positions_mm=(0.0, 5.0))
    lines = readouts(scan, n_noise_readouts=2)
    # interleaved slices: each counts its own
    lines = [*lines[:2], *(one for pair in zip(lines[2:9], lines[9:], strict=True) for one in pair)]
    stays = every_nth(3)
    kept = [one for one in lines if stays(one)]
    assert all(isinstance(one, Acquisition) for one in kept)
    found = [
        (int(one.header["idx"]["slice"]), int(one.header["idx"]["kspace_encode_step_1"])) for one in kept[2:]
    ]
    assert found == [(0, 0), (1, 0), (0, 3), (1, 3), (0, 6), (1, 6)]


def test_partitions_of_a_stack_keep_the_same_readouts():
    lines = readouts(recorded(NonuniformSettings(n_readouts=4)))
    stays = every_nth(3)
    kept = []
    for partition in range(2):
        for one in lines:
            header = np.array(one.header.copy())
            header["idx"]["kspace_encode_step_2"] = partition
            if stays(replace(one, header=header[()])):
                kept.append((partition, int(header["idx"]["kspace_encode_step_1"])))
    assert kept == [(0, 0), (0, 3), (1, 0), (1, 3)]


@pytest.mark.parametrize(
    ("name", "number"),
    [("every-2", 2), ("every-13", 13), ("every-1", None), ("every-", None), ("radial-45", None)],
)
def test_names_of_patterns(name, number):
    assert kept_of(name) == number


def test_a_case_has_every_third_spoke_and_the_reference_is_cg_sense_of_all(files, radial):
    (first, (case,)), (second, _) = read_shot_cases(files / "radial.h5", PLAIN, ["every-3"])
    assert (first.name, second.name) == ("radial slice 0", "radial slice 1")
    kspace = case.kspace
    assert isinstance(kspace, NonuniformKSpace)
    expected = radial.points[::3].reshape(-1, 2)[:, ::-1] / MATRIX
    assert np.allclose(kspace.trajectory[0].numpy(), expected, atol=1e-6)
    truth = radial.truth[0, 0].abs().numpy()
    reference = first.reference[0, 0].numpy()
    assert reference.shape == MATRIX
    assert np.corrcoef(reference.ravel(), truth.ravel())[0, 1] > 0.99
    # the gridded k-space stands for the scan where coil images are asked for
    gridded = first.coil_images().abs().square().sum(1).sqrt()[0].numpy()
    assert np.corrcoef(gridded.ravel(), truth.ravel())[0, 1] > 0.98
    # prewhitened: noise of 1 per real component, in units of the wider grid
    assert first.noise_source == "from the noise readouts"
    assert kspace.noise_std == pytest.approx(first.noise_std)


def test_the_truth_is_the_reference_on_request(files, radial):
    ((scan, cases),) = read_shot_cases(files / "radial.h5", PLAIN, ["every-3"], n_slices=1, use_truth=True)
    assert np.array_equal(scan.reference[0, 0].numpy(), radial.truth[0, 0].abs().numpy())
    assert scan.reference_noise_std == 0
    said = about("parallel-imaging", "truth", cases)
    assert "one readout in K of a radial or spiral scan, against the stored truth." in said


def test_it_is_said_where_there_are_too_few_readouts_for_a_reference(run, files, tmp_path):
    scan = simulated(n_readouts=12)
    write_trajectory_scan(tmp_path / "few.h5", scan)
    cells = {(round(x), round(y)) for x, y in scan.points.reshape(-1, 2)}
    share = 100 * len(cells) / (np.pi / 4 * MATRIX[0] * MATRIX[1])
    said = r"WARNING: the reference is CG-SENSE of readouts that lie in (\d+) % of the cells of k-space"
    arguments = ("--methods", "zero-filled", "--slices", "1", "--device", "cpu", "--no-pictures")

    code, _, err = run("evaluate", tmp_path / "few.h5", *arguments, "--out", tmp_path / "a")
    assert code == 0, err
    for text in (" ".join(err.split()), (tmp_path / "a" / "table.md").read_text()):
        found = re.search(f"few slice 0: .*{said}", text)
        assert found, text
        assert int(found[1]) == pytest.approx(share, abs=2)  # points midway between two cells go to either

    code, _, err = run(
        "evaluate", tmp_path / "few.h5", *arguments, "--reference", "truth", "--out", tmp_path / "b"
    )
    assert code == 0, err
    assert "WARNING" not in err + (tmp_path / "b" / "table.md").read_text()

    enough = read_shot_cases(files / "radial.h5", PLAIN, ["every-3"], n_slices=1)
    assert enough[0][0].caution == ""


def test_the_noise_of_the_reference_is_that_of_many_draws(generator):
    points = torch.rand(1, 500, 2, generator=generator, dtype=torch.float64) - 0.5
    kspace = NonuniformKSpace(
        samples=torch.zeros(1, 1, 500, dtype=torch.complex64),
        trajectory=points,
        weights=torch.rand(1, 500, generator=generator),
        shape=(20, 16),
        noise_std=0.3,
    )
    fourier = NonuniformFourier.plan(points, kspace.shape)
    noise = 0.3 * torch.complex(*torch.randn(2, 1, 40, 500, generator=generator))
    images = torch.view_as_real(fourier.adjoint(noise * kspace.weights[:, None]))
    assert float(images.std()) == pytest.approx(reference_noise(kspace), rel=0.02)


def test_what_cannot_be_thinned_is_refused_in_words(files):
    with pytest.raises(ScanError, match="thinned by every-K, such as every-3, not by radial-45"):
        read_shot_cases(files / "bare.h5", PLAIN, ["radial-45"])
    with pytest.raises(ScanError, match=r"its coil maps cannot be held fixed\. Set coils to joint"):
        read_shot_cases(files / "bare.h5", settings(coils="fixed"), ["every-3"])
    with pytest.raises(ScanError, match="has no truth in it"):
        read_shot_cases(files / "bare.h5", PLAIN, ["every-3"], use_truth=True)
    windowed = settings(trajectory__window=38)
    with pytest.raises(ScanError, match=r"all readouts make 2 images, every 2\. of them 1"):
        read_shot_cases(files / "bare.h5", windowed, ["every-2"])
    with pytest.raises(ScanError, match=r"1 readout\(s\) touch .* of the k-space"):
        read_shot_cases(files / "bare.h5", PLAIN, ["every-76"])


def test_evaluate_takes_radial_and_spiral_scans_beside_cartesian_ones(run, files, tmp_path):
    arguments = ("--methods", "zero-filled,cg-sense", "--slices", "1", "--out", tmp_path, "--device", "cpu")
    scans = files / "radial.h5", files / "spiral.h5", files / "cartesian.h5"
    code, out, err = run("evaluate", *scans, *arguments, "--no-pictures")
    assert code == 0, err
    assert "radial slice 0: noise level" in err
    rows = rows_of(tmp_path)
    assert [row["pattern"] for row in rows[:4]] == ["every-3"] * 4
    assert {row["pattern"] for row in rows[4:]} == {
        *("cartesian-4", "cartesian-4-swapped", "cartesian-4-acl4", "radial-45", "gaussian-8")
    }
    for plain, sense in zip(rows[:4:2], rows[1:4:2], strict=True):
        assert (plain["method"], sense["method"]) == ("zero-filled", "CG-SENSE (oracle)")
        assert float(sense["PSNR"]) > float(plain["PSNR"])
        assert float(sense["iterations"]) >= 1
        assert 0 < float(sense["null space %"]) < 50
    about = (tmp_path / "table.md").read_text()
    assert "every-K: one readout in K of a radial or spiral scan, against CG-SENSE of all of them" in about
    assert "CG-SENSE (oracle)" in out


def test_evaluate_takes_true_radial_and_spiral_samples_of_cartesian_scans(run, files, tmp_path):
    arguments = ("--methods", "zero-filled,tv", "--slices", "1", "--set", "solver.iterations=1")
    patterns = ("--patterns", "off-grid,cartesian-4", "--no-pictures")
    code, _, err = run("evaluate", files / "cartesian.h5", *arguments, *patterns, "--out", tmp_path)
    assert code == 0, err
    rows = rows_of(tmp_path)
    assert list(dict.fromkeys(row["pattern"] for row in rows)) == [
        *("true-radial-45", "true-golden-34", "true-spiral-3", "cartesian-4")
    ]
    assert all(float(row["PSNR"]) > 10 for row in rows)
    assert "true-: samples off the grid" in (tmp_path / "table.md").read_text()
    kept = (tmp_path / "rows.jsonl").read_text()
    assert run("evaluate", files / "cartesian.h5", *arguments, *patterns, "--out", tmp_path)[0] == 0
    assert (tmp_path / "rows.jsonl").read_text() == kept


@pytest.mark.parametrize(
    ("scan", "arguments", "message"),
    [
        (
            "bare.h5",
            ("--patterns", "radial-45"),
            "the pattern radial-45 is for Cartesian scans; choose every-K",
        ),
        ("bare.h5", ("--add-noise", "0.1"), "--add-noise does not go with"),
        ("bare.h5", ("--reference", "corrected"), "--reference corrected does not go with"),
        ("cartesian.h5", ("--patterns", "every-3"), "the pattern every-3 is for radial and spiral scans"),
        ("cartesian.h5", ("--patterns", "every-1"), "there is no pattern 'every-1'"),
    ],
)
def test_patterns_of_the_other_kind_are_misuse(run, files, tmp_path, scan, arguments, message):
    code, _, err = run("evaluate", files / scan, *arguments, "--out", tmp_path / "out")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_bart_has_no_row_off_the_grid_and_says_why(run, files, tmp_path, monkeypatch):
    from reconlib.evaluation.bart import Bart

    monkeypatch.setattr(Bart, "find", staticmethod(lambda: Bart(files / "bart")))
    monkeypatch.setattr(Bart, "version", lambda _self: "none")
    code, _, err = run("evaluate", files / "bare.h5", "--methods", "zero-filled,bart", "--out", tmp_path)
    assert code == 0
    mask = pictures.imread(io.BytesIO((tmp_path / "bare_every-3_mask.png").read_bytes()), format="png")
    assert mask.shape[:2] == MATRIX
    assert 0.3 < (mask[..., 0] > 0).mean() < 0.7
    assert "BART NLINV (oracle): this method reconstructs samples on the grid only" in err
